"""What a verdict means for each parameter, and what to do about it."""

import contextlib
import textwrap
from collections.abc import Iterable

import numpy as np
from jaxtyping import Bool, Int

from .._core.checks import describe
from ._advice import NextStep, about_refined, next_steps, to_know
from ._codes import Code, Doubt
from ._diagnostics import Diagnostics, FitDiagnostics, ParameterChecks
from ._numbers import Numbers
from ._posterior import Posterior
from ._status import Status
from ._table import NOT_EXAMINED, TAIL, Parameter, Shown, Table, known

_Reason = tuple[str, Bool[np.ndarray, " p"]]
"""What speaks against numbers, in a word or as a code, and against which."""

_NUM_DRAWS = 4_000
_MOST_OFF = 0.3
"""In a fit with doubts, a number whose mean or log width is surely off by more is not trusted."""
_MOST_NAMES = 6
_ABOUT_AXES = (Code.CHAINS_MOVE_AXES.value, Code.WEIGHTS_MOVE_AXES.value, Code.JOINT_SHAPE.value)
"""Doubts about how coordinates depend on each other. Alone, each has the right mean and width."""
_BEFORE = "All below is about the draws before the refinement."
_NOTHING = "The checks found nothing to act on."
_NO_CODES = "There is no code: an earlier version of ksivi, or another library, gave this status."


def numbers_of(posterior: Posterior) -> Numbers:
    return Numbers(posterior.layout, posterior.supports)


def table_of(
    posterior: Posterior, status: Status, trusted: bool, diagnostics: Diagnostics | None
) -> Table:
    """The table of a fit or of a record. Without checks the numbers come from 4,000 draws."""
    numbers = numbers_of(posterior)
    found = _stored(diagnostics) or _of_draws(posterior, numbers)
    reasons = _reasons(posterior, status, trusted, diagnostics)
    return Table(
        tuple(
            _row(name, *row, against=tuple(dict.fromkeys(word for word, of in reasons if of[i])))
            for i, (name, row) in enumerate(zip(numbers.names, found.rows(), strict=True))
        )
    )


def _row(name: str, *values: float, against: tuple[str, ...]) -> Parameter:
    """A row from the values of a `ParameterChecks`, in the order of its columns."""
    mean, sd, low, median, high, *bounds = values
    of_mean, of_width, of_tails = (Shown(*bounds[i : i + 2]) for i in (0, 2, 4))
    return Parameter(name, mean, sd, low, median, high, of_mean, of_width, of_tails, against)


def chosen(posterior: Posterior, names: str | Iterable[str]) -> Bool[np.ndarray, " p"]:
    """Which numbers these names mean. `theta` means all elements of theta."""
    numbers = numbers_of(posterior)
    places: dict[str, list[int]] = {}
    for i, both in enumerate(zip(numbers.parameters, numbers.names, strict=True)):
        for name in dict.fromkeys(both):
            places.setdefault(name, []).append(i)
    wanted = _listed(names)
    is_chosen = np.zeros(len(numbers.names), bool)
    for one in wanted or [names]:
        if not isinstance(one, str) or one not in places:
            raise ValueError(
                f"names must be one or more of {known(tuple(places))}, got {describe(one)}"
            )
        is_chosen[places[one]] = True
    return is_chosen


def explained(posterior: Posterior, status: Status, diagnostics: Diagnostics | None) -> str:
    """For each code: what was found in this fit, and what it is about; then the next step.

    Doubts with the same next step are together. Refined draws that are trusted come before all.
    """
    refined = about_refined(diagnostics)
    above = [textwrap.fill(f"{refined} {_BEFORE}".replace("`", ""), 96)] if refined else []
    if not status.doubts:
        rest = _NOTHING if status.kind == "converged" else _NO_CODES
        return "\n\n".join([*above, str(status), rest])
    parts = [_explained(posterior, one) for one in next_steps(status, diagnostics)]
    return "\n\n".join([*above, str(status.kind), *parts])


def about(posterior: Posterior, doubt: Doubt) -> str:
    """The parameters that a doubt is about, in words; empty for an ending."""
    if doubt.coordinates is None:
        return "all parameters" if doubt.is_about_all else ""
    numbers = numbers_of(posterior)
    touched = _touched(posterior, doubt)
    names = [name for name, is_it in zip(numbers.names, touched, strict=True) if is_it]
    more = f" and {len(names) - _MOST_NAMES:,} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(names[:_MOST_NAMES]) + more


def _explained(posterior: Posterior, step: NextStep) -> str:
    """The doubts of a next step, and then the step itself."""
    several = f"for {' and '.join(step.codes)}: " if len(step.codes) > 1 else ""
    parts = [_found(posterior, doubt) for doubt in step.doubts]
    last = f"{several}{step.remedy}" if step.remedy else ""
    return "\n".join([*parts, *_lines([("next", last)])])


def _found(posterior: Posterior, doubt: Doubt) -> str:
    code = Code.of(doubt.code)
    rows = [("found", doubt.sentence), ("about", about(posterior, doubt))]
    rows += [("note", to_know(code)), ("more", f"docs/glossary.md#{doubt.code}")] if code else []
    title = f"[{doubt.code}] {code.title if code else ''}".strip()
    return "\n".join([title, *_lines(rows)])


def _lines(rows: list[tuple[str, str]]) -> list[str]:
    return [_wrapped(label, text.replace("`", "")) for label, text in rows if text]


