"""The conditioned diffusion: a path, given noisy observations."""

from typing import Literal

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Scalar

from .._core.checks import as_choice, as_count, as_numbers, as_samples, as_seed
from ..targets import Target
from ._problem import AbstractProblem, near_origin, resample_truth
from ._torch_normals import TorchNormals

_EVERY = 5
_NOISE = 0.1
_AUTHORS_SEED = 2022

Drift = Literal["paper", "released"]


class Diffusion(AbstractProblem):
    """A discretised path x of dx = 10 x (1 − x²) dt + dw on [0, 1], x₀ = 0, observed at every 5th
    step."""

    name: str = eqx.field(static=True)
    target: Target
    observations: Float[Array, " m"]
    draws: Float[Array, "k d"] | None

    def reference(self, key, n):
        return resample_truth(key, n, self, self.draws)

    def start(self, key, n):
        # Far away, the coarse time steps overshoot, and chains get stuck in modes without mass.
        return near_origin(key, n, self.target.dim, 0.1)


class PathDensity(eqx.Module):
    r"""log p(x, y) = −Σₜ (xₜ₊₁ − xₜ − b(xₜ) Δt)² / (2 Δt) − Σₖ (yₖ − x_{5k})² / (2 · 0.1²), with Δt
    = 1/d.

    The observations are stored at their time steps, with a precision of 0 at all others. This
    elementwise code costs half as much to differentiate twice as strided slices do.
    """

    observed: Float[Array, " d"]
    precision: Float[Array, " d"]
    drift: Drift = eqx.field(static=True)

    def __init__(self, observations: Float[np.ndarray, " m"], dim: int, drift: Drift):
        slots = np.arange(_EVERY - 1, dim, _EVERY)
        self.observed = jnp.zeros(dim).at[slots].set(observations)
        self.precision = jnp.zeros(dim).at[slots].set(_NOISE**-2)
        self.drift = drift

    def __call__(self, x: Float[Array, " d"]) -> Scalar:
        dt = 1 / len(x)
        before = jnp.pad(x[:-1], (1, 0))
        steps = x - before - _drift(before, self.drift) * dt
        return -jnp.sum(steps**2 / dt + self.precision * (self.observed - x) ** 2) / 2


def diffusion(
    dim: int = 100,
    *,
    observations: Float[Array, " m"] | Literal["authors"] | None = None,
    drift: Drift = "paper",
    seed: int = 0,
    reference: Float[Array, "k d"] | None = None,
) -> Diffusion:
    """The paper's conditioned diffusion, with Euler-Maruyama steps of length 1/dim.

    **Arguments:**

    - `dim`: the number of time steps.
    - `observations`: one for every 5th step, or "authors" for the observations of the paper's runs.
        Default: simulated with `seed`.
    - `drift`: "paper" for 10 x (1 − x²), or "released" for the same divided by 1 + x², as in the
        released code.
    - `reference`: posterior draws to compare with. Default: NUTS makes them at the first call, and
        caches them on disk.

    ```python
    problem = ksivi.problems.diffusion(dim=50)
    problem.target.score(jnp.zeros(50))
    ```
    """
    dim = as_count(dim, "dim", minimum=_EVERY)
    as_choice(drift, "drift", ("paper", "released"))
    y = _as_observations(observations, dim, seed)
    if not np.all(np.isfinite(y)):
        raise ValueError(
            f"observations must be finite, got {int(np.sum(~np.isfinite(y)))} NaN or infinite of {y.size}"
        )
    density = PathDensity(y, dim, drift)
    draws = None if reference is None else as_samples(reference, "reference", dim)
    return Diffusion("diffusion", Target(density, dim), jnp.asarray(y), draws)


def simulate(dim: int, seed: int) -> Float[np.ndarray, " m"]:
    """Noisy observations of a path simulated with the paper's drift."""
    rng = np.random.default_rng(as_seed(seed))
    return _observe(rng.normal(size=dim), rng.normal(size=dim // _EVERY))


def authors_observations(dim: int) -> Float[np.ndarray, " m"]:
    """The observations that the authors' code simulates, with the random numbers of PyTorch."""
    normals = TorchNormals(_AUTHORS_SEED)
    return _observe(normals.draw(dim), normals.draw(dim // _EVERY))


def _as_observations(observations, dim: int, seed: int) -> Float[np.ndarray, " m"]:
    if observations is None:
        return simulate(dim, seed)
    if isinstance(observations, str):
        as_choice(observations, "observations", ("authors",))
        return authors_observations(dim)
    return as_numbers(observations, "observations", (dim // _EVERY,))


def _observe(
    increments: Float[np.ndarray, " d"], noise: Float[np.ndarray, " m"]
) -> Float[np.ndarray, " m"]:
    """Euler-Maruyama with standard normal `increments`, observed with `noise` at every 5th step."""
    dim = len(increments)
    path = np.zeros(dim + 1)
    for t, increment in enumerate(increments / np.sqrt(dim)):
        path[t + 1] = path[t] + _drift(path[t], "paper") / dim + increment
    return path[_EVERY::_EVERY] + _NOISE * noise


def _drift(x, drift: Drift):
    b = 10 * x * (1 - x**2)
    return b if drift == "paper" else b / (1 + x**2)
