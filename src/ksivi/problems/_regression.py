"""The data of a regression: reading, splitting into training, development and test rows, and
normalising."""

import math
import os
from pathlib import Path
from typing import Literal, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .._core.checks import as_numpy_samples, as_seed
from ._data import locate

Split = Literal["released"] | int

_RELEASED_SEED = 42
_MOST_DEV = 500
_FEWEST_ROWS = 10


class Part(NamedTuple):
    """Some rows: inputs and outputs in original units."""

    x: Float[np.ndarray, "n p"]
    y: Float[np.ndarray, " n"]


class Units(eqx.Module):
    """Means and standard deviations of the training rows: normalised = (original − mean) / sd."""

    x_mean: Float[Array, " p"]
    x_sd: Float[Array, " p"]
    y_mean: Float[Array, ""]
    y_sd: Float[Array, ""]

    def __init__(self, rows: Part):
        self.x_mean, self.x_sd = _mean_and_sd(rows.x)
        self.y_mean, self.y_sd = _mean_and_sd(rows.y)

    def inputs(self, x: Float[Array, "n p"]) -> Float[Array, "n p"]:
        """Normalised inputs."""
        return (x - self.x_mean[None]) / self.x_sd[None]

    def outputs(self, y: Float[Array, " n"]) -> Float[Array, " n"]:
        """Normalised outputs."""
        return (y - self.y_mean) / self.y_sd

    def original_outputs(self, y: Float[Array, " n"]) -> Float[Array, " n"]:
        """Normalised outputs, converted back to original units."""
        return y * self.y_sd + self.y_mean


def split_rows(rows: Float[np.ndarray, "n c"], split: Split) -> tuple[Part, Part, Part]:
    """Training, development and test rows. 10% are test rows; a tenth of the rest, at most 500, are
    development rows.

    **Arguments:**

    - `rows`: inputs, and the target in the last column.
    - `split`: "released" for the split of the released code, which is scikit-learn's
        `train_test_split(test_size=0.1, random_state=42)`, or the seed of another random split.
    """
    order = _permutation(len(rows), split)
    num_test = math.ceil(0.1 * len(rows))
    test, train = order[:num_test], order[num_test:]
    num_dev = min(round(0.1 * len(train)), _MOST_DEV)
    parts = (train[:-num_dev], train[-num_dev:], test)
    train_part, dev_part, test_part = (Part(rows[part, :-1], rows[part, -1]) for part in parts)
    return train_part, dev_part, test_part


def read_rows(
    source: str | Float[Array, "n c"], path: str | os.PathLike | None
) -> Float[np.ndarray, "n c"]:
    """The rows of a named data set, of a file, or of an array. "friedman" is simulated."""
    if path is not None:
        rows = _load(path)
    elif isinstance(source, str):
        rows = (
            friedman(seed=0, n=500) if source == "friedman" else _load(locate(f"uci/{source}.txt"))
        )
    else:
        rows = np.asarray(source)
    rows = as_numpy_samples(rows, "rows").astype(np.float64)
    if len(rows) < _FEWEST_ROWS or rows.shape[1] < 2:
        raise ValueError(
            f"rows must be at least {_FEWEST_ROWS}, of inputs and a target, got shape {rows.shape}"
        )
    return rows


def friedman(seed: int, n: int) -> Float[np.ndarray, "n 6"]:
    """Simulated rows: y = 10 sin(π x₁ x₂) + 20 (x₃ − ½)² + 10 x₄ + 5 x₅ + N(0, 1), x uniform
    (Friedman, 1991)."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(size=(n, 5))
    y = (
        10 * np.sin(np.pi * x[:, 0] * x[:, 1])
        + 20 * (x[:, 2] - 0.5) ** 2
        + 10 * x[:, 3]
        + 5 * x[:, 4]
    )
    return np.concatenate([x, (y + rng.normal(size=n))[:, None]], axis=1)


def _load(path: str | os.PathLike) -> np.ndarray:
    if not isinstance(path, str | os.PathLike) or not Path(path).is_file():
        raise ValueError(
            f"data must be a file of columns of numbers, target last, and there is no file {path}"
        )
    try:
        return np.loadtxt(path, ndmin=2)
    except ValueError as error:
        raise ValueError(
            f"data must be a file of columns of numbers, target last, got {path}: {error}"
        ) from error


def _permutation(n: int, split: Split) -> Int[np.ndarray, " n"]:
    if isinstance(split, str):
        if split != "released":
            raise ValueError(f"split must be 'released' or a whole number, got {split!r}")
        return np.random.RandomState(_RELEASED_SEED).permutation(n)
    return np.random.default_rng(as_seed(split, "split")).permutation(n)


def _mean_and_sd(values: np.ndarray) -> tuple[Array, Array]:
    sd = values.std(axis=0)
    as_array = lambda a: jnp.asarray(a, jnp.result_type(float))  # noqa: E731
    return as_array(values.mean(axis=0)), as_array(np.where(sd == 0, 1.0, sd))
