"""The large posteriors of `benchmarks.big`, by name. A name ends with its sizes: "logistic-100000x20".

All data are simulated from a fixed seed. Every posterior is a `Target.from_data`, so that the rivals are given the same
prior, likelihood and rows.
"""

import dataclasses
import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

import ksivi

from . import big_chains as chains
from . import big_models as models
from . import big_truths as truths
from .big_groups import negative_binomial
from .big_names import Name, parse
from .big_rivals import rows_of
from .big_volatility import volatility
from .development import Case

Draws = Float[np.ndarray, "n d"]

BATCH = 1_000
PRIOR_SCALE = models.PRIOR_SCALE
_BLOCK = 2**18
_RAREST, _COMMONEST = 5e-6, 0.2
"""Shares of the 40 levels: the rarest has three of 581,012 rows, as the rarest soil of covtype."""


@dataclasses.dataclass(frozen=True)
class Problem(Case):
    """A case, and more ways to judge it.

    **Attributes:**

    - `easy`, `back`: the name of the same posterior in easier coordinates, and the map from its draws to these. With
        them there is no need of another truth.
    - `scores`: figures of draws where there is no truth, such as those of predictions.
    """

    easy: str = ""
    back: Callable[[Draws], Draws] | None = None
    scores: Callable[[Draws], dict[str, float]] | None = None


def problem(name: str, folder: Path | None = None) -> Problem:
    """Builds one posterior.

    **Arguments:**

    - `folder`: where rows on disk are kept; only "disk-…" needs it.
    """
    parsed = parse(name)
    if parsed.kind == "disk":
        return _on_disk(parsed, folder)
    return _MAKERS[parsed.kind](parsed)


def minibatched(rows: int) -> int | None:
    """The size of a minibatch; None for so few rows that it would have most of them."""
    return BATCH if rows > 4 * BATCH else None


def _logistic_problem(name: str, data, table: np.ndarray, exclusive=()) -> Problem:
    rows, dim = len(table), table.shape[1] - 1
    size = BATCH if isinstance(data, ksivi.Rows) else minibatched(rows)
    target = ksivi.Target.from_data(
        models.logistic_prior, models.logistic_likelihood, data, dim, batch_size=size
    )
    truth = functools.partial(truths.logistic, table, PRIOR_SCALE, exclusive)
    return Problem(name, target, truth)


def _logistic(name: Name) -> Problem:
    table = np.empty((name.sizes[0], name.sizes[1] + 1), np.float32)
    write_logistic(table)
    return _logistic_problem(name.text, table, table)


def write_logistic(table: np.ndarray) -> None:
    """Fills a table block by block: a column of ones, correlated columns, and y as the last one."""
    rng, dim = np.random.default_rng(0), table.shape[1] - 1
    beta = np.concatenate([[-0.5], np.linspace(-1, 1, dim - 1)]) / np.sqrt(dim / 4)
    for low in range(0, len(table), _BLOCK):
        block = table[low : low + _BLOCK]
        shared = rng.standard_normal((len(block), 1), np.float32)
        noise = rng.standard_normal((len(block), dim), np.float32)
        x = np.float32(0.6) * shared + np.float32(0.8) * noise  # pairs have correlation 0.36
        x[:, 0] = 1
        block[:, :-1], block[:, -1] = x, _labels(rng, x @ beta)


def _labels(rng: np.random.Generator, logits: np.ndarray) -> np.ndarray:
    return rng.uniform(size=len(logits)) * (1 + np.exp(-logits)) < 1


def _on_disk(name: Name, folder: Path | None) -> Problem:
    if folder is None:
        raise ValueError(f"{name.text} needs a folder for its rows: give --disk FOLDER")
    path = folder / f"{name.text}.npy"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        partial, shape = path.with_suffix(".part"), (name.sizes[0], name.sizes[1] + 1)
        table = np.lib.format.open_memmap(partial, mode="w+", dtype=np.float32, shape=shape)
        write_logistic(table)
        table.flush()
        partial.rename(path)  # a file of that name is whole
    table = np.load(path, mmap_mode="r")
    return _logistic_problem(name.text, ksivi.Rows(table), table)


def _covertype(name: Name) -> Problem:
    """54 columns as covtype has them: 10 that are correlated, and two sets of indicators, 4 and 40.

    Each set of indicators adds up to one, so that one direction is known from the prior alone.
    """
    (rows,), rng = name.sizes, np.random.default_rng(1)
    shares = np.geomspace(_COMMONEST, _RAREST, 40)
    soil = rng.choice(40, size=rows, p=shares / shares.sum())
    area = np.where(rng.uniform(size=rows) < 0.7, soil % 4, rng.integers(4, size=rows))
    factors = rng.normal(size=(rows, 3)) + np.stack([soil % 5 - 2, area - 1.5, 0 * area], axis=1)
    table = np.zeros((rows, 55), np.float32)
    table[:, :10] = factors @ rng.normal(size=(3, 10)) / 2 + 0.5 * rng.normal(size=(rows, 10))
    table[np.arange(rows), 10 + area] = 1
    table[np.arange(rows), 14 + soil] = 1
    beta = np.concatenate([0.4 * rng.normal(size=10), rng.normal(size=44)])
    table[:, -1] = _labels(rng, table[:, :-1] @ beta)
    return _logistic_problem(name.text, table, table, exclusive=range(14, 54))


