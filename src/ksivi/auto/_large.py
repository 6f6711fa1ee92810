"""Answers in many dimensions: a Gaussian of low rank, or one with warped coordinates."""

import dataclasses
import math

import numpy as np

from .._core.mixtures import Mixture
from .._core.roots import DenseRoot, Root, diagonal_root
from .._core.warped import Warped, gaussian
from .._core.wording import apart
from ..diagnostics import Difference, Movement, chains, difference
from ..families import WarpedGaussian
from ..results import Code, Doubt, FitDiagnostics, Posterior
from ..targets import Evaluator, OutOfTime
from ._curvature import sharpened
from ._doubts import Findings
from ._gaussians import LOCAL_SD, Gaussians
from ._modes import are_separate, named
from ._patch import Look, low_rank_gaussian
from ._search import Found, distinct, first_starts, search
from ._secants import mean_field
from ._start import Start, candidates, why_no_start
from ._trust import examine
from ._verdict import Answer
from ._warp import fit_warped

_NUM_STARTS, _NUM_DRAWS = 4, 2_000
_MAX_GAP = 8.0
"""A Gaussian whose ELBO is further below the best, in nats, is no mode of its own."""
_MOST_DENSE = 2_000
"""The largest dimension of an answer with a full matrix."""
_NUM_CHAINS, _FEW_CHAINS = 256, 64
"""The number of chains, and that for targets whose scores are expensive."""
_TRANSITIONS = 40
_DOUBLINGS = 5
"""How often the chains go on, each time for twice as many transitions as the time before."""
_FORGOTTEN = 0.1
"""Largest rank correlation of the first and the last states of a run that has forgotten its start,
beyond what noise gives in the worst coordinate."""
_SLOW, _SLOWER = 0.5, 0.9
"""Chains stop if their memory is above the first number, and above the second times that of a run
half as long."""
_MOST_STATES = 16
"""States of each chain that are kept of a run."""


@dataclasses.dataclass(frozen=True)
class LargeStart:
    """What the search found in many dimensions: one Gaussian.

    Other modes are not looked for, and `start` has neither modes nor Gaussians. If another path led
    to a mode all the same, `missed` is the doubt that says so.
    """

    start: Start
    gaussian: Warped
    missed: Doubt | None = None


def find_large(rng: np.random.Generator, evaluate: Evaluator, init: Posterior | None) -> LargeStart:
    """The best Gaussian of low rank, from the ends of few paths and from points around them.

    An earlier posterior takes the place of the search.
    """
    if init is not None:
        return LargeStart(_start_of(evaluate.dim), _warped_of(rng, init))
    found = search(evaluate, first_starts(rng, _NUM_STARTS, evaluate.dim))
    mean, sds, elbo, _ = mean_field(rng, evaluate, *candidates(evaluate, found))
    best = low_rank_gaussian(rng, evaluate, mean, sds)
    if best is None:
        raise RuntimeError(why_no_start(evaluate, found))
    start = _start_of(evaluate.dim, best.elbo, _NUM_STARTS)
    missed = _missed(rng, evaluate, found, best, elbo)
    root = sharpened(rng, evaluate, best.fit.mean, best.fit.root())
    return LargeStart(start, gaussian(best.fit.mean, root), missed)


def _missed(
    rng: np.random.Generator, evaluate: Evaluator, found: Found, best: Look, least: float
) -> Doubt | None:
    """Doubts if another end of a path leads to a diagonal Gaussian elsewhere that is about as good.

    **Arguments:**

    - `least`: the ELBO of the best diagonal Gaussian.
    """
    for end in found.points[distinct(found.points, found.log_densities, evaluate)]:
        mean, _, elbo, _ = mean_field(rng, evaluate, end[None], np.array([LOCAL_SD]))
        is_rival = elbo > least - _MAX_GAP
        if is_rival and are_separate(evaluate.log_density, mean, best.fit.mean):
            place = named(evaluate.target, mean)
            return Code.SECOND_MODE.doubt(
                f"the search found a second mode, which has no draws: near {place}"
            )
    return None


def _start_of(dim: int, elbo: float = math.nan, num_paths: int = 0) -> Start:
    none = Gaussians(np.zeros((0, dim)), np.zeros((0, dim, 0)), np.zeros(0))
    return Start(none, Mixture(*none), elbo, math.nan, num_paths=num_paths)


