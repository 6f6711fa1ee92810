"""KSIVI: minimises the kernel Stein discrepancy, Algorithms 1 and 2 of the paper."""

from typing import NamedTuple, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int, PRNGKeyArray, Scalar

from .._core.checks import as_choice, as_count, as_positive, describe
from .._core.sharding import has_axis, platform
from ..families import SemiImplicit
from ..kernels import AbstractKernel, Gaussian, as_kernel
from ..targets import Target
from ._ksd import (
    WITH_DERIVATIVES,
    Batches,
    Estimator,
    require_derivatives,
    score_ksd2,
    stein_ksd2,
)
from ._objective import AbstractObjective, auxiliary
from ._schedules import Schedule, anneal, as_schedule
from ._tilt import Tilt


class KSIVIDraws(NamedTuple):
    """The randomness of one step, for r batches: mixing variables, noise and data rows.

    `others` are more z for the scores of the mixture, possibly none. They are None if the scores are
    those of q(x|z).
    """

    z: Float[Array, "r m k"]
    xi: Float[Array, "r n d"]
    rows: Int[Array, "r b"] | None
    others: Float[Array, "r o k"] | None = None


class KSIVI(AbstractObjective):
    r"""Minimises KSD²(q‖p) = E[k(x, x′) ⟨f, f′⟩] with f = s_p(x) − s_{q(·|z)}(x) = s_p(x) + ξ/σ(z).

    | estimator     | estimate of KSD²                                      | samples per step |
    |---------------|-------------------------------------------------------|------------------|
    | "vanilla"     | 1/N² Σᵢⱼ k(x₁ᵢ, x₂ⱼ) ⟨f₁ᵢ, f₂ⱼ⟩, two batches          | 2N               |
    | "u-statistic" | 2/(N(N−1)) Σ_{i<j} k(xᵢ, xⱼ) ⟨fᵢ, fⱼ⟩, one batch      | N                |
    | "stein"       | 1/N² Σᵢⱼ ⟨s_p + ∇, s_p′ + ∇′⟩ k(x₁ᵢ, x₂ⱼ), two batches | 2N               |
    | "combined"    | 1/N² Σᵢⱼ ⟨g + u ∇, g′ + u′ ∇′⟩ k(x₁ᵢ, x₂ⱼ), two batches | 2N             |
    | "mixture"     | 1/N² Σᵢⱼ k(x₁ᵢ, x₂ⱼ) ⟨h₁ᵢ, h₂ⱼ⟩, two batches         | 2N               |

    They are unbiased for `Fixed` bandwidths; the `Median` bandwidth depends on the samples.

    The first two need k alone. The variance of their gradients grows as 1/σ⁴ when σ is small
    compared with the kernel's length ℓ (ℓ² = h/2 for the Gaussian kernel, h for IMQ). "stein" does not use the
    conditional score, so its variance does not depend on σ. It needs a kernel with two derivatives,
    and is noisier where σ is larger than ℓ. "combined" has g = s_p + w(z) ξ/σ(z) and u = 1 − w(z)
    with w = (1/V + 1/ℓ²)/(1/σ² + 1/ℓ²), where V is the variance of x over all z: "vanilla" where σ
    is large, "stein" where it is small, and less noise than both in between. w has no gradient.

    "mixture" has h = s_p − s_q̂, where q̂ = 1/m Σₖ q(·|zₖ) is a mixture over m values of z, among them
    those of the batch. Near q = p, h is only the difference between q̂ and q, so the noise is small
    where the parts q(·|zₖ) overlap. Where they do not, as in many dimensions, this is "vanilla" at a
    higher price. It needs k alone, and N·m densities of the conditional, which are kept for the
    gradient.

    The u-statistic leaves out pairs that share z. With data minibatches, each batch of samples has
    its own minibatch, because a shared minibatch adds its variance to KSD². The u-statistic then
    splits its samples into two halves and pairs across them.

    The history has `trace_precision`, E tr D(z)⁻¹ with D(z) the covariance of q(x|z). At q = p,
    E‖f‖² = E tr D(z)⁻¹ − E‖s_p‖²: the noise of the first two estimators.

    **Arguments:**

    - `kernel`: the kernel k. Default: Gaussian with the median bandwidth.
    - `estimator`: "vanilla", "u-statistic", "stein", "combined" or "mixture".
    - `num_samples`: N, the number of samples of x in a batch.
    - `noise_per_z`: the number of draws of ξ that share a z. It must divide `num_samples`.
    - `num_mixing`: m of "mixture", at least the number of z in a batch. Default: that number.
    - `annealing`: step ↦ inverse temperature of the target, such as `Annealing`.
    - `log_density_weight`: adds −weight · mean log p(x) of the annealed target to the loss, the
        regularisation of the authors' released code.
    - `log_density_horizon`: the step at which that term ends. Default: never.
    - `tilt`: weighs regions and directions, see `Tilt`. With data minibatches it is biased.
    - `inverse_covariance`: uses ⟨f, C⁻¹ f′⟩, where C is the covariance of the first batch, without
        gradient.
    - `shared_rows`: uses one data minibatch for all samples of a step, as the released code does.
        The loss is then biased upwards by the variance of the minibatch. The u-statistic keeps its
        samples in one batch.

    ```python
    objective = ksivi.KSIVI(kernel=ksivi.kernels.IMQ(), estimator="u-statistic", num_samples=100)
    ```

    Reference: Cheng, Yu, Xie, Zhang and Zhang, Kernel Semi-Implicit Variational Inference, ICML
    2024.
    """

    kernel: AbstractKernel
    annealing: Schedule | None
    log_density_weight: Array | None
    log_density_horizon: Array | None
    tilt: Tilt | None
    estimator: Estimator = eqx.field(static=True)
    num_samples: int = eqx.field(static=True)
    noise_per_z: int = eqx.field(static=True)
    inverse_covariance: bool = eqx.field(static=True)
    shared_rows: bool = eqx.field(static=True)
    num_mixing: int | None = eqx.field(static=True)

    def __init__(
        self,
        kernel: AbstractKernel | None = None,
        estimator: Estimator = "vanilla",
        num_samples: int = 100,
        *,
        noise_per_z: int = 1,
        num_mixing: int | None = None,
        annealing: Schedule | None = None,
        log_density_weight: float | Array | None = None,
        log_density_horizon: int | Array | None = None,
        tilt: Tilt | None = None,
        inverse_covariance: bool = False,
        shared_rows: bool = False,
    ):
        self.kernel = as_kernel(kernel, Gaussian())
        self.estimator = as_choice(estimator, "estimator", get_args(Estimator))
        self.num_samples = as_count(num_samples, "num_samples", minimum=2)
        self.noise_per_z = as_count(noise_per_z, "noise_per_z")
        self.num_mixing = num_mixing
        self.annealing = as_schedule(annealing, "annealing", "Annealing()")
        weight, horizon = log_density_weight, log_density_horizon
        self.log_density_weight = (
            None if weight is None else as_positive(weight, "log_density_weight")
        )
        self.log_density_horizon = (
            None if horizon is None else as_positive(horizon, "log_density_horizon")
        )
        self.tilt = tilt
        self.inverse_covariance = inverse_covariance
        self.shared_rows = shared_rows
        self._require_options_that_agree()

    def init(self, key: PRNGKeyArray, target: Target, family: SemiImplicit) -> None:
        if self.log_density_weight is not None and not target.has_log_density:
            raise ValueError(
                "log_density_weight needs log-density values, but this target has only a score"
            )
        batches, num_z = self._num_batches(target), self.num_samples // self.noise_per_z
        if batches > self._batches_drawn and num_z % batches:
            raise ValueError(
                f"num_samples must be even for a minibatched u-statistic, got {num_z} draws of z"
            )
        in_first = self.num_samples * self._batches_drawn // batches
        if self.inverse_covariance and in_first <= target.dim:
            raise ValueError(
                f"inverse_covariance needs more than dim = {target.dim} samples per batch, got "
                f"{in_first}"
            )

    def draw(self, key: PRNGKeyArray, target: Target, family: SemiImplicit) -> KSIVIDraws:
        noise_key, rows_key = jax.random.split(key)
        batches = self._num_batches(target)
        per_batch = self.num_samples // self.noise_per_z
        if batches > self._batches_drawn:
            per_batch //= batches
        z, xi = family.noise(noise_key, batches * per_batch, self.noise_per_z)
        return KSIVIDraws(
            z.reshape(batches, per_batch, z.shape[1]),
            xi.reshape(batches, -1, family.dim),
            self._draw_rows(rows_key, target, batches),
            # Not a third part of the key: the other estimators keep their draws.
            self._draw_others(jax.random.fold_in(key, 2), family, per_batch),
        )

    def loss(self, family, state, draws, target, step):
        target, heat = anneal(target, self.annealing, step)
        x, sampler_score = self._transport(family, draws)
        evaluate = lambda x, rows: self._evaluate(target.on_rows(rows), x)  # noqa: E731
        log_density, score = jax.vmap(evaluate)(x, draws.rows)
        precision, variances = self._widths(family, draws)
        loss = self._ksd2(Batches(x, score, sampler_score, precision, variances))
        if log_density is not None:
            loss = loss - self._weight(step) * jnp.mean(log_density)
        records = auxiliary(x[0], score[0], x[-1], heat)
        return loss, records | {"trace_precision": jnp.mean(precision)}

    def _require_options_that_agree(self) -> None:
        """Raises `ValueError` for options that exclude each other."""
        require_derivatives(self.kernel, self.estimator)
        n, times, estimator = self.num_samples, self.noise_per_z, self.estimator
        if n % times or (estimator == "u-statistic" and times == n):
            raise ValueError(
                f"noise_per_z must divide num_samples = {n} into several z, got {times}"
            )
        if self.num_mixing is not None:
            as_count(self.num_mixing, "num_mixing", minimum=n // times)
            if estimator != "mixture":
                raise ValueError(f'num_mixing needs estimator="mixture", got "{estimator}"')
        if self.log_density_horizon is not None and self.log_density_weight is None:
            raise ValueError("log_density_horizon needs a log_density_weight, got none")
        if self.inverse_covariance and estimator not in ("vanilla", "u-statistic"):
            raise ValueError(
                f'inverse_covariance needs estimator="vanilla" or "u-statistic", got "{estimator}"'
            )
        if not isinstance(self.tilt, Tilt | None):
            raise ValueError(f"tilt must be a ksivi.objectives.Tilt, got {describe(self.tilt)}")
        if self.tilt is not None and estimator in WITH_DERIVATIVES:
            raise ValueError(
                f'tilt needs an estimator without derivatives, such as "mixture", got "{estimator}"'
            )

    @property
    def score_evals(self) -> int:
        return self._batches_drawn * self.num_samples

    @property
    def num_minibatches(self) -> int:
        return 1 if self.shared_rows else 2

    @property
    def _batches_drawn(self) -> int:
        return 1 if self.estimator == "u-statistic" else 2

    def _num_batches(self, target: Target) -> int:
        return 2 if target.is_minibatched and not self.shared_rows else self._batches_drawn

    def _draw_rows(
        self, key: PRNGKeyArray, target: Target, batches: int
    ) -> Int[Array, "r b"] | None:
        keys = jax.random.split(key, 1 if self.shared_rows else batches)
        rows = target.draw_rows(keys)
        return None if rows is None else jnp.broadcast_to(rows, (batches, rows.shape[1]))

    def _draw_others(
        self, key: PRNGKeyArray, family: SemiImplicit, per_batch: int
    ) -> Float[Array, "r o k"] | None:
        if self.estimator != "mixture":
            return None
        more = 0 if self.num_mixing is None else self.num_mixing - per_batch
        if not more:
            return jnp.zeros((2, 0, family.mixing_dim), family.dtype)
        return family.mixing.sample(key, 2 * more, family.dtype).reshape(2, more, -1)

    def _transport(
        self, family: SemiImplicit, draws: KSIVIDraws
    ) -> tuple[Float[Array, "r n d"], Float[Array, "r n d"]]:
        """Samples of all batches and their scores, conditional ones or those of the mixture.

        A CPU computes all batches as one: the gradient of a weight is then a plain matrix product,
        without copies of its factors. A mesh divides the samples of each batch, and a GPU has fast
        batched products.
        """
        if draws.others is not None:
            in_mixture = lambda z, xi, others: family.transport((z, xi), others)  # noqa: E731
            return jax.vmap(in_mixture)(draws.z, draws.xi, draws.others)
        if has_axis("samples") or platform() != "cpu":
            return jax.vmap(family.transport)((draws.z, draws.xi))
        x, score = family.transport((lax.collapse(draws.z, 0, 2), lax.collapse(draws.xi, 0, 2)))
        return x.reshape(draws.xi.shape), score.reshape(draws.xi.shape)

    def _widths(
        self, family: SemiImplicit, draws: KSIVIDraws
    ) -> tuple[Float[Array, "r n"], Float[Array, " d"]]:
        """tr D(z)⁻¹ of every sample, and the variances of x over all z of the step, without gradient."""
        z = lax.collapse(draws.z, 0, 2)
        precision = family.trace_precision(z).reshape(draws.z.shape[:2])
        precision = jnp.repeat(precision, self.noise_per_z, axis=1)
        return lax.stop_gradient((precision, family.marginal_variances(z)))

    def _evaluate(
        self, target: Target, x: Float[Array, "n d"]
    ) -> tuple[Float[Array, " n"] | None, Float[Array, "n d"]]:
        """Log densities, or None if the loss does not need them, and scores."""
        if self.log_density_weight is None:
            return None, jax.vmap(target.score)(x)
        return jax.vmap(target.log_density_and_score)(x)

    def _ksd2(self, batches: Batches) -> Scalar:
        if self.estimator in WITH_DERIVATIVES:
            return stein_ksd2(self.kernel, batches, self.estimator)
        group = 0 if len(batches.x) == 2 else self.noise_per_z
        return score_ksd2(self.kernel, batches, group, self.tilt, self.inverse_covariance)

    def _weight(self, step: Int[Array, ""]) -> Scalar:
        assert self.log_density_weight is not None
        if self.log_density_horizon is None:
            return self.log_density_weight
        return jnp.where(step < self.log_density_horizon, self.log_density_weight, 0)
