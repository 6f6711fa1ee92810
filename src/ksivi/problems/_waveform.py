"""Bayesian logistic regression on the waveform data."""

import os
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Scalar

from .._core.checks import as_samples, as_seed
from ..targets import Target
from ._problem import AbstractProblem, near_origin, resample_truth

_PRECISION = 0.01
_NUM_TRAIN = 400


class Waveform(AbstractProblem):
    """β ~ N(0, I/0.01), yᵢ ~ Bernoulli(sigmoid(βᵀx̄ᵢ)), x̄ = (1, x): 22 coordinates, 400
    observations."""

    name: str = eqx.field(static=True)
    target: Target
    x_test: Float[Array, "m 22"]
    y_test: Float[Array, " m"]
    draws: Float[Array, "k 22"] | None

    def reference(self, key, n):
        return resample_truth(key, n, self, self.draws)

    def start(self, key, n):
        return near_origin(key, n, 22)


def waveform(
    data: str | os.PathLike | None = None,
    *,
    seed: int = 0,
    reference: Float[Array, "k 22"] | None = None,
) -> Waveform:
    """The paper's logistic regression: class 1 of the waveform data against classes 0 and 2.

    **Arguments:**

    - `data`: the authors' `waveform.mat`, which has their split, or the UCI file `waveform.data`,
        whose first 400 rows become the training rows. Default: 5,000 rows, simulated like those of
        the UCI file.
    - `seed`: the seed of the simulated rows.
    - `reference`: posterior draws to compare with. Default: NUTS makes them at the first call, and
        caches them on disk.

    ```python
    problem = ksivi.problems.waveform()
    problem.target.log_density(jnp.zeros(22))
    ```
    """
    x_train, y_train, x_test, y_test = _load(data) if data is not None else _split(*_generate(seed))
    target = Target.from_data(
        log_prior, log_likelihood, {"x": x_train, "y": y_train.ravel()}, dim=22
    )
    draws = None if reference is None else as_samples(reference, "reference", 22)
    return Waveform("waveform", target, jnp.asarray(x_test), jnp.asarray(y_test.ravel()), draws)


def log_prior(beta: Float[Array, "22"]) -> Scalar:
    """log N(β; 0, I/0.01) without its constant."""
    return -0.5 * _PRECISION * jnp.sum(beta**2)


def log_likelihood(beta: Float[Array, "22"], batch: dict[str, Array]) -> Scalar:
    """Σᵢ yᵢ βᵀxᵢ − log(1 + exp βᵀxᵢ)."""
    logits = batch["x"] @ beta
    return jnp.sum(batch["y"] * logits - jax.nn.softplus(logits))


def _generate(seed: int, n: int = 5_000) -> tuple[Float[np.ndarray, "n 21"], Int[np.ndarray, " n"]]:
    """Rows mix two of three triangular waves with a uniform weight, plus N(0, 1) noise (Breiman et
    al., 1984)."""
    rng = np.random.default_rng(as_seed(seed))
    grid, peaks = np.arange(21), np.array([6, 14, 10])
    waves = np.maximum(0, 6 - np.abs(grid[None, :] - peaks[:, None]))
    label = rng.integers(0, 3, n)
    first, second = np.array([[0, 1], [0, 2], [1, 2]])[label].T
    u = rng.uniform(size=(n, 1))
    return u * waves[first] + (1 - u) * waves[second] + rng.normal(size=(n, 21)), label


def _split(features: np.ndarray, label: np.ndarray) -> tuple[np.ndarray, ...]:
    standard = (features - features.mean(axis=0)) / features.std(axis=0, ddof=1)
    x = np.concatenate([np.ones((len(standard), 1)), standard], axis=1)
    y = (label != 1).astype(float)
    return x[:_NUM_TRAIN], y[:_NUM_TRAIN], x[_NUM_TRAIN:], y[_NUM_TRAIN:]


def _load(path: str | os.PathLike) -> tuple[np.ndarray, ...]:
    if not isinstance(path, str | os.PathLike) or not Path(path).is_file():
        raise ValueError(
            f"data must be the file waveform.data or waveform.mat, and there is no file {path}"
        )
    path = Path(path)
    if path.suffix == ".mat":
        from scipy.io import loadmat
        from scipy.io.matlab import MatReadError

        try:
            fields = loadmat(path)
            return tuple(
                np.asarray(fields[name], float)
                for name in ("X_train", "y_train", "X_test", "y_test")
            )
        except (KeyError, ValueError, TypeError, MatReadError) as error:
            raise ValueError(
                f"data must be the authors' waveform.mat, got {path}: {error!r}"
            ) from error
    try:
        rows = np.loadtxt(path, delimiter=",", ndmin=2)
    except ValueError as error:
        raise ValueError(
            f"data must have rows of 21 features and a class, got {path}: {error}"
        ) from error
    if rows.shape[1] != 22:
        raise ValueError(
            f"data must have rows of 21 features and a class, got {path} with {rows.shape[1]} columns"
        )
    return _split(rows[:, :21], rows[:, 21].astype(int))