def _warped_of(rng: np.random.Generator, init: Posterior) -> Warped:
    """The posterior, if it is a Gaussian or a warped one, else one that is fitted to its draws."""
    on_host = init.on_host()
    if isinstance(on_host, Warped):
        return on_host
    if isinstance(on_host, Mixture) and len(on_host.means) == 1:
        return gaussian(on_host.means[0], DenseRoot(on_host.roots[0]))
    draws = init.host_draws(rng, _NUM_DRAWS)
    return fit_warped(draws, diagonal_root(draws.std(axis=0)))


def large_answer(rng: np.random.Generator, evaluate: Evaluator, found: LargeStart) -> Answer:
    """A Gaussian, or a warped Gaussian that is fitted to the states of chains.

    Chains of HMC start from draws of the Gaussian. If they do not move them, it is the answer. Else
    they go on until they have settled, and a warped Gaussian is fitted to their states.
    """
    best, start = found.gaussian, found.start
    answer, doubt = _unchecked(evaluate, best), None
    try:
        draws = best.draws(rng, _num_chains(evaluate))[0]
        moved = chains(rng, evaluate, draws, _TRANSITIONS, best.linear())
        change = difference(best.draws(rng, _NUM_DRAWS)[0], moved.settled)
        if not (_has_forgotten(moved) and change.is_tiny(len(moved.settled))):
            root = best.linear()[1]
            moved, doubt = _settled(rng, evaluate, moved, root)
            warped = _fitted(moved, root, evaluate.dim <= _MOST_DENSE)
            answer = _unchecked(evaluate, warped)
        findings = examine(rng, evaluate, answer.posterior, start, moved=moved)
    except KeyboardInterrupt:
        return answer
    except OutOfTime:
        findings = Findings(
            FitDiagnostics(), [Code.NOT_CHECKED.doubt("the draws were not checked")]
        )
    doubts = [*findings.doubts, *(one for one in (doubt, found.missed) if one is not None)]
    return dataclasses.replace(answer, findings=dataclasses.replace(findings, doubts=doubts))


def _settled(
    rng: np.random.Generator, evaluate: Evaluator, moved: Movement, root: Root
) -> tuple[Movement, Doubt | None]:
    """The chains after they have settled, or a doubt.

    They go on, each time for twice as long, until a run forgets where it began and finds what the
    run before it found.
    """
    num_transitions, memory = _TRANSITIONS, np.inf
    for _ in range(_DOUBLINGS):
        frame = _fitted(moved, root).linear()
        later = chains(rng, evaluate, moved.after, num_transitions, frame)
        num_in_all = moved.num_transitions + later.num_transitions
        later = dataclasses.replace(later.thinned(_MOST_STATES), num_transitions=num_in_all)
        change = difference(moved.pooled, later.pooled)
        if _has_forgotten(later) and change.is_small():
            return later, None
        moved, before, memory = later, memory, float(np.max(later.memory))
        if memory > max(_SLOW, _SLOWER * before):  # twice as many transitions forget no more
            break
        num_transitions *= 2
    return moved, Code.CHAINS_NOT_SETTLED.doubt(
        f"chains of HMC have not settled: {_unsettled(moved, change)}"
    )


def _unsettled(moved: Movement, change: Difference) -> str:
    """What is over its limit in the last run."""
    large, (slow, limit) = change.too_large(), apart(_memory(moved), _most(moved))
    found = [f"the last run changed {large}"] if large else []
    return "; ".join(
        [*found, *([] if _has_forgotten(moved) else [f"memory {slow}, at most {limit}"])]
    )


def _fitted(moved: Movement, root: Root, is_dense: bool = False) -> Warped:
    return fit_warped(moved.pooled, root, is_dense, num_chains=len(moved.before))


def _has_forgotten(moved: Movement) -> bool:
    """Whether the ends of the chains hardly depend on where they began, in any coordinate.

    Nor may the log density there depend on that half a run before.
    """
    return _memory(moved) < _most(moved)


def _most(moved: Movement) -> float:
    """The largest memory of chains that have forgotten their start, with noise."""
    num_chains, dim = moved.before.shape
    return _FORGOTTEN + float((2 * np.log(2 * (dim + 1)) / num_chains) ** 0.5)


def _memory(moved: Movement) -> float:
    return max(float(np.max(moved.memory)), moved.energy_memory)


def _num_chains(evaluate: Evaluator) -> int:
    return _FEW_CHAINS if evaluate.is_expensive else _NUM_CHAINS


def _unchecked(evaluate: Evaluator, warped: Warped) -> Answer:
    is_plain = not np.any(warped.skew) and np.all(warped.tail == 1)
    name = "a Gaussian" if is_plain else "a warped Gaussian"
    return Answer(Posterior.of(WarpedGaussian.of(warped), evaluate.target), name, None)
