"""The table of plans: the settings of each method on each problem, for each preset."""

import math
from typing import Any

from .._core.checks import as_choice
from ..problems import AbstractProblem
from ._plans import SAMPLERS, SamplingPlan, TrainedMethod, TrainingPlan
from ._robust import RobustPlan

Plan = TrainingPlan | RobustPlan | SamplingPlan

METHODS = (
    "ksivi",
    "ksivi-u",
    "sivi",
    "sivi-sm",
    "uivi",
    "svgd",
    "ksdd",
    "mied",
    "sgld",
    "mala",
    "nuts",
    "kpg",
    "kpg-is",
    "amortized-svgd",
    "denoised-score",
    "ksivi-stein",
    "ksivi-combined",
    "pvi",
    "aisivi",
    "ksivi-robust",
)
"""The names of the methods. New ones come last: the key of a method is made from its place here."""
PRESETS = ("short", "demo", "paper")

_KSIVI = "ksivi ksivi-u ksivi-stein ksivi-combined"
_PATH = "kpg kpg-is amortized-svgd denoised-score"
_TRAINED = f"{_KSIVI} sivi sivi-sm uivi {_PATH} pvi aisivi"
_PARTICLES = "svgd ksdd mied"
_FEW_STEPS = "short demo"
_ANY = "*"

# One row: problems, presets, methods, settings. All rows that match apply, and later rows override
# earlier ones. A problem is matched by its name or by its size: small (up to 5 dimensions), medium
# (up to 30) or large.
#
# "paper" has the settings of the paper, and those of its released code where the paper states none.
# Exceptions: MALA and NUTS adapt their step size, chains start where the problem says, and
# SIVI-SM's σ has a larger rate on "medium". "short" takes fewer steps and samples, with a larger
# rate that falls to 0. "demo" is "short" with more steps of KSIVI.
_TABLE: tuple[tuple[str, str, str, dict[str, Any]], ...] = (
    # --- trained families: the paper's settings by size
    (
        "small",
        _ANY,
        _TRAINED,
        {"num_samples": 500, "num_steps": 50_000, "mixing_dim": 3, "hidden": (50, 50)},
    ),
    ("small", _ANY, _TRAINED, {"b2": 0.99, "decay_every": 1_000}),
    (
        "medium",
        _ANY,
        _TRAINED,
        {"num_samples": 100, "num_steps": 20_000, "mixing_dim": 10, "hidden": (100, 100)},
    ),
    ("medium", _ANY, _TRAINED, {"decay_every": 3_000, "critic_hidden": (256, 256)}),
    ("medium", _ANY, "ksivi ksivi-stein ksivi-combined", {"log_var": -5.0}),
    ("medium", _ANY, "ksivi-u", {"log_var": -2.0, "num_steps": 40_000}),
    ("medium", _ANY, "sivi", {"learning_rate": 1e-2, "scale_rate": 0.1}),
    ("medium", _ANY, "sivi-sm", {"score_term": True, "min_log_var": 2 * math.log(0.05)}),
    # From σ = 1 SIVI-SM moves far away before it returns, and the slower σ shrinks, the later it
    # returns. At the rate of μ, 20,000 steps are too few for log σ².
    ("medium", _ANY, "sivi-sm", {"scale_rate": 5.0}),
    (
        "large",
        _ANY,
        _TRAINED,
        {"num_samples": 128, "num_steps": 100_000, "mixing_dim": 100, "hidden": (128, 128)},
    ),
    (
        "large",
        _ANY,
        _TRAINED,
        {"log_var": -2.0, "min_log_var": -12.0, "b2": 0.99, "decay_every": 10_000},
    ),
    (
        "large",
        _ANY,
        _TRAINED,
        {"learning_rate": 1e-4, "critic_hidden": (512, 512), "critic_rate": 1e-4},
    ),
    ("large", _ANY, _KSIVI, {"learning_rate": 2e-4}),
    (_ANY, _ANY, "uivi", {"learning_rate": 1e-2, "scale_rate": 0.2, "decay_every": 3_000}),
    # --- trained families: the paper's settings of single problems
    ("banana", _ANY, _TRAINED, {"log_var": -1.386}),
    (
        "multimodal eight-gaussians",
        _ANY,
        _TRAINED,
        {"annealed": True, "kernel": "imq", "detached": True},
    ),
    ("student-t", _ANY, _TRAINED, {"annealed": True}),
    # Under a kernel that ignores distant pairs, draws with heavy tails run away. The released
    # code's remedy:
    (
        "student-t",
        _ANY,
        "ksivi ksivi-u",
        {"kernel": "riesz", "detached": True, "inverse_covariance": True},
    ),
    # The Riesz kernel has no derivatives; IMQ also reaches distant pairs.
    ("student-t", _ANY, "ksivi-stein ksivi-combined", {"kernel": "imq"}),
    ("student-t", _ANY, _KSIVI, {"log_density_weight": 0.05, "log_density_share": 0.4}),
    # --- trained families: fewer steps
    (
        _ANY,
        _FEW_STEPS,
        _TRAINED,
        {"num_samples": 100, "num_steps": 10_000, "decay_every": None, "critic_rate": 2e-3},
    ),
    (_ANY, _FEW_STEPS, "uivi", {"num_steps": 4_000}),
    ("small", _FEW_STEPS, _TRAINED, {"learning_rate": 2e-3}),
    ("small", _FEW_STEPS, "uivi", {"learning_rate": 2e-2}),
    ("medium", _FEW_STEPS, "ksivi-u sivi-sm", {"log_var": -5.0}),
    ("large", _FEW_STEPS, _TRAINED, {"learning_rate": 5e-4}),
    ("large", _FEW_STEPS, _KSIVI, {"learning_rate": 1e-3}),
    ("large", _FEW_STEPS, "uivi", {"learning_rate": 5e-2}),
    # Where the mass is in separate parts, annealing keeps the family from settling on one of them.
    ("x-shaped", _FEW_STEPS, _TRAINED, {"annealed": True}),
    (_ANY, "demo", "ksivi", {"num_steps": 15_000}),
    ("multimodal", "demo", "ksivi", {"detached": False}),
    # --- trained families: what the methods published since the paper have of their own
    # A narrow start. Inner networks have smaller steps than SIVI-SM's critic.
    ("medium", _ANY, _PATH, {"log_var": -5.0}),
    ("large", _FEW_STEPS, f"{_PATH} pvi aisivi", {"learning_rate": 1e-3}),
    (_ANY, _ANY, "kpg-is denoised-score", {"critic_rate": 1e-3}),
    (_ANY, _FEW_STEPS, "kpg-is denoised-score", {"critic_hidden": (128, 128)}),
    (_ANY, _ANY, "kpg-is", {"num_mixing": 10}),
    ("small", _ANY, "pvi aisivi", {"learning_rate": 1e-2, "log_var": -2.0}),
    ("medium", _ANY, "pvi aisivi", {"log_var": -4.0}),
    # The samples, steps and rate of AISIVI's own paper, with a smaller K.
    (_ANY, "paper", "aisivi", {"num_steps": 10_000, "decay_every": None, "num_mixing": 512}),
    ("small", "paper", "aisivi", {"num_samples": 128, "num_steps": 4_000}),
    ("large", "paper", "aisivi", {"learning_rate": 2e-4, "num_mixing": 256}),
    (_ANY, _FEW_STEPS, "aisivi", {"num_steps": 4_000, "num_mixing": 64}),
    # --- one setting for every problem
    (_ANY, _FEW_STEPS, "ksivi-robust", {"num_samples": 128, "num_steps": 10_000}),
    # --- particles and chains
    (_ANY, "paper", _PARTICLES, {"num_points": 1_000}),
    (_ANY, _FEW_STEPS, _PARTICLES, {"num_points": 300}),
    (
        _ANY,
        "paper",
        "sgld",
        {"num_points": 1_000, "step_size": 1e-4, "num_warmup": 99_999, "num_draws": 1, "thin": 1},
    ),
    ("medium", "paper", "sgld", {"num_warmup": 399_999}),
    ("diffusion", "paper", "sgld", {"clip": 10.0}),
    (
        _ANY,
        _FEW_STEPS,
        "sgld",
        {"num_points": 100, "num_warmup": 5_000, "num_draws": 200, "thin": 250},
    ),
    (_ANY, _FEW_STEPS, "sgld", {"step_size": 5e-3}),
    ("large", _FEW_STEPS, "sgld", {"step_size": 1e-3}),
    (_ANY, _ANY, "mala", {"num_points": 64, "num_draws": 500, "thin": 200}),
    (_ANY, _ANY, "nuts", {"num_points": 4, "num_draws": 4_000, "target_acceptance": 0.9}),
    # Small problems cost little, and their densities curve much.
    ("small", _ANY, "nuts", {"target_acceptance": 0.99}),
)


