"""A semi-implicit run in plain values, so that it can be compared, varied and written down."""

import dataclasses
from typing import Any, Literal

import optax
from jaxtyping import Array, PRNGKeyArray, Scalar

from ..families import SemiImplicit, groups
from ..kernels import IMQ, AbstractKernel, Gaussian, Median, Riesz
from ..objectives import KSIVI, SIVI, SIVISM, UIVI, AbstractObjective, Annealing, Decay
from ..targets import Target
from ..training import train

Method = Literal["ksivi", "ksivi-u", "sivi", "sivi-sm", "uivi"]
KERNELS: dict[str, type[AbstractKernel]] = {"gaussian": Gaussian, "imq": IMQ, "riesz": Riesz}


@dataclasses.dataclass(frozen=True)
class Plan:
    """What settles a semi-implicit run but for its target and key.

    **Attributes:**

    - `annealed`: the paper's annealing, over the first half of the steps.
    - `learning_rate`, `scale_rate`: of Adam for μ, and for σ as a multiple of it.
    - `decay_every`: steps after which the rate is multiplied by 0.9; a cosine to 0 where there are none.
    - `clip`: the norm at which gradients are cut.
    - `ema`: the decay of the average that the posterior uses.
    - `kernel`, `detached`, `log_density_weight`, `log_density_share`, `inverse_covariance`, `shared_rows`: KSIVI's;
        detached is the bandwidth, whose gradient does not flow; the share is of the steps, after which the weight ends.
    - `num_mixing`: SIVI's K.
    - `critic_hidden`, `critic_rate`, `critic_warm_up`, `score_term`: SIVI-SM's; the last is its decaying extra term.
    """

    method: Method
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

    def but(self, **changes: Any) -> "Plan":
        """The same plan with some values changed."""
        return dataclasses.replace(self, **changes)

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
        """Runs it, for one key or a batch, whose targets, rates, starts and objectives may be of their own.

        **Arguments:**

        - `num_steps`: to stop earlier on the same schedule.
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
            key, dim, self.mixing_dim, self.hidden, log_var=self.log_var, min_log_var=self.min_log_var
        )

    def optimizer(self, rate: Scalar) -> optax.GradientTransformation:
        """Adam with a learning rate for μ, and its multiple for σ."""
        adam = self._adam(rate)
        if self.scale_rate != 1:
            adam = optax.partition({"mean": adam, "scale": self._adam(self.scale_rate * rate)}, groups)
        return adam if self.clip is None else optax.chain(optax.clip_by_global_norm(self.clip), adam)

    def objective(self) -> AbstractObjective:
        annealing = Annealing(start=0.1, horizon=self.num_steps / 2) if self.annealed else None
        if self.method in ("ksivi", "ksivi-u"):
            return self._ksivi(annealing)
        if self.method == "sivi":
            return SIVI(self.num_samples, self.num_mixing, annealing=annealing)
        if self.method == "uivi":
            return UIVI(self.num_samples, annealing=annealing)
        return SIVISM(
            self.num_samples,
            self.critic_hidden,
            critic_optimizer=optax.adam(self.critic_rate, b2=self.b2),
            warm_up=self.critic_warm_up,
            score_weight=Decay(factor=1 / 1.004, every=100) if self.score_term else None,
            annealing=annealing,
        )

    def _ksivi(self, annealing: Annealing | None) -> KSIVI:
        share = self.log_density_share
        return KSIVI(
            KERNELS[self.kernel](Median(stop_gradient=self.detached)),
            "vanilla" if self.method == "ksivi" else "u-statistic",
            self.num_samples,
            annealing=annealing,
            log_density_weight=self.log_density_weight,
            log_density_horizon=None if share is None else share * self.num_steps,  # type: ignore[arg-type]
            inverse_covariance=self.inverse_covariance,
            shared_rows=self.shared_rows,
        )

    def _adam(self, rate: Scalar) -> optax.GradientTransformation:
        if self.decay_every is None:
            schedule = optax.cosine_decay_schedule(rate, self.num_steps)
        else:
            schedule = optax.exponential_decay(rate, self.decay_every, 0.9, staircase=True)
        return optax.adam(schedule, b2=self.b2)
