"""Draws that are corrected after the checks. They are kept apart from the answer's draws."""

import dataclasses
import math
import time
from collections.abc import Callable
from typing import Any, get_args

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from .._core.numerics import new_key
from ..diagnostics import Movement, chains, pareto_khat
from ..families import Empirical, WarpedGaussian
from ..results import (
    Code,
    Cost,
    Doubt,
    Fit,
    FitDiagnostics,
    Posterior,
    Status,
)
from ..targets import Evaluator, OutOfTime, Target
from ._amended import with_ending, without_ending
from ._arguments import is_of
from ._doubts import Findings, cannot_tell
from ._measured import Measured, measure, settled_chains, some_log_densities
from ._modes import Modes, misses_modes
from ._parameters import checked_parameters
from ._refined import Refined, Refinement
from ._trust import doubts_by_weights, doubts_of
from ._verdict import Answer

Draws = Float[np.ndarray, "n d"]

_IN_WORDS = {
    "hmc": "Hamiltonian Monte Carlo from the sampler's draws",
    "importance": "importance resampling",
}
_FEWEST = 1_000
"""The smallest number of chains."""
_JUDGED_ANEW = {
    *(Code.CHAINS_MOVE, Code.CHAINS_MOVE_AXES, Code.WEIGHTS_MOVE, Code.WEIGHTS_MOVE_AXES),
    *(Code.SHARES_WRONG, Code.CHAINS_TOO_SLOW, Code.MISSED_MODE, Code.BUDGET, Code.DIVERGED),
    Code.JOINT_SHAPE,
}
"""Doubts about the answer's draws that the corrected draws need not share."""


def require_refinement(refine: str) -> None:
    if not isinstance(refine, str) or refine not in get_args(Refinement):
        raise ValueError(f'refine must be "hmc" or "importance", got {refine!r}')


def checked_before(init: object, target: Target) -> Fit[FitDiagnostics] | None:
    """`init`, if it is a checked fit to this very target: then it needs no other answer.

    The chains of a warped Gaussian belong to its fit, and surrogates of some rows or of a score to
    theirs, so these are made again.
    """
    if not isinstance(init, Fit) or not isinstance(init.diagnostics, FitDiagnostics):
        return None
    is_checked = init.diagnostics.parameters is not None
    if not is_checked or isinstance(init.posterior.family, WarpedGaussian):
        return None
    is_whole = target.has_log_density and not target.is_minibatched
    return init if is_whole and is_of(init, target) else None


def refined_again(
    rng: np.random.Generator,
    evaluate: Evaluator,
    refine: Refinement,
    earlier: Fit[FitDiagnostics],
    began: float,
) -> Fit[FitDiagnostics]:
    """An earlier fit to the same target with corrected draws. Its answer and its verdict stay."""
    corrected = refined_or_why(_checked_and_refined, rng, evaluate, refine, earlier)
    cost = Cost(time.perf_counter() - began, 0, evaluate.count)
    return with_refined(dataclasses.replace(earlier, cost=cost), corrected)


def _checked_and_refined(
    rng: np.random.Generator,
    evaluate: Evaluator,
    refine: Refinement,
    earlier: Fit[FitDiagnostics],
) -> Refined | None:
    findings = _measured_again(rng, evaluate, earlier)
    answer = Answer(earlier.posterior, earlier.diagnostics.answer, findings)
    return refined(rng, evaluate, refine, answer, None)


def _measured_again(
    rng: np.random.Generator, evaluate: Evaluator, earlier: Fit[FitDiagnostics]
) -> Findings | None:
    """The weights and chains of an earlier fit, with its doubts; None if it cannot be checked."""
    try:
        found = measure(rng, evaluate, earlier.posterior)
    except (ValueError, np.linalg.LinAlgError):
        return None
    doubts = list(earlier.status.doubts)
    return Findings(earlier.diagnostics, doubts, found.weighed, found.moved, found.is_light)


def refined_or_why(correct: Callable[..., Refined | None], *arguments: Any) -> Refined | Doubt:
    """The corrected draws, or the reason why there are none."""
    try:
        found = correct(*arguments)
    except KeyboardInterrupt:  # the answer is there already
        return Code.NOT_REFINED.doubt(
            "there are no corrected draws: the refinement was stopped by the user"
        )
    return found or Code.NOT_REFINED.doubt(
        "there are no corrected draws: the draws of the answer could not be checked"
    )


def with_refined(fit: Fit[FitDiagnostics], corrected: Refined | Doubt) -> Fit[FitDiagnostics]:
    """The fit with corrected draws, and what is known of them among its diagnostics.

    Without corrected draws, its status says why.
    """
    fit = without_ending(fit, Code.NOT_REFINED)
    given = tuple(dict.fromkeys([*fit.diagnostics.given, "refine"]))
    made = dataclasses.replace(fit.diagnostics, refined=None, given=given)
    if isinstance(corrected, Doubt):
        return with_ending(dataclasses.replace(fit, refined=None, diagnostics=made), corrected)
    known = dataclasses.replace(made, refined=corrected.in_numbers())
    corrected = dataclasses.replace(corrected, made=made)
    return dataclasses.replace(fit, refined=corrected, diagnostics=known)


