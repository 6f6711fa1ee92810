"""KSD² of a posterior's draws, with a bootstrap band and a p-value."""

import jax
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from .._core.checks import as_count, as_floats, as_single_key
from .._core.compile import one_shot
from .._core.mixtures import Mixture
from .._core.numerics import generator
from ..kernels import IMQ, AbstractKernel, as_kernel, stein_gram
from ..results import Discrepancy, Posterior
from ..targets import Evaluator, Target
from ._checks import require_fit

_BOOTSTRAPS = 500
_SHARES = (0.05, 0.95)
Points = Float[np.ndarray, "n d"]


def discrepancy(
    key: PRNGKeyArray,
    target: Target,
    posterior: Posterior,
    *,
    num_samples: int = 1_000,
    kernel: AbstractKernel | None = None,
) -> Discrepancy:
    r"""KSD² as a U-statistic of new draws, in the coordinates of the training.

    A mixture of Gaussians is not trained; it is taken in coordinates in which its mean is 0 and its
    covariance is the identity. The band comes from resampled draws. The p-value is the share of
    bootstrap values Σ_{i≠j} (wᵢ − 1)(wⱼ − 1) uᵢⱼ / n(n−1), w multinomial, that are at least the
    estimate.

    **Arguments:**

    - `num_samples`: the number of draws.
    - `kernel`: default IMQ with the median bandwidth.

    ```python
    print(ksivi.diagnostics.discrepancy(jax.random.key(3), target, fit.posterior, num_samples=200))
    ```

    Reference: Liu, Lee and Jordan, A kernelized Stein discrepancy for goodness-of-fit tests, ICML
    2016.
    """
    require_fit(target, posterior, "discrepancy")
    rng = generator(as_single_key(key))
    x = posterior.host_draws(rng, as_count(num_samples, "num_samples", minimum=2))
    u, score = _in_coordinates(posterior, x, _scores(target, x))
    given = as_kernel(kernel, IMQ())
    with np.errstate(invalid="ignore", over="ignore"):  # a score that is not finite shows as NaN
        gram = _imq_gram(u, score) if kernel is None else _any_gram(given, u, score)
        return Discrepancy(*_bootstrap(rng, gram), type(given).__name__)


def _scores(target: Target, x: Points) -> Points:
    if target.has_log_density:
        return Evaluator(target)(x)[1]
    return np.asarray(_scores_alone(target.unwhitened(), as_floats(x, "x")), np.float64)


@one_shot
def _scores_alone(target: Target, x: Float[Array, "n d"]) -> Float[Array, "n d"]:
    return jax.vmap(target.score)(x)


@np.errstate(all="ignore")  # scores may be infinite
def _in_coordinates(posterior: Posterior, x: Points, score: Points) -> tuple[Points, Points]:
    """u with x = loc + scale u, and the score in u: scaleᵀ s."""
    mixture = posterior.on_host()
    if mixture is not None:
        loc, scale = _moments(mixture) if isinstance(mixture, Mixture) else mixture.diagonal()
    elif posterior.coordinates is not None:
        affine = posterior.coordinates
        loc, scale = np.asarray(affine.loc, np.float64), np.asarray(affine.scale, np.float64)
    else:
        return x, score
    if scale.ndim == 1:
        return (x - loc) / scale, score * scale
    return np.linalg.solve(scale, (x - loc).T).T, score @ scale


def _moments(mixture: Mixture) -> tuple[Float[np.ndarray, " d"], Float[np.ndarray, "d d"]]:
    """The mean and the root of the covariance of a mixture."""
    shares = mixture.shares / mixture.shares.sum()
    mean = shares @ mixture.means
    columns = np.concatenate([mixture.roots, (mixture.means - mean)[:, :, None]], axis=2)
    parts = np.sqrt(shares)[:, None, None] * columns
    # R of QR: a covariance of very different scales has no Cholesky factor after rounding.
    _, upper = np.linalg.qr(np.concatenate(list(np.swapaxes(parts, 1, 2))))
    return mean, upper.T


def _imq_gram(x: Points, score: Points) -> Float[np.ndarray, "n n"]:
    """The Stein kernel of IMQ with the median bandwidth, as `_any_gram` computes it for any kernel.

    The default is in NumPy, so that the checks of a fit compile nothing for it.
    """
    x = x - x.mean(axis=0)
    products, norms = x @ x.T, np.sum(x**2, axis=1)
    r2 = np.maximum(norms[:, None] + norms[None, :] - 2 * products, 0)
    h = _median_bandwidth(r2)
    base = 1 + r2 / h
    k = 1 / np.sqrt(base)
    slope, curvature = -k / (2 * h * base), 3 * k / (4 * h**2 * base**2)
    along = score @ x.T
    own = np.diagonal(along)
    # ⟨x − y, s(y) − s(x)⟩
    apart = along + along.T - own[:, None] - own[None, :]
    return score @ score.T * k + 2 * slope * apart - 2 * x.shape[1] * slope - 4 * r2 * curvature


def _median_bandwidth(r2: Float[np.ndarray, "n n"]) -> float:
    """The lower median over pairs / log(n + 1), or 1 if it is 0."""
    pairs = r2[np.triu_indices(len(r2), 1)]
    # Every pair counts twice off the diagonal, so this is the lower median of those, too.
    middle = (len(pairs) - 1) // 2
    median = float(np.partition(pairs, middle)[middle])
    return median / float(np.log(len(r2) + 1)) if median > 0 else 1.0


def _any_gram(kernel: AbstractKernel, x: Points, score: Points) -> Float[np.ndarray, "n n"]:
    gram = _gram(kernel, as_floats(x, "x"), as_floats(score, "score"))
    return np.asarray(gram, np.float64)


@one_shot
def _gram(kernel: AbstractKernel, x: Array, score: Array) -> Float[Array, "n n"]:
    fixed = kernel.resolve(x, x, 1)
    return stein_gram(fixed, x, score, x, score)


def _bootstrap(
    rng: np.random.Generator, gram: Float[np.ndarray, "n n"]
) -> tuple[float, float, float, float]:
    """KSD², its band and its p-value."""
    n = len(gram)
    gram = (gram - np.diag(np.diagonal(gram))) / (n * (n - 1))
    chosen = rng.integers(0, n, (_BOOTSTRAPS, n)) + n * np.arange(_BOOTSTRAPS)[:, None]
    counts = np.bincount(chosen.ravel(), minlength=_BOOTSTRAPS * n).reshape(_BOOTSTRAPS, n) * 1.0
    estimate, estimates = float(gram.sum()), np.sum((counts @ gram) * counts, axis=1)
    # (w − 1)ᵀ G (w − 1), with G symmetric
    null = estimates - 2 * counts @ gram.sum(axis=1) + estimate
    low, high = np.quantile(estimates, _SHARES)
    return estimate, float(low), float(high), float(np.mean(null >= estimate))
