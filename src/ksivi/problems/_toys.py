"""Two-dimensional toy problems with exact samplers: those of the paper (its Table 4), and a ring."""

from collections.abc import Callable
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, Scalar

from .._core.checks import as_choice, as_count, as_single_key
from ..targets import Target
from ._problem import AbstractProblem, near_origin

Point = Float[Array, "2"]


class Toy(AbstractProblem):
    """A two-dimensional problem with an exact sampler."""

    name: str = eqx.field(static=True)
    target: Target
    sampler: Callable[[PRNGKeyArray], Point]

    def reference(self, key, n):
        return jax.vmap(self.sampler)(jax.random.split(as_single_key(key), as_count(n, "n")))

    def start(self, key, n):
        return near_origin(key, n, 2)


class Banana(eqx.Module):
    """x = (v₁, sign · (v₁² + 1) + v₂) with v ~ N(0, [[1, 0.9], [0.9, 1]])."""

    sign: float

    def log_density(self, x: Point) -> Scalar:
        v = jnp.stack([x[0], x[1] - self.sign * (x[0] ** 2 + 1)])
        return _log_normal(v, 1.0, 0.9)

    def sample(self, key: PRNGKeyArray) -> Point:
        v = _draw_normal(key, 1.0, 0.9)
        return jnp.stack([v[0], self.sign * (v[0] ** 2 + 1) + v[1]])


def banana(form: Literal["paper", "released"] = "paper") -> Toy:
    """The banana: x₂ = v₁² + v₂ + 1 in the paper, and upside down (x₂ = v₂ − v₁² − 1) in the
    released code.

    ```python
    problem = ksivi.problems.banana()
    problem.reference(jax.random.key(0), 1_000)
    ```
    """
    as_choice(form, "form", ("paper", "released"))
    shape = Banana(1.0 if form == "paper" else -1.0)
    return Toy("banana", Target(shape.log_density, 2), shape.sample)


def multimodal() -> Toy:
    """½ N((−2, 0), I) + ½ N((2, 0), I)."""
    return Toy("multimodal", Target(_multimodal_log_density, 2), _draw_multimodal)


def x_shaped() -> Toy:
    """½ N(0, Σ₊) + ½ N(0, Σ₋) with variances 2 and covariances ±1.8."""
    return Toy("x-shaped", Target(_x_shaped_log_density, 2), _draw_x_shaped)


def student_t() -> Toy:
    """x = A z, where z₁ and z₂ are independent Student-t with 2 degrees of freedom: heavy tails,
    correlated.

    A = [[0.28216, −0.11804], [−0.11804, 0.29587]]
    """
    return Toy("student-t", Target(_student_t_log_density, 2), _draw_student_t)


def eight_gaussians() -> Toy:
    """A ring of eight: ⅛ Σₖ N(cₖ, ¼ I) with centres cₖ = 4 (cos kπ/4, sin kπ/4).

    The radius is 4 and the width, the standard deviation of a mode, is ½. Neighbours are 6 widths
    apart, so a mode that a method loses during training stays lost.

    ```python
    problem = ksivi.problems.eight_gaussians()
    problem.reference(jax.random.key(0), 1_000)
    ```
    """
    return Toy("eight-gaussians", Target(_ring_log_density, 2), _draw_ring)


def _multimodal_log_density(x: Point) -> Scalar:
    centre = jnp.array([2.0, 0.0])
    return jnp.logaddexp(
        _log_normal(x + centre, 1.0, 0.0), _log_normal(x - centre, 1.0, 0.0)
    ) - jnp.log(2.0)


def _draw_multimodal(key: PRNGKeyArray) -> Point:
    side_key, normal_key = jax.random.split(key)
    return _draw_normal(normal_key, 1.0, 0.0) + jax.random.rademacher(side_key, ()) * jnp.array(
        [2.0, 0.0]
    )


def _x_shaped_log_density(x: Point) -> Scalar:
    return jnp.logaddexp(_log_normal(x, 2.0, 1.8), _log_normal(x, 2.0, -1.8)) - jnp.log(2.0)


def _draw_x_shaped(key: PRNGKeyArray) -> Point:
    side_key, normal_key = jax.random.split(key)
    return _draw_normal(normal_key, 2.0, 1.8) * jnp.stack(
        [jnp.ones(()), jax.random.rademacher(side_key, ()) * 1.0]
    )


_MODES, _RADIUS, _WIDTH = 8, 4.0, 0.5


def _ring_centres() -> Float[Array, "k 2"]:
    angles = 2 * jnp.pi * jnp.arange(_MODES) / _MODES
    return _RADIUS * jnp.stack([jnp.cos(angles), jnp.sin(angles)], axis=1)


def _ring_log_density(x: Point) -> Scalar:
    modes = jax.vmap(lambda centre: _log_normal(x - centre, _WIDTH**2, 0.0))(_ring_centres())
    return jax.nn.logsumexp(modes) - jnp.log(_MODES)


def _draw_ring(key: PRNGKeyArray) -> Point:
    mode_key, normal_key = jax.random.split(key)
    centre = _ring_centres()[jax.random.randint(mode_key, (), 0, _MODES)]
    return centre + _draw_normal(normal_key, _WIDTH**2, 0.0)


_MIXING = ((0.28216, -0.11804), (-0.11804, 0.29587))


def _student_t_log_density(x: Point) -> Scalar:
    (a, b), (c, d) = _MIXING
    det = a * d - b * c
    z = jnp.stack([d * x[0] - b * x[1], a * x[1] - c * x[0]]) / det
    # The density of t(2) is (2 + z²)^(−3/2).
    return -1.5 * jnp.sum(jnp.log(2 + z**2)) - jnp.log(det)


def _draw_student_t(key: PRNGKeyArray) -> Point:
    z = jax.random.t(key, 2.0, (2,))
    return jnp.stack([row[0] * z[0] + row[1] * z[1] for row in _MIXING])


def _log_normal(x: Point, variance: float, covariance: float) -> Scalar:
    """log N(x; 0, [[v, c], [c, v]])."""
    det = variance**2 - covariance**2
    quadratic = (variance * (x[0] ** 2 + x[1] ** 2) - 2 * covariance * x[0] * x[1]) / det
    return -0.5 * (quadratic + jnp.log(det)) - jnp.log(2 * jnp.pi)


def _draw_normal(key: PRNGKeyArray, variance: float, covariance: float) -> Point:
    u, v = jax.random.normal(key, (2,))
    scale = jnp.sqrt(variance)
    return jnp.stack(
        [scale * u, covariance / scale * u + jnp.sqrt(variance - covariance**2 / variance) * v]
    )