def _wrapped(label: str, text: str) -> str:
    start = f"  {label:<6} "
    return textwrap.fill(
        text, 96, initial_indent=start, subsequent_indent=" " * len(start), break_on_hyphens=False
    )


def trusted_numbers(
    posterior: Posterior, status: Status, trusted: bool, diagnostics: Diagnostics | None
) -> Bool[np.ndarray, " p"]:
    """Which numbers, each alone, have nothing against them. In a trusted fit these are all."""
    reasons = [of for _, of in _reasons(posterior, status, trusted, diagnostics)]
    return ~np.any([np.zeros(len(numbers_of(posterior).names), bool), *reasons], axis=0)


def _reasons(
    posterior: Posterior, status: Status, trusted: bool, diagnostics: Diagnostics | None
) -> list[_Reason]:
    """What speaks against numbers, each alone: codes, a tail, or a bound; nothing in a trusted fit."""
    everything = np.ones(len(numbers_of(posterior).names), bool)
    if trusted:
        return []
    alone = [one for one in status.doubts if not _is_about_axes(one)]
    about_all = [(one.code, everything) for one in alone if one.is_about_all]
    is_local = status.kind == "not trusted" and any(
        one.coordinates or _is_about_axes(one) for one in status.doubts
    )
    if not is_local:
        return about_all or [(str(status.kind), everything)]
    local = [reason for one in alone if one.coordinates for reason in _local(posterior, one)]
    found = [*local, *_of_axes(posterior, status), *about_all]
    is_doubted = np.any([~everything, *(of for _, of in found)], axis=0)
    stored = _stored(diagnostics)
    bounds = [] if stored is None else _off(stored)
    return found + [(word, of & ~is_doubted) for word, of in bounds]


def _local(posterior: Posterior, doubt: Doubt) -> list[_Reason]:
    """The numbers of a doubt about some coordinates; those where only a tail is off say so."""
    numbers, tails = numbers_of(posterior), np.asarray(doubt.by_tail, int)
    is_moved = numbers.touched(np.setdiff1d(np.asarray(doubt.coordinates, int), tails))
    return [(doubt.code, is_moved), (TAIL, numbers.touched(tails) & ~is_moved)]


def _of_axes(posterior: Posterior, status: Status) -> list[_Reason]:
    """The numbers that depend on several coordinates of a doubt about axes, such as an element of a
    simplex: how these depend on each other changes each of them."""
    numbers = numbers_of(posterior)
    about_axes = [(one.code, _axes(numbers, one)) for one in status.doubts if _is_about_axes(one)]
    return [(code, numbers.touched(axes, _fewest(axes))) for code, axes in about_axes]


def trusted_for(
    posterior: Posterior,
    status: Status,
    trusted: bool,
    diagnostics: Diagnostics | None,
    names: str | Iterable[str],
) -> bool:
    """Whether nothing speaks against these numbers, nor against how they depend on each other."""
    wanted = chosen(posterior, names)
    if not np.all(trusted_numbers(posterior, status, trusted, diagnostics)[wanted]):
        return False
    numbers = numbers_of(posterior)
    doubted = [_axes(numbers, one) for one in status.doubts if not trusted and _is_about_axes(one)]
    return all(len(numbers.shared(axes, wanted)) < _fewest(axes) for axes in doubted)


def _is_about_axes(doubt: Doubt) -> bool:
    return doubt.code in _ABOUT_AXES


def _axes(numbers: Numbers, doubt: Doubt) -> Int[np.ndarray, " k"]:
    """The coordinates of a doubt about axes."""
    everything = np.arange(numbers.dim)
    return everything if doubt.coordinates is None else np.asarray(doubt.coordinates, int)


def _fewest(axes: Int[np.ndarray, " k"]) -> int:
    """So many coordinates of a doubt about axes are wrong together: two, or the only one."""
    return min(2, len(axes))


def _touched(posterior: Posterior, doubt: Doubt) -> Bool[np.ndarray, " p"]:
    numbers = numbers_of(posterior)
    if doubt.coordinates is None:
        return np.ones(len(numbers.names), bool)
    return numbers.touched(np.asarray(doubt.coordinates, int))


def _off(found: ParameterChecks) -> list[_Reason]:
    """Numbers that are surely off on their own scale, or were not examined there."""
    pairs = {
        "mean off": (found.mean_off, found.mean_off_error),
        "width off": (found.width_off, found.width_off_error),
    }
    sure = {
        word: np.asarray(bound, float) - 2 * np.asarray(error, float)
        for word, (bound, error) in pairs.items()
    }
    is_unknown = np.any(np.isnan(list(sure.values())), axis=0)
    off = [(word, ~is_unknown & (least > _MOST_OFF)) for word, least in sure.items()]
    return [*off, (NOT_EXAMINED, is_unknown)]


def _stored(diagnostics: Diagnostics | None) -> ParameterChecks | None:
    return diagnostics.parameters if isinstance(diagnostics, FitDiagnostics) else None


def _listed(names: object) -> list[object]:
    """One name or several as a list. Anything else is one name, and a wrong one."""
    if isinstance(names, Iterable) and not isinstance(names, str):
        with contextlib.suppress(
            TypeError
        ):  # an array of no dimension is iterable by its type only
            return list(names)
    return [names]


def _of_draws(posterior: Posterior, numbers: Numbers) -> ParameterChecks:
    draws = posterior.host_draws(np.random.default_rng(0), _NUM_DRAWS)
    return ParameterChecks.of(numbers.names, numbers.of(draws))