def _negative_binomial(name: Name, centred: bool = False) -> Problem:
    rows, groups = name.sizes
    rng = np.random.default_rng(2)
    shares = rng.lognormal(0, 1, size=groups)
    group = rng.choice(groups, size=rows, p=shares / shares.sum())
    intercepts, slopes = rng.normal(0.5, 0.6, size=groups), rng.normal(0.3, 0.3, size=groups)
    x, shape = rng.normal(size=rows), 2.0
    mean = np.exp(intercepts[group] + slopes[group] * x)
    data = {
        "x": x.astype(np.float32),
        "group": group.astype(np.int32),
        "y": rng.poisson(mean * rng.gamma(shape, size=rows) / shape).astype(np.float32),
    }
    prior, likelihood = models.NEGATIVE_BINOMIAL[centred]
    dim, size = 5 + 2 * groups, minibatched(rows)
    target = ksivi.Target.from_data(prior, likelihood, data, dim, batch_size=size)
    if centred:  # most groups have many rows, so these are the easy coordinates
        truth = functools.partial(negative_binomial, data["x"], data["group"], data["y"], groups)
        return Problem(name.text, target, truth)
    easy = f"negative-binomial-centred-{rows}x{groups}"
    return Problem(
        name.text, target, truths.none, easy=easy, back=models.negative_binomial_noncentred
    )


def _poisson(name: Name, centred: bool = False) -> Problem:
    (groups,), rng = name.sizes, np.random.default_rng(3)
    effect = rng.normal(0.5, 0.8, size=(groups, 1))
    exposure = rng.lognormal(-0.5, 1.0, size=(groups, 1)) * rng.uniform(0.5, 1.5, size=(groups, 5))
    exposure = exposure.astype(np.float32)
    counts = rng.poisson(exposure * np.exp(effect))
    data = {"y": counts.astype(np.float32), "exposure": exposure}
    target = ksivi.Target.from_data(*models.POISSON[centred], data, groups + 2)
    if centred:
        easy = f"poisson-{groups}"
        return Problem(name.text, target, truths.none, easy=easy, back=models.poisson_centred)
    sums = counts.sum(axis=1).astype(float), exposure.sum(axis=1, dtype=float)
    return Problem(name.text, target, functools.partial(truths.poisson, *sums))


def _volatility(name: Name, centred: bool = False) -> Problem:
    (length,), rng = name.sizes, np.random.default_rng(4)
    z, y = rng.normal(size=length), rng.normal(size=length)
    h = models.log_variances(-1.0, 0.97, 1 - 0.97**2, 0.2, jnp.asarray(z, jnp.float32))
    data = (y * np.exp(0.5 * np.asarray(h))).astype(np.float32)
    target = ksivi.Target.from_data(*models.VOLATILITY[centred], data, length + 3)
    if centred:
        easy, back = f"volatility-{length}", models.volatility_centred
        return Problem(name.text, target, truths.none, easy=easy, back=back)
    return Problem(name.text, target, functools.partial(volatility, data))


def _horseshoe(name: Name) -> Problem:
    rows, columns = name.sizes
    rng = np.random.default_rng(5)
    x = rng.normal(size=(rows, columns)).astype(np.float32)
    beta = np.zeros(columns)
    beta[: min(10, columns)] = np.linspace(3, 0.3, 10)[:columns]
    y = (x @ beta + rng.normal(size=rows)).astype(np.float32)
    data, dim = {"x": x, "y": y}, 2 * columns + 2
    target = ksivi.Target.from_data(models.horseshoe_prior, models.horseshoe_likelihood, data, dim)
    truth = functools.partial(chains.horseshoe, x, y, models.TAU_SCALE, models.VARIANCE_PRIOR)
    return Problem(name.text, target, truth)


def _network(name: Name) -> Problem:
    """A network of the paper on all its rows. There is no truth, so its predictions are scored."""
    if not os.environ.get("KSIVI_DATA"):  # `bnn` would download them
        raise ValueError(f"{name.text} needs its data set: set KSIVI_DATA to a folder that has it")
    found = ksivi.problems.bnn(name.of, batch_size=None)
    size = minibatched(len(found.y_train))
    target = found.target if size is None else ksivi.problems.bnn(name.of, batch_size=size).target
    scores = lambda draws: found.test_scores(jnp.asarray(draws))  # noqa: E731
    return Problem(name.text, target, truths.none, scores=scores)


_MAKERS: dict[str, Callable[[Name], Problem]] = {
    "logistic": _logistic,
    "covertype": _covertype,
    "negative-binomial": _negative_binomial,
    "negative-binomial-centred": functools.partial(_negative_binomial, centred=True),
    "poisson": _poisson,
    "poisson-centred": functools.partial(_poisson, centred=True),
    "volatility": _volatility,
    "volatility-centred": functools.partial(_volatility, centred=True),
    "horseshoe": _horseshoe,
    "network": _network,
}


def all_rows(target: ksivi.Target) -> ksivi.Target:
    """The same posterior without minibatches, its rows in memory."""
    density: Any = target.density
    return ksivi.Target.from_data(
        density.log_prior, density.log_likelihood, rows_of(target), target.dim
    )
