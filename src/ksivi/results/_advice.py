"""What to do next about doubts: nothing that was done for this fit already."""

import dataclasses
from collections.abc import Callable

from ._codes import REPARAMETRISE, Code, Doubt
from ._diagnostics import Diagnostics, FitDiagnostics
from ._status import Status

_ENOUGH_STEPS = 20_000
"""A training that took so many steps is not advised again."""
_TRAINED = "a trained sampler"
_LABELS = "break label switching with an order of the components, for example with `ksivi.supports.ordered()`"
_EACH_MODE = "fit each mode with a prior that excludes the others, and compare `fit.diagnostics.log_evidence`"


@dataclasses.dataclass(frozen=True)
class NextStep:
    """What to do about some doubts, which need the same.

    **Attributes:**

    - `doubts`: in the order of the status.
    - `remedy`: sentences; empty for codes of a later version.
    """

    doubts: tuple[Doubt, ...]
    remedy: str

    @property
    def codes(self) -> tuple[str, ...]:
        """The codes of these doubts, each once."""
        return tuple(dict.fromkeys(one.code for one in self.doubts))

    @property
    def text(self) -> str:
        """What to know about each code, and then what to do."""
        known = [to_know(code) for code in map(Code.of, self.codes) if code is not None]
        return " ".join(text for text in (*known, self.remedy) if text)


def next_steps(status: Status, diagnostics: Diagnostics | None) -> list[NextStep]:
    """The doubts and endings of a status. Those with the same remedy are together."""
    groups: dict[str, list[Doubt]] = {}
    for doubt in status.doubts:
        code = Code.of(doubt.code)
        remedy = "" if code is None else _remedy(code, diagnostics)
        groups.setdefault(remedy, []).append(doubt)
    return [NextStep(tuple(doubts), remedy) for remedy, doubts in groups.items()]


def to_know(code: Code) -> str:
    """What to know about a code before its remedies."""
    return code.next_step if code.remedies else ""


def about_refined(diagnostics: Diagnostics | None) -> str:
    """What comes before all doubts: the verdict on refined draws; empty if there are none."""
    refined = diagnostics.refined if isinstance(diagnostics, FitDiagnostics) else None
    if refined is None:
        return ""
    if refined.trusted:
        return "The refined draws are trusted: use `fit.refined.posterior`."
    return "The refined draws are not trusted either: `fit.refined.explain()` says why."


def _remedy(code: Code, diagnostics: Diagnostics | None) -> str:
    """The first remedies of a code that were not tried yet, at most three."""
    if not code.remedies:
        return code.next_step
    made = diagnostics if isinstance(diagnostics, FitDiagnostics) else FitDiagnostics()
    known = (_REMEDIES[name](made) for name in code.remedies)
    left = [text for text in known if text is not None]
    first = _capitalised(", or ".join(left[:2]))
    last = f" If the doubt returns, {left[2]}." if len(left) > 2 else ""
    return f"{first}.{last}"


def _go_on(made: FitDiagnostics) -> str | None:
    """More training, or a new start from this answer; None if that was done."""
    is_trained = made.answer == _TRAINED
    if made.num_steps >= _ENOUGH_STEPS or (not is_trained and "again" in made.given):
        return None
    steps = f", num_steps={_ENOUGH_STEPS:_}" if is_trained else ""
    return f"go on with `fit = ksivi.fit(key, target, init=fit{steps})`"


def _train(made: FitDiagnostics) -> str | None:
    if made.num_steps >= _ENOUGH_STEPS:
        return None
    call = f'ksivi.fit(key, target, at_least="sampler", num_steps={_ENOUGH_STEPS:_})'
    return f"train a sampler, `fit = {call}`"


def _refine(refine: str, what: str) -> Callable[[FitDiagnostics], str | None]:
    def remedy(made: FitDiagnostics) -> str | None:
        if made.refined is not None and made.refined.refine == refine:
            return None
        call = f'`fit = ksivi.fit(key, target, init=fit, refine="{refine}")`'
        return f"use {what}, {call}, and then `fit.refined.posterior` if `fit.refined.trusted`"

    return remedy


def _order_modes(made: FitDiagnostics) -> str | None:
    if made.num_modes < 2:
        return None
    several = (
        f"chains, also those of NUTS, do not go from one of the {made.num_modes} modes to another"
    )
    return f"{several}, so first {_LABELS}"


def _nuts(made: FitDiagnostics) -> str | None:
    """Chains of NUTS stay in their mode."""
    several = made.num_modes > 1
    call = "`draws = ksivi.reference_draws(key, target)`"
    return None if several else f"compare with long chains of NUTS, {call}"


def _always(text: str) -> Callable[[FitDiagnostics], str | None]:
    return lambda _: text


def _capitalised(text: str) -> str:
    return text[0].upper() + text[1:]


_REMEDIES: dict[str, Callable[[FitDiagnostics], str | None]] = {
    "go on": _go_on,
    "train": _train,
    "states": _refine("hmc", "the states of the chains"),
    "weights": _refine("importance", "draws that are resampled by the weights"),
    "reparametrise": _always(REPARAMETRISE),
    "other key": _always("fit again with another key and without `init=`"),
    "nuts": _nuts,
    "order": _always(f"if the modes are copies of each other, {_LABELS}"),
    "order modes": _order_modes,
    "each mode": _always(_EACH_MODE),
    "each of the modes": lambda made: _EACH_MODE if made.num_modes > 1 else None,
}
