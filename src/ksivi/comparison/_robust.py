"""KSIVI with one setting for every target, as plain values."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import PRNGKeyArray, PyTree, Scalar

from .._core.checks import as_keys
from ..families import SemiImplicit, groups
from ..kernels import IMQ, Fixed, Sum
from ..objectives import KSIVI, Annealing, Estimator, Tilt
from ..problems import AbstractProblem
from ..results import Fit
from ..targets import Target
from ..training import Callback, train

_NUM_PROBES = 1_000


@dataclasses.dataclass(frozen=True)
class RobustPlan:
    """KSIVI with one setting for every target. Only the target and the key are missing.

    It works in coordinates in which the target has about mean 0 and covariance I. So lengths, rates
    and starts need no units. σ depends on z, but learns how to do so slowly: at the rate of μ, the
    draws of some runs fly apart.

    **Attributes:**

    - `is_whitened`: whether the coordinates are those of `ksivi.auto.whitened`, or the target's own.
    - `estimator`, `num_samples`, `across`, `growth`: of the objective, see `ksivi.KSIVI` and
        `ksivi.objectives.Tilt`.
    - `scales`: the kernel is a mean of IMQ kernels with these bandwidths, times 2d.
    - `coldest`: the inverse temperature at the first step. None: no annealing.
    - `base_sd`: standard deviation of the Gaussian from which the annealing starts.
    - `annealed_share`: the share of the steps in which the target is annealed.
    - `mixing_dim`: the dimension of z. None: that of the target, from 3 to 200.
    - `hidden`: the widths of both networks. None: (64, 64) up to 50 dimensions, then (128, 128).
    - `spread`: standard deviation of μ(z) at the start.
    - `sd`, `least_sd`: σ(z) at the start, and its floor.
    - `learning_rate`: Adam's, at the first step; it falls to 0 as a cosine. None: 0.003 (2/d)^¼.
    - `scale_rate`: the learning rate of how σ(z) depends on z, as a multiple. The common level of
        log σ has the rate of μ.
    - `b2`: of Adam.
    - `ema`: decay of the moving average of the parameters.

    ```python
    from ksivi.comparison import RobustPlan

    fit = RobustPlan(num_steps=100, num_samples=100).train(jax.random.key(0), target)
    ```
    """

    num_steps: int = 20_000
    num_samples: int = 512
    is_whitened: bool = True
    estimator: Estimator = "vanilla"
    across: float = 0.9
    growth: float = 1.0
    scales: tuple[float, ...] = (0.03, 0.3, 3.0)
    coldest: float | None = 0.1
    base_sd: float = 1.5
    annealed_share: float = 0.5
    mixing_dim: int | None = None
    hidden: tuple[int, ...] | None = None
    spread: float = 0.45
    sd: float = 0.9
    least_sd: float = 0.02
    learning_rate: float | None = None
    scale_rate: float = 0.1
    b2: float = 0.99
    ema: float | None = 0.999

    def replace(self, **changes: Any) -> "RobustPlan":
        """The same plan with some values changed."""
        return dataclasses.replace(self, **changes)

    def fit(
        self, key: PRNGKeyArray, problem: AbstractProblem, callbacks: Sequence[Callback] = ()
    ) -> Fit:
        """Trains on the target of a problem."""
        return self.train(key, problem.target, callbacks=callbacks)

    def train(self, key: PRNGKeyArray, target: Target | list[Target], **options: Any):
        """Calls `ksivi.train` for one key, or for a batch of keys with one target or one for each.

        Each key has a search for coordinates of its own, except for targets that have coordinates
        already.
        """
        self.objective(1)  # settings that do not agree are refused before the search
        keys = jnp.atleast_1d(as_keys(key))
        targets = target if isinstance(target, list) else [target] * len(keys)
        if len(targets) != len(keys):
            raise ValueError(
                f"target must be one target or a list with one for each key, got {len(targets)} "
                f"targets and {len(keys)} keys"
            )
        targets = [self._whitened(*pair) for pair in zip(keys, targets, strict=True)]
        dim = targets[0].dim
        ours = {"learning_rate": self.rate(dim), "num_steps": self.num_steps, "ema": self.ema}
        options = ours | {"progress": False} | options
        return train(
            key,
            targets if key.shape else targets[0],
            lambda k: self.family(k, dim),
            self.objective(dim),
            optimizer=self.optimizer,
            **options,
        )

    def family(self, key: PRNGKeyArray, dim: int) -> SemiImplicit:
        """σ(z) from a network. μ(z) starts with the spread that the plan says, in every dimension."""
        family_key, probe_key = jax.random.split(key)
        family = SemiImplicit.mlp(
            family_key,
            dim,
            min(max(dim, 3), 200) if self.mixing_dim is None else self.mixing_dim,
            ((64, 64) if dim <= 50 else (128, 128)) if self.hidden is None else self.hidden,
            log_var=2 * math.log(self.sd),
            min_log_var=2 * math.log(self.least_sd),
            scale="network",
            activation=jax.nn.silu,
        )
        mean: Any = family.conditional.mean
        probes = jax.vmap(mean)(family.mixing.sample(probe_key, _NUM_PROBES))
        mean = mean.with_output(self.spread / jnp.mean(jnp.std(probes, axis=0)), 0.0)
        return eqx.tree_at(lambda f: f.conditional.mean, family, mean)

    def objective(self, dim: int) -> KSIVI:
        if not self.scales:
            raise ValueError("scales must have at least one number, got none")
        kernels = [IMQ(Fixed(2 * dim * scale)) for scale in self.scales]
        return KSIVI(
            Sum(kernels, [1 / len(kernels)] * len(kernels)),
            self.estimator,
            self.num_samples,
            annealing=self._annealing(),
            tilt=self._tilt(),
        )

    def rate(self, dim: int) -> float:
        """The learning rate at the first step."""
        return 3e-3 * (2 / dim) ** 0.25 if self.learning_rate is None else self.learning_rate

    def optimizer(self, rate: Scalar | float) -> optax.GradientTransformation:
        """Adam with one rate for μ and the level of log σ, and a smaller one for the rest of σ(z)."""
        return optax.partition(
            {"mean": self._adam(rate), "scale": self._adam(self.scale_rate * rate)}, _slow_scale
        )

    def _adam(self, rate: Scalar | float) -> optax.GradientTransformation:
        # The loss has no unit, and its gradients may be small: ε must be far below them.
        return optax.adam(optax.cosine_decay_schedule(rate, self.num_steps), b2=self.b2, eps=1e-12)

    def _whitened(self, key: PRNGKeyArray, target: Target) -> Target:
        if not self.is_whitened or target.coordinates is not None:
            return target
        from ..auto import whitened  # the search, which a table of settings does not need

        return whitened(jax.random.fold_in(key, 1), target)

    def _annealing(self) -> Callable | None:
        if self.coldest is None:
            return None
        if not 0 < self.coldest < 1:
            raise ValueError(f"coldest must be between 0 and 1, got {self.coldest}")
        horizon = self.annealed_share * self.num_steps / (1 - self.coldest)
        return Annealing(start=self.coldest, horizon=horizon, base_scale=self.base_sd)

    def _tilt(self) -> Tilt | None:
        if not (self.across or self.growth):
            return None
        return Tilt(across=self.across, growth=self.growth)


def _slow_scale(params: PyTree) -> PyTree:
    """Labels as `groups` does, but the last bias of the network of log σ², its level, is "mean"."""
    level = lambda family: family.conditional.log_var.biases[-1]  # noqa: E731
    return eqx.tree_at(level, groups(params), "mean")
