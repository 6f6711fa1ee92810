"""How each method is run on each kind of problem: short, or at the paper's settings."""

import abc
import dataclasses
import math
from collections.abc import Callable, Sequence

import jax
from jaxtyping import PRNGKeyArray

from ..methods import KSDD, MALA, MIED, NUTS, SGLD, SVGD, AbstractMethod, run
from ..problems import AbstractProblem
from ..results import Fit
from ..training import Callback
from ._plans import Method, Plan

METHODS = ("ksivi", "ksivi-u", "sivi", "sivi-sm", "uivi", "svgd", "ksdd", "mied", "sgld", "mala", "nuts")
PRESETS = ("short", "paper")


class Recipe(abc.ABC):
    """A method with everything settled but the key."""

    @abc.abstractmethod
    def fit(self, key: PRNGKeyArray, problem: AbstractProblem, callbacks: Sequence[Callback]) -> Fit:
        """Runs it."""


@dataclasses.dataclass(frozen=True)
class Trained(Recipe):
    """A semi-implicit family under an objective."""

    plan: Plan

    def fit(self, key, problem, callbacks):
        return self.plan.train(key, problem.target, callbacks=callbacks)


@dataclasses.dataclass(frozen=True)
class Sampled(Recipe):
    """Particles or chains, given where they start."""

    method: Callable[..., AbstractMethod]
    num_points: int

    def fit(self, key, problem, callbacks):
        start_key, run_key = jax.random.split(key)
        method = self.method(self.num_points, start=problem.start(start_key, self.num_points))
        return run(run_key, problem.target, method, callbacks=callbacks, progress=False)


def recipe(name: str, problem: AbstractProblem, preset: str) -> Recipe:
    """The method by its name, for a problem, in a preset.

    "paper" takes the paper's settings where it states them: those of the semi-implicit methods, of SGLD and of the
    particles. Departures: MALA and NUTS adapt, chains start where the problem says, and on the regression SIVI-SM's σ
    learns five times as fast as μ.
    """
    if name in ("svgd", "ksdd", "mied", "sgld", "mala", "nuts"):
        return _sampled(name, problem, preset)
    plan = paper_plan(name, problem.name, problem.target.dim)  # type: ignore[arg-type]
    return Trained(plan if preset == "paper" else _shortened(plan, problem))


def paper_plan(method: Method, problem: str, dim: int) -> Plan:
    """The paper's settings, and its released code's where the paper is silent, for the problem that this is like.

    **Arguments:**

    - `problem`: its name; one that the paper does not have is treated by its dim.
    """
    kind = _kind(problem, dim)
    plan = {"toy": _toy, "regression": _regression, "diffusion": _diffusion}[kind](method)
    if problem == "banana":
        plan = plan.but(log_var=-1.386)
    if problem == "multimodal":
        plan = plan.but(annealed=True, kernel="imq", detached=True)
    if problem == "student-t":
        plan = plan.but(annealed=True)
        if method in ("ksivi", "ksivi-u"):
            # Heavy tails run away under a kernel that forgets distant pairs: the released code's way.
            plan = plan.but(kernel="riesz", detached=True, inverse_covariance=True)
            plan = plan.but(log_density_weight=0.05, log_density_share=0.4)
    return plan


def _kind(problem: str, dim: int) -> str:
    if problem == "diffusion" or dim > 30:
        return "diffusion"
    return "toy" if dim <= 5 else "regression"


def _toy(method: Method) -> Plan:
    plan = Plan(method, 500, 50_000, mixing_dim=3, hidden=(50, 50), b2=0.99, decay_every=1_000)
    return _uivi(plan) if method == "uivi" else plan


def _regression(method: Method) -> Plan:
    plan = Plan(method, 100, 20_000, mixing_dim=10, hidden=(100, 100), decay_every=3_000, critic_hidden=(256, 256))
    if method == "ksivi":
        return plan.but(log_var=-5.0)
    if method == "ksivi-u":
        return plan.but(log_var=-2.0, num_steps=40_000)
    if method == "sivi":
        return plan.but(learning_rate=1e-2, scale_rate=0.1)
    if method == "sivi-sm":
        # From σ = 1 SIVI-SM wanders far off before it returns, later the slower σ shrinks; at the rate of μ, 20,000
        # steps are too few in log σ².
        return plan.but(score_term=True, min_log_var=2 * math.log(0.05), scale_rate=5.0)
    return _uivi(plan)


def _diffusion(method: Method) -> Plan:
    rate = 2e-4 if method in ("ksivi", "ksivi-u") else 1e-4
    plan = Plan(method, 128, 100_000, mixing_dim=100, hidden=(128, 128), log_var=-2.0, min_log_var=-12.0)
    plan = plan.but(learning_rate=rate, b2=0.99, decay_every=10_000)
    plan = plan.but(critic_hidden=(512, 512), critic_rate=1e-4)
    return _uivi(plan) if method == "uivi" else plan


def _uivi(plan: Plan) -> Plan:
    return plan.but(learning_rate=1e-2, scale_rate=0.2, decay_every=3_000)


def _shortened(plan: Plan, problem: AbstractProblem) -> Plan:
    """Fewer steps and samples, along a cosine from a larger rate to make up for it."""
    kind = _kind(problem.name, problem.target.dim)
    hurry = {"toy": 2, "regression": 1, "diffusion": 5}[kind]
    plan = plan.but(
        num_steps=4_000 if plan.method == "uivi" else 10_000,
        num_samples=min(100, plan.num_samples),
        learning_rate=hurry * plan.learning_rate,
        decay_every=None,
        critic_rate=2e-3,
        annealed=plan.annealed or problem.name == "x-shaped",
    )
    if kind == "regression" and plan.method in ("ksivi-u", "sivi-sm"):
        plan = plan.but(log_var=-5.0)
    return plan


def _sampled(name: str, problem: AbstractProblem, preset: str) -> Recipe:
    paper = preset == "paper"
    if name in ("svgd", "ksdd", "mied"):
        method = {"svgd": SVGD, "ksdd": KSDD, "mied": MIED}[name]
        return Sampled(method, 1_000 if paper else 300)
    if name == "nuts":
        # Toys cost little and curve much.
        acceptance = 0.99 if _kind(problem.name, problem.target.dim) == "toy" else 0.9
        return Sampled(lambda n, start: NUTS(n, num_draws=4_000, target_acceptance=acceptance, start=start), 4)
    if name == "mala":
        return Sampled(lambda n, start: MALA(num_chains=n, num_draws=500, thin=200, start=start), 64)
    if paper:
        steps = 400_000 if _kind(problem.name, problem.target.dim) == "regression" else 100_000
        clip = 10.0 if problem.name == "diffusion" else None
        return Sampled(lambda n, start: SGLD(1e-4, n, steps - 1, 1, thin=1, clip=clip, start=start), 1_000)
    step_size = 1e-3 if _kind(problem.name, problem.target.dim) == "diffusion" else 5e-3
    return Sampled(lambda n, start: SGLD(step_size, n, 5_000, 200, thin=250, start=start), 100)
