"""Measures of a posterior by name: numbers for the tables, and small arrays for the figures."""

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ksivi.comparison import redraw, sliced_distances
from ksivi.diagnostics import jacobian_lipschitz, jacobian_norms
from ksivi.families import SemiImplicit
from ksivi.metrics import boxed_wasserstein, kl_knn, log_kde, mmd
from ksivi.results import Posterior

from .cells import REDRAWS, ProblemSpec

HALF_WIDTHS = (5, 8, 10)

_SEED = 2**31 - 1
_NUM_DRAWS = 1_000
_MANY = 100_000
_SMOOTHED = 60_000
_GRID = 64
_DIGITS = 5

Numbers = dict[str, Any]
Blocks = Float[Array, "r n d"]


@dataclasses.dataclass(frozen=True)
class DrawSource:
    """A source of draws: ten blocks of 1,000 draws, or one large sample."""

    blocks: Callable[[Array], Blocks]
    many: Callable[[Array, int], Float[Array, "n d"]]


def measure(names: Sequence[str], problem: ProblemSpec, posterior: Posterior) -> Numbers:
    """These measures of one posterior."""
    source = DrawSource(lambda key: redraw(key, posterior.sample, REDRAWS), posterior.sample)
    return _measure(measuring_key(0), names, problem, source)


@functools.cache
def floors(names: tuple[str, ...], problem: ProblemSpec) -> Numbers:
    """The same measures of other draws of the truth.

    No method can be expected to be below these numbers.
    """
    others = DrawSource(
        lambda key: jnp.roll(problem.truth().blocks, 1, axis=0), problem.make().reference
    )
    return _measure(measuring_key(1), names, problem, others)


def _measure(key: Array, names: Sequence[str], problem: ProblemSpec, source: DrawSource) -> Numbers:
    numbers: Numbers = {}
    for name in names:
        numbers |= MEASURES[name](jax.random.fold_in(key, _INDEX[name]), problem, source)
    return {name: _round(value) for name, value in numbers.items()}


def measuring_key(purpose: int) -> Array:
    """The keys of measuring. They differ from the keys of training, which come from the seeds."""
    return jax.random.fold_in(jax.random.key(_SEED), purpose)


def _sliced(p: int, redraws: int, key: Array, problem: ProblemSpec, source: DrawSource) -> Numbers:
    """Sliced W_p: mean and sd over redraws of 1,000 draws."""
    draw_key, metric_key = jax.random.split(key)
    samples, blocks = source.blocks(draw_key)[:redraws], problem.truth().blocks[:redraws]
    return _over_redraws(f"sliced_w{p}", sliced_distances(metric_key, samples, blocks, p))


def _over_redraws(name: str, values: list[float]) -> Numbers:
    """Mean and sd; infinite if a value is not finite."""
    if not np.isfinite(values).all():
        return {name: math.inf, f"{name}_sd": math.inf}
    return {name: float(np.mean(values)), f"{name}_sd": float(np.std(values, ddof=1))}


def _kl(n: int, key: Array, problem: ProblemSpec, source: DrawSource) -> Numbers:
    """KL(q‖p) by nearest neighbours, with n draws of each."""
    q_key, p_key = jax.random.split(key)
    x = source.many(q_key, n)
    if not np.isfinite(np.asarray(x)).all():
        return {"kl": math.inf}
    return {"kl": kl_knn(x, problem.make().reference(p_key, n))}


def _kl_blocks(redraws: int, key: Array, problem: ProblemSpec, source: DrawSource) -> Numbers:
    """KL(q‖p) where the truth is a stored set of draws, of which resampling would make copies.

    Half of the blocks are compared with as many blocks of the truth. The floor compares blocks of
    the truth that have no draw in common.
    """
    half = redraws // 2
    x = source.blocks(key)[:half]
    y = problem.truth().blocks[half - 1 : 2 * half - 1]
    if not np.isfinite(np.asarray(x)).all():
        return {"kl": math.inf}
    return {"kl": kl_knn(*(part.reshape(-1, part.shape[-1]) for part in (x, y)))}


