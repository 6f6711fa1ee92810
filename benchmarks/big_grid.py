"""Integrals and exact draws of many densities of one variable, each known on a grid of its own."""

import numpy as np
from jaxtyping import Float


def log_integral(
    nodes: Float[np.ndarray, "*many k"], log_f: Float[np.ndarray, "*many k"]
) -> Float[np.ndarray, "*many"]:
    """log ∫ f by the trapezoidal rule, which is nearly exact if f vanishes smoothly at both ends."""
    peak = log_f.max(axis=-1)
    inner = np.exp(log_f - peak[..., None]).sum(axis=-1)
    return peak + np.log(inner * (nodes[..., 1] - nodes[..., 0]))


def draw_on_grid(
    rng: np.random.Generator,
    nodes: Float[np.ndarray, "*many k"],
    log_f: Float[np.ndarray, "*many k"],
) -> Float[np.ndarray, "*many"]:
    r"""One draw of each density, by the inverse of its distribution function.

    The density is linear between nodes, f₀ + (f₁ − f₀) t for t in [0, 1], so its area a there is reached at
    t = 2a / (f₀ + √(f₀² + 2 (f₁ − f₀) a)).
    """
    f = np.exp(log_f - log_f.max(axis=-1, keepdims=True))
    areas = np.cumsum(0.5 * (f[..., 1:] + f[..., :-1]), axis=-1)
    wanted = rng.uniform(size=f.shape[:-1])[..., None] * areas[..., -1:]
    cell = np.minimum((areas < wanted).sum(axis=-1, keepdims=True), areas.shape[-1] - 1)
    at = lambda values, i: np.take_along_axis(values, i, axis=-1)  # noqa: E731
    before = np.where(cell > 0, at(areas, np.maximum(cell - 1, 0)), 0.0)
    left, right = at(f, cell), at(f, cell + 1)
    area = wanted - before
    root = np.sqrt(np.maximum(left**2 + 2 * (right - left) * area, 0))
    t = 2 * area / np.maximum(left + root, np.finfo(float).tiny)
    return (at(nodes, cell) + t * (at(nodes, cell + 1) - at(nodes, cell)))[..., 0]