def plan_for(method: str, problem: AbstractProblem, preset: str) -> Plan:
    """The plan of a method for a problem.

    **Arguments:**

    - `method`: one of `METHODS`.
    - `problem`: one that is not in the table gets the settings of its size.
    - `preset`: one of `PRESETS`.
    """
    as_choice(method, "method", METHODS)
    settings = _settings(method, problem.name, problem.target.dim, preset)
    if method == "ksivi-robust":
        return RobustPlan(**settings)
    if method not in SAMPLERS:
        return TrainingPlan(method, **settings)  # type: ignore[arg-type]
    return SamplingPlan(method, settings.pop("num_points"), tuple(settings.items()))


def training_plan(method: TrainedMethod, problem: str, dim: int, preset: str) -> TrainingPlan:
    """The plan of a method that trains a semi-implicit family, for the problem of this name and
    dimension."""
    return TrainingPlan(method, **_settings(method, problem, dim, preset))


def _settings(method: str, problem: str, dim: int, preset: str) -> dict[str, Any]:
    as_choice(preset, "preset", PRESETS)
    settings: dict[str, Any] = {}
    for problems, presets, methods, values in _TABLE:
        if (
            _matches(problems, problem, _size(problem, dim))
            and _matches(presets, preset)
            and _matches(methods, method)
        ):
            settings |= values
    return settings


def _matches(names: str, *found: str) -> bool:
    return names == _ANY or any(name in names.split() for name in found)


def _size(problem: str, dim: int) -> str:
    if problem == "diffusion" or dim > 30:
        return "large"
    return "small" if dim <= 5 else "medium"
