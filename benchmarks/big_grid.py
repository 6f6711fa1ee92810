"""Integrals and exact draws of many densities of one variable, each known on a grid of its own."""

import numpy as np
from jaxtyping import Float, Int


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


def lagrange(offset: Float[np.ndarray, "*many"]) -> Float[np.ndarray, "*many 6"]:
    """The weights of six nodes, −2, …, 3, in the value of their polynomial at `offset` ∈ [0, 1).

    w_j = ∏_{l ≠ j} (s − l) / (j − l). The polynomial has degree five, so a log density that is nearly quadratic is
    known well.
    """
    nodes = range(-2, 4)
    factors = [[(offset - l) / (j - l) for l in nodes if l != j] for j in nodes]
    return np.stack([np.prod(some, axis=0) for some in factors], axis=-1)


def shifted(
    values: Float[np.ndarray, "*many k"], offset: Float[np.ndarray, "*many"]
) -> Float[np.ndarray, "*many k-5"]:
    """Values between nodes, by `offset` ∈ [0, 1) of a spacing to the right of the nodes 2, …, k − 4."""
    weights, count = lagrange(offset), values.shape[-1] - 5
    return sum(weights[..., j, None] * values[..., j : j + count] for j in range(6))


def draw_index(
    rng: np.random.Generator, log_f: Float[np.ndarray, "*many k"]
) -> Int[np.ndarray, "*many"]:
    r"""The index of a node, by its share of ∑ f.

    If the trapezoidal rule is exact, the sum over nodes u_i + o does not depend on the offset o. With an offset that is
    uniform over a spacing, the node u_i + o is therefore a draw of the continuous density.
    """
    sums = np.cumsum(np.exp(log_f - log_f.max(axis=-1, keepdims=True)), axis=-1)
    wanted = rng.uniform(size=log_f.shape[:-1]) * sums[..., -1]
    return np.minimum((sums < wanted[..., None]).sum(axis=-1), log_f.shape[-1] - 1)