def refined(
    rng: np.random.Generator,
    evaluate: Evaluator,
    refine: Refinement,
    answer: Answer,
    modes: Modes | None,
) -> Refined | None:
    """The corrected draws, taken from the checks; None if the draws could not be checked.

    **Arguments:**

    - `modes`: the modes that the search found, which the draws must not miss.
    """
    posterior, findings = answer.posterior, answer.findings
    if findings is None or findings.weighed is None or findings.moved is None:
        return None
    evaluate.deadline = math.inf  # the budget is that of the answer
    by, num_transitions = _IN_WORDS[refine], 0
    if refine == "hmc":
        draws, effective, num_transitions = _settled(rng, evaluate, posterior, findings.moved)
    else:
        draws, effective = findings.weighed.resampled(new_key(rng))
        by = f"{by}, k-hat {pareto_khat(findings.weighed.log_weights):.2f}"
    stored = Empirical(jnp.asarray(draws, jnp.result_type(float)))
    of = Posterior.of(stored, evaluate.target)
    doubts, known = _judged(rng, evaluate, draws, of, posterior, findings, modes)
    passed = Status("converged", "the corrected draws passed all checks")
    status = Status.of_doubts("not trusted", doubts) if doubts else passed
    return Refined(by, of, effective, num_transitions, status, not doubts, known, refine)


def _settled(
    rng: np.random.Generator, evaluate: Evaluator, posterior: Posterior, moved: Movement
) -> tuple[Draws, float, int]:
    """States of the chains of the checks, or the ends of new ones if those were few and short.

    The second value is their effective number, the third the number of transitions of each chain.
    A warped Gaussian is fitted to the states of long chains, which are then all given.
    """
    if isinstance(posterior.family, WarpedGaussian):
        return moved.pooled, float(len(moved.settled)), moved.num_transitions
    draws = moved.settled
    if len(draws) < _FEWEST:
        moved = chains(rng, evaluate, posterior.host_draws(rng, _FEWEST))
        draws = moved.after
    return draws, float(len(draws)), moved.num_transitions


def _judged(
    rng: np.random.Generator,
    evaluate: Evaluator,
    draws: Draws,
    corrected: Posterior,
    posterior: Posterior,
    findings: Findings,
    modes: Modes | None,
) -> tuple[list[Doubt], FitDiagnostics]:
    """The doubts that remain about corrected draws, and their bounds.

    New chains start at them, as at the draws of every answer. Those of a warped Gaussian are states
    of chains that have settled: the bounds compare half of these chains with the other half.
    """
    anew = {one.value for one in _JUDGED_ANEW} - (
        {Code.MISSED_MODE.value} if modes is None else set()
    )
    kept = [one for one in findings.doubts if one.code not in anew and one.is_about_all]
    assert findings.weighed is not None
    assert findings.moved is not None
    has_settled = isinstance(posterior.family, WarpedGaussian)
    try:
        if has_settled:
            first, moved = findings.moved.halves()
            draws = first.pooled
        else:
            moved = _chains_from(rng, evaluate, draws)
        likely = None if has_settled else some_log_densities(evaluate, draws)
        weights = findings.weighed
        found = Measured(
            draws, weights, weights, moved, has_settled=has_settled, log_densities=likely
        )
        doubts = (doubts_by_weights if has_settled else doubts_of)(found)
    except (OutOfTime, KeyboardInterrupt, ValueError, np.linalg.LinAlgError):
        unknown = Code.NOT_CHECKED.doubt("the corrected draws were not checked")
        return [*kept, unknown], FitDiagnostics()
    memory = max(float(np.max(moved.memory)), findings.diagnostics.hmc_memory)
    more = (
        misses_modes(draws, modes, evaluate.target),
        cannot_tell(findings.weighed, found.is_light, memory),
    )
    weighed = findings.weighed if found.is_light else None
    known = FitDiagnostics(
        hmc_difference=None if has_settled else found.by_chains.summary(),
        hmc_memory=memory,
        parameters=checked_parameters(corrected, draws, moved, weighed, has_settled),
    )
    return [*kept, *doubts, *(one for one in more if one)], known


def _chains_from(rng: np.random.Generator, evaluate: Evaluator, draws: Draws) -> Movement:
    """Chains from some of the draws, which go on while they are slow or undecided."""
    number = max(_FEWEST, 3 * evaluate.dim)
    starts = draws[rng.permutation(len(draws))[:number]]
    return settled_chains(rng, evaluate, draws, chains(rng, evaluate, starts))
