"""Improper posteriors, each with a proper twin: the same model with a prior where it lacks one."""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax.nn import log_sigmoid
from jax.scipy.special import gammaln
from jaxtyping import Array, Float, Scalar

from ksivi import Target

LogDensity = Callable[[Float[Array, " d"]], Scalar]

_RNG = np.random.default_rng(2)
_EFFECTS = np.array([28.0, 8, -3, 7, -1, 1, 18, 12])
_ERRORS = np.array([15.0, 10, 16, 11, 9, 11, 10, 18])
_INPUTS = _RNG.normal(size=(20, 2))
_LABELS = (_INPUTS @ np.array([1.0, 0.5]) > 0).astype(float)
_CLUSTERS = np.concatenate([_RNG.normal(-2, 1, 10), _RNG.normal(2, 1, 10)])
_COUNTS = _RNG.poisson(4.0, 30).astype(float)
_TIMES = np.linspace(0, 1, 8)
_CURVE = np.sin(6 * _TIMES) + 0.1 * _RNG.normal(size=8)
_NORMALS = _RNG.normal(1.0, 2.0, 15)


@dataclasses.dataclass(frozen=True)
class Improper:
    """A log density that is improper, and a log prior that makes it proper."""

    name: str
    log_density: LogDensity
    dim: int
    log_prior: LogDensity

    @property
    def target(self) -> Target:
        return Target(self.log_density, self.dim)

    @property
    def twin(self) -> Target:
        return Target(lambda x: self.log_density(x) + self.log_prior(x), self.dim)


def cases() -> list[Improper]:
    """Flat scales, separable labels, sums, products and ratios, mixtures, limits that stay flat."""
    normal = lambda sd, *where: lambda x: -0.5 * jnp.sum((x[jnp.array(where)] / sd) ** 2)  # noqa: E731
    return [
        Improper("schools-centred", _schools_centred, 10, normal(2.0, 1)),
        Improper("schools-noncentred", _schools_noncentred, 10, normal(2.0, 1)),
        Improper("sum", lambda x: -0.5 * (x[0] + x[1] - 1) ** 2, 2, normal(10.0, 0, 1)),
        Improper("product", lambda x: -0.5 * (x[0] * x[1] - 1) ** 2, 2, normal(3.0, 0, 1)),
        Improper("ratio", lambda x: -0.5 * (x[0] * jnp.exp(-x[1]) - 1) ** 2, 2, normal(2.0, 1)),
        Improper("separable", _separable, 3, normal(5.0, 0, 1, 2)),
        Improper("one-observation", _one_observation, 2, normal(2.0, 0, 1)),
        Improper("mixture-of-means", _mixture_of_means, 2, normal(10.0, 0, 1)),
        Improper("mixture-of-scales", _mixture_of_scales, 3, normal(3.0, 0, 1, 2)),
        Improper("more-columns-than-rows", _more_columns_than_rows, 4, normal(3.0, 0, 1, 2, 3)),
        Improper("degrees-of-freedom", _degrees_of_freedom, 3, normal(2.0, 2)),
        Improper("dispersion", _dispersion, 2, normal(2.0, 1)),
        Improper("length-scale", _length_scale, 2, normal(1.0, 0, 1)),
    ]


def _schools_centred(x):
    mu, log_tau, theta = x[0], x[1], x[2:]
    prior = -0.5 * (mu / 5) ** 2 - 0.5 * jnp.sum(((theta - mu) / jnp.exp(log_tau)) ** 2)
    return prior - 8 * log_tau - 0.5 * jnp.sum(((_EFFECTS - theta) / _ERRORS) ** 2)


def _schools_noncentred(x):
    mu, log_tau, eta = x[0], x[1], x[2:]
    theta = mu + jnp.exp(log_tau) * eta
    prior = -0.5 * (mu / 5) ** 2 - 0.5 * jnp.sum(eta**2)
    return prior - 0.5 * jnp.sum(((_EFFECTS - theta) / _ERRORS) ** 2)


def _separable(x):
    logits = x[0] + _INPUTS @ x[1:]
    return jnp.sum(_LABELS * log_sigmoid(logits) + (1 - _LABELS) * log_sigmoid(-logits))


def _one_observation(x):
    return -x[1] - 0.5 * ((1.0 - x[0]) / jnp.exp(x[1])) ** 2


def _mixture_of_means(x):
    return jnp.sum(jnp.logaddexp(-0.5 * (_CLUSTERS - x[0]) ** 2, -0.5 * (_CLUSTERS - x[1]) ** 2))


def _mixture_of_scales(x):
    """A component may shrink to one observation."""
    narrow = -x[2] - 0.5 * ((_CLUSTERS - x[1]) / jnp.exp(x[2])) ** 2
    return jnp.sum(jnp.logaddexp(-0.5 * (_CLUSTERS - x[0]) ** 2, narrow))


def _more_columns_than_rows(x):
    rows = jnp.asarray(_RNG_ROWS)
    return -0.5 * jnp.sum((rows @ x - 1.0) ** 2)


_RNG_ROWS = np.random.default_rng(3).normal(size=(2, 4))


def _degrees_of_freedom(x):
    """Student-t with a flat prior on log ν: the normal limit stays as likely."""
    nu, scale = jnp.exp(x[2]), jnp.exp(x[1])
    residuals = (_NORMALS - x[0]) / scale
    half = gammaln((nu + 1) / 2) - gammaln(nu / 2) - 0.5 * jnp.log(nu)
    # For large ν the difference of log gamma functions loses its digits; its limit is ½ log ½.
    half = jnp.where(nu > 1e4, 0.5 * jnp.log(0.5), half)
    terms = -(nu + 1) / 2 * jnp.log1p(residuals**2 / nu)
    return jnp.sum(half - x[1] + terms) - 0.5 * (x[0] / 10) ** 2 - 0.5 * x[1] ** 2


def _dispersion(x):
    """Negative binomial with a flat prior on log dispersion: the Poisson limit stays as likely."""
    mean, size = jnp.exp(x[0]), jnp.exp(x[1])
    steps = jnp.arange(40.0)
    rising = jnp.sum(jnp.where(steps < _COUNTS[:, None], jnp.log1p(steps / size), 0.0), axis=1)
    terms = rising + _COUNTS * x[0] - (_COUNTS + size) * jnp.log1p(mean / size)
    return jnp.sum(terms) - 0.5 * (x[0] / 3) ** 2


def _length_scale(x):
    """A Gaussian process with a linear trend: a flat log amplitude at a short length scale."""
    gaps = _TIMES[:, None] - _TIMES[None]
    kernel = jnp.exp(2 * x[0] - 0.5 * (gaps * jnp.exp(-x[1])) ** 2) + 0.09 * jnp.eye(8)
    root = jnp.linalg.cholesky(kernel)
    z = jax.scipy.linalg.solve_triangular(root, jnp.asarray(_CURVE), lower=True)
    return -0.5 * jnp.sum(z**2) - jnp.sum(jnp.log(jnp.diag(root))) - 0.5 * (x[0] / 2) ** 2