def _log_kde(n: int, key: Array, problem: ProblemSpec, source: DrawSource) -> Numbers:
    """Mean log density of 1,000 draws of the truth under a kernel estimate from n draws."""
    points = np.asarray(problem.truth().blocks[0])
    draws = np.asarray(source.many(key, n))
    if not np.isfinite(draws).all():
        return {"log_kde": math.inf}
    densities = log_kde(jnp.asarray(_others(draws, points)), jnp.asarray(points))
    return {"log_kde": float(np.mean(densities))}


def _others(draws: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Each draw once, without the points themselves: draws of a stored truth have copies.

    A copy of a point would give it all of its density.
    """
    known = {row.tobytes() for row in points}
    return np.stack(list({r.tobytes(): r for r in draws if r.tobytes() not in known}.values()))


def _mmd(redraws: int, key: Array, problem: ProblemSpec, source: DrawSource) -> Numbers:
    """The maximum mean discrepancy: mean over redraws of 1,000 draws."""
    pairs = zip(source.blocks(key)[:redraws], problem.truth().blocks[:redraws], strict=True)
    values = [mmd(x, y) if bool(jnp.isfinite(x).all()) else math.inf for x, y in pairs]
    return _over_redraws("mmd", values)


def _boxed(redraws: int, n: int, key: Array, problem: ProblemSpec, source: DrawSource) -> Numbers:
    """Optimal transport at squared cost inside boxes, n draws against 10 n of the truth: mean over
    redraws.

    Points outside a box do not count, so the share of draws inside is reported as well.
    """
    draw_key, truth_key = jax.random.split(key)
    truths = [problem.make().reference(k, 10 * n) for k in jax.random.split(truth_key, redraws)]
    samples = source.blocks(draw_key)[:redraws, :n]
    numbers: Numbers = {}
    for a in HALF_WIDTHS:
        inside = jnp.all(jnp.abs(samples) < a, axis=2)
        pairs = zip(samples, truths, inside, strict=True)
        costs = [boxed_wasserstein(x, y, a) if k.any() else math.inf for x, y, k in pairs]
        numbers |= _over_redraws(f"boxed_{a}", costs) | {f"inside_{a}": float(jnp.mean(inside))}
    return numbers


def _measures(
    redraws: int, many: int, boxed: int, suffix: str
) -> dict[str, Callable[[Array, ProblemSpec, DrawSource], Numbers]]:
    found = {
        "sliced-w2": functools.partial(_sliced, 2, redraws),
        "sliced-w1": functools.partial(_sliced, 1, redraws),
        "kl": functools.partial(_kl, many),
        "mmd": functools.partial(_mmd, redraws),
        "boxed": functools.partial(_boxed, redraws, boxed),
    }
    return {name + suffix: measure for name, measure in found.items()}


def _later(
    redraws: int, smoothed: int, suffix: str
) -> dict[str, Callable[[Array, ProblemSpec, DrawSource], Numbers]]:
    found = {
        "kl-blocks": functools.partial(_kl_blocks, redraws),
        "log-kde": functools.partial(_log_kde, smoothed),
    }
    return {name + suffix: measure for name, measure in found.items()}


_PAPERS = _measures(REDRAWS, _MANY, _NUM_DRAWS, "") | _measures(2, _NUM_DRAWS, 100, "-few")
_LATER = _later(REDRAWS, _SMOOTHED, "") | _later(2, _NUM_DRAWS, "-few")
MEASURES = _PAPERS | _LATER
# The key of a measure is made from its place here. New measures come last, so that the same
# posterior keeps its numbers.
_INDEX = {name: i for i, name in enumerate((*sorted(_PAPERS), *sorted(_LATER)))}


def _histogram(problem: ProblemSpec, snapshots: list[Posterior]) -> dict[str, Any]:
    """Counts of 100,000 draws on a grid that covers the truth."""
    truth = np.asarray(problem.truth().blocks).reshape(-1, 2)
    low, high = np.quantile(truth, [0.001, 0.999], axis=0)
    margin = 0.1 * (high - low)
    low, high = low - margin, high + margin
    draws = np.asarray(snapshots[-1].sample(measuring_key(2), _MANY))
    counts, _, _ = np.histogram2d(
        draws[:, 0], draws[:, 1], _GRID, list(zip(low, high, strict=True))
    )
    return {"low": rounded(low), "high": rounded(high), "counts": counts.astype(int).tolist()}


def _draws(problem: ProblemSpec, snapshots: list[Posterior]) -> dict[str, Any]:
    """1,000 draws of the first seven coordinates, and as many of the truth."""
    draws = snapshots[-1].sample(measuring_key(2), _NUM_DRAWS)
    return {
        "draws": rounded(draws[:, :7], 4),
        "truth": rounded(problem.truth().blocks[0][:, :7], 4),
    }


def _all_draws(problem: ProblemSpec, snapshots: list[Posterior]) -> dict[str, Any]:
    """1,000 draws, for measures between two cells."""
    return {"draws": rounded(snapshots[-1].sample(measuring_key(2), _NUM_DRAWS), 4)}


def _correlations(problem: ProblemSpec, snapshots: list[Posterior]) -> dict[str, Any]:
    """Pairwise correlation coefficients of the draws and of the truth."""
    draws = np.asarray(snapshots[-1].sample(measuring_key(2), _NUM_DRAWS))
    truth = np.asarray(problem.truth().blocks).reshape(-1, draws.shape[1])
    upper = np.triu_indices(draws.shape[1], 1)
    return {
        name: rounded(np.corrcoef(x.T)[upper], 4)
        for name, x in {"draws": draws, "truth": truth}.items()
    }


def _band(problem: ProblemSpec, snapshots: list[Posterior]) -> dict[str, Any]:
    """Mean and 95% interval of every coordinate, for the draws and for the truth."""
    draws = np.asarray(snapshots[-1].sample(measuring_key(2), _NUM_DRAWS))
    truth = np.asarray(problem.truth().blocks).reshape(-1, draws.shape[1])

    def band(x: np.ndarray) -> dict[str, Any]:
        low, high = np.quantile(x, [0.025, 0.975], axis=0)
        return {"mean": rounded(x.mean(axis=0)), "low": rounded(low), "high": rounded(high)}

    return {"draws": band(draws), "truth": band(truth)}


def _smoothness(problem: ProblemSpec, snapshots: list[Posterior]) -> dict[str, Any]:
    """For random z: ‖∂μ/∂φ‖ at every snapshot, and the Lipschitz estimate of ∂μ/∂φ between
    neighbouring snapshots."""
    means = [_family(posterior).conditional.mean for posterior in snapshots]
    z = _family(snapshots[0]).mixing.sample(measuring_key(2), 200)
    return {
        "z_norm": rounded(np.linalg.norm(z, axis=1)),
        "jacobian": [rounded(jacobian_norms(mean, z)) for mean in means],
        "lipschitz": [rounded(jacobian_lipschitz(a, b, z)) for a, b in itertools.pairwise(means)],
    }


def _family(posterior: Posterior) -> SemiImplicit:
    assert isinstance(posterior.family, SemiImplicit)
    return posterior.family


SHOWN: dict[str, Callable[[ProblemSpec, list[Posterior]], dict[str, Any]]] = {
    "histogram": _histogram,
    "draws": _draws,
    "all-draws": _all_draws,
    "correlations": _correlations,
    "band": _band,
    "smoothness": _smoothness,
}


def rounded(values: Any, digits: int = _DIGITS) -> Any:
    """Nested lists of numbers with this many significant digits; None for numbers that are not
    finite."""
    array = np.asarray(values, np.float64)
    return _round_list(array.tolist(), digits)


def _round_list(values: Any, digits: int) -> Any:
    if isinstance(values, list):
        return [_round_list(value, digits) for value in values]
    return _round(values, digits)


def _round(value: float, digits: int = _DIGITS) -> Any:
    return float(f"{value:.{digits}g}") if math.isfinite(value) else None
