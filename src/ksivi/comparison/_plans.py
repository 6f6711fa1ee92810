"""All settings of a run as plain values, so that a run can be compared, varied and written to a
file."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Literal, cast

import jax
import optax
from jaxtyping import Array, Float, PRNGKeyArray, Scalar

from ..families import SemiImplicit, groups
from ..kernels import IMQ, AbstractKernel, Gaussian, Median, Riesz
from ..methods import KSDD, MALA, MIED, NUTS, SGLD, SVGD, AbstractMethod, run
from ..objectives import (
    AISIVI,
    KPG,
    KPGIS,
    KSIVI,
    PVI,
    SIVI,
    SIVISM,
    UIVI,
    AbstractObjective,
    AmortizedSVGD,
    Annealing,
    Decay,
    DenoisedScore,
    Estimator,
)
from ..problems import AbstractProblem
from ..results import Fit
from ..targets import Target
from ..training import Callback, train

TrainedMethod = Literal[
    "ksivi",
    "ksivi-u",
    "ksivi-stein",
    "ksivi-combined",
    "sivi",
    "sivi-sm",
    "uivi",
    "kpg",
    "kpg-is",
    "amortized-svgd",
    "denoised-score",
    "pvi",
    "aisivi",
]
ESTIMATORS: dict[str, Estimator] = {
    "ksivi": "vanilla",
    "ksivi-u": "u-statistic",
    "ksivi-stein": "stein",
    "ksivi-combined": "combined",
}
"""For each name of KSIVI, its estimator."""
KERNELS: dict[str, type[AbstractKernel]] = {"gaussian": Gaussian, "imq": IMQ, "riesz": Riesz}
SAMPLERS: dict[str, tuple[type[AbstractMethod], str]] = {
    "svgd": (SVGD, "num_particles"),
    "ksdd": (KSDD, "num_particles"),
    "mied": (MIED, "num_particles"),
    "sgld": (SGLD, "num_chains"),
    "mala": (MALA, "num_chains"),
    "nuts": (NUTS, "num_chains"),
}
"""For each name, the class of the method, and the argument that sets the number of points."""


@dataclasses.dataclass(frozen=True)
class TrainingPlan:
    """All settings of the training of a semi-implicit family. Only the target and the key are
    missing.

    **Attributes:**

    - `annealed`: whether to anneal the target, from the inverse temperature 0.1 as in the paper.
    - `annealed_share`: the share of the steps in which the inverse temperature would grow by 1.
    - `base_scale`, `base_dof`: of the base of the annealing, see `ksivi.Annealing`. Default: none.
    - `learning_rate`: Adam's learning rate for μ.
    - `scale_rate`: the learning rate for σ, as a multiple of `learning_rate`.
    - `decay_every`: the learning rate is multiplied by 0.9 after this many steps. None: it follows
        a cosine to 0.
    - `clip`: the largest norm of a gradient; larger gradients are scaled down to it.
    - `ema`: decay of the moving average of the parameters that the posterior uses.
    - `kernel`: of KSIVI, KPG, KPG-IS and amortized SVGD.
    - `log_density_weight`, `inverse_covariance`, `shared_rows`: of KSIVI.
    - `detached`: whether no gradient flows through KSIVI's median bandwidth.
    - `log_density_share`: the share of the steps after which KSIVI's `log_density_weight` has
        fallen to 0.
    - `num_mixing`: K of SIVI and AISIVI, the proposals for each sample of KPG-IS, and PVI's
        particles, which share `num_samples`.
    - `critic_hidden`, `critic_rate`: of SIVI-SM's critic, of KPG-IS's proposal, and of the network
        of the denoised score.
    - `critic_warm_up`: of SIVI-SM's critic.
    - `score_term`: whether SIVI-SM has its decaying extra term.
    """

    method: TrainedMethod
    num_samples: int
    num_steps: int
    mixing_dim: int
    hidden: tuple[int, ...]
    log_var: float = 0.0
    min_log_var: float = -20.0
    annealed: bool = False
    learning_rate: float = 1e-3
    scale_rate: float = 1.0
    b2: float = 0.999
    decay_every: int | None = None
    clip: float | None = None
    ema: float | None = None
    kernel: str = "gaussian"
    detached: bool = False
    log_density_weight: float | None = None
    log_density_share: float | None = None
    inverse_covariance: bool = False
    shared_rows: bool = False
    num_mixing: int = 100
    critic_hidden: tuple[int, ...] = (128, 128)
    critic_rate: float = 2e-3
    critic_warm_up: int = 0
    score_term: bool = False
    annealed_share: float = 0.5
    base_scale: float | None = None
    base_dof: float | None = None

    def replace(self, **changes: Any) -> "TrainingPlan":
        """The same plan with some values changed."""
        return dataclasses.replace(self, **changes)

    def fit(
        self, key: PRNGKeyArray, problem: AbstractProblem, callbacks: Sequence[Callback] = ()
    ) -> Fit:
        """Trains on the target of a problem."""
        return self.train(key, problem.target, callbacks=callbacks)

    def train(
        self,
        key: PRNGKeyArray,
        target: Target | list[Target],
        *,
        learning_rate: Array | None = None,
        start: list[SemiImplicit] | None = None,
        objective: list[AbstractObjective] | None = None,
        num_steps: int | None = None,
        **options,
    ):
        """Calls `ksivi.train` for one key or a batch of keys.

        With a batch, `target`, `learning_rate`, `start` and `objective` may have one entry per key.

        **Arguments:**

        - `num_steps`: stops earlier, on the same schedule.
        """
        dim = target[0].dim if isinstance(target, list) else target.dim
        return train(
            key,
            target,
            (lambda k: self.family(k, dim)) if start is None else start,
            self.objective() if objective is None else objective,
            optimizer=self.optimizer,
            learning_rate=self.learning_rate if learning_rate is None else learning_rate,
            num_steps=self.num_steps if num_steps is None else num_steps,
            ema=self.ema,
            progress=False,
            **options,
        )

    def family(self, key: PRNGKeyArray, dim: int) -> SemiImplicit:
        return SemiImplicit.mlp(
            key,
            dim,
            self.mixing_dim,
            self.hidden,
            log_var=self.log_var,
            min_log_var=self.min_log_var,
        )

    def optimizer(self, rate: Scalar | float) -> optax.GradientTransformation:
        """Adam with one learning rate for μ, and its multiple for σ."""
        adam = self._adam(rate)
        if self.scale_rate != 1:
            adam = optax.partition(
                {"mean": adam, "scale": self._adam(self.scale_rate * rate)}, groups
            )
        return (
            adam if self.clip is None else optax.chain(optax.clip_by_global_norm(self.clip), adam)
        )

    def objective(self) -> AbstractObjective:
        annealing = None
        if self.annealed:
            horizon = self.annealed_share * self.num_steps
            annealing = Annealing(
                horizon=horizon, base_scale=self.base_scale, base_dof=self.base_dof
            )
        make: dict[str, Callable[..., AbstractObjective]] = {
            **dict.fromkeys(ESTIMATORS, self._ksivi),
            "sivi": lambda **options: SIVI(num_mixing=self.num_mixing, **options),
            "sivi-sm": self._sivi_sm,
            "uivi": UIVI,
            "kpg": lambda **options: KPG(kernel=self._kernel(), **options),
            "kpg-is": self._kpg_is,
            "amortized-svgd": lambda **options: AmortizedSVGD(kernel=self._kernel(), **options),
            "denoised-score": self._denoised_score,
            "pvi": self._pvi,
            "aisivi": lambda **options: AISIVI(num_mixing=self.num_mixing, **options),
        }
        return make[self.method](num_samples=self.num_samples, annealing=annealing)

    def _kernel(self) -> AbstractKernel:
        return KERNELS[self.kernel](Median(stop_gradient=self.detached))

    def _critic_adam(self) -> optax.GradientTransformation:
        return optax.adam(self.critic_rate, b2=self.b2)

    def _sivi_sm(self, **options) -> SIVISM:
        return SIVISM(
            critic_hidden=self.critic_hidden,
            critic_optimizer=self._critic_adam(),
            warm_up=self.critic_warm_up,
            score_weight=Decay(factor=1 / 1.004, every=100) if self.score_term else None,
            **options,
        )

    def _kpg_is(self, **options) -> KPGIS:
        return KPGIS(
            num_proposals=self.num_mixing,
            kernel=self._kernel(),
            proposal_hidden=self.critic_hidden,
            proposal_optimizer=self._critic_adam(),
            **options,
        )

    def _denoised_score(self, **options) -> DenoisedScore:
        return DenoisedScore(
            network_hidden=self.critic_hidden, network_optimizer=self._critic_adam(), **options
        )

    def _pvi(self, num_samples: int, **options) -> PVI:
        return PVI(self.num_mixing, -(-num_samples // self.num_mixing), **options)

    def _ksivi(self, **options) -> KSIVI:
        share = self.log_density_share
        return KSIVI(
            self._kernel(),
            ESTIMATORS[self.method],
            log_density_weight=self.log_density_weight,
            log_density_horizon=None if share is None else share * self.num_steps,  # type: ignore[arg-type]
            inverse_covariance=self.inverse_covariance,
            shared_rows=self.shared_rows,
            **options,
        )

    def _adam(self, rate: Scalar | float) -> optax.GradientTransformation:
        if self.decay_every is None:
            schedule = optax.cosine_decay_schedule(rate, self.num_steps)
        else:
            schedule = optax.exponential_decay(rate, self.decay_every, 0.9, staircase=True)
        return optax.adam(schedule, b2=self.b2)


@dataclasses.dataclass(frozen=True)
class SamplingPlan:
    """All settings of a run of particles or chains. Only the problem and the key are missing.

    **Attributes:**

    - `num_points`: the number of particles or chains.
    - `options`: more arguments of the method's class, by name.
    """

    method: str
    num_points: int
    options: tuple[tuple[str, Any], ...] = ()

    def fit(
        self, key: PRNGKeyArray, problem: AbstractProblem, callbacks: Sequence[Callback] = ()
    ) -> Fit:
        """Runs the method from the starting points of a problem."""
        start_key, run_key = jax.random.split(key)
        method = self.method_from(problem.start(start_key, self.num_points))
        return cast(Fit, run(run_key, problem.target, method, callbacks=callbacks, progress=False))

    def method_from(self, start: Float[Array, "n d"]) -> AbstractMethod:
        """The method with these starting points."""
        method, count = SAMPLERS[self.method]
        return method(**{count: self.num_points}, start=start, **dict(self.options))
