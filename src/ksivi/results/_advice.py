"""What to do next about a doubt: nothing that was done for this fit already."""

from collections.abc import Callable

from ._codes import Code
from ._diagnostics import Diagnostics, FitDiagnostics

_REFINED_BY = {"hmc": "Hamiltonian", "importance": "importance"}


def advice(code: Code, diagnostics: Diagnostics | None) -> str:
    """The next step of a code, for a fit with these diagnostics.

    Its first remedies that were not tried yet are named, at most three.
    """
    made = diagnostics if isinstance(diagnostics, FitDiagnostics) else FitDiagnostics()
    known = (_REMEDIES[name](made) for name in ("refined", *code.remedies))
    left = [text for text in known if text is not None]
    if not code.remedies:
        return code.next_step
    first = _capitalised(", or ".join(left[:2]))
    last = f" If the doubt returns, {left[2]}." if len(left) > 2 else ""
    return f"{code.next_step} {first}.{last}"


def _go_on(made: FitDiagnostics) -> str | None:
    """More training, or a new start from this answer; None if that was done."""
    if {"init", "num_steps"} & set(made.given):
        return None
    steps = ", num_steps=20_000" if made.answer == "a trained sampler" else ""
    return f"go on with `ksivi.fit(key, target, init=fit{steps})`"


def _train(made: FitDiagnostics) -> str | None:
    if "num_steps" in made.given:
        return None
    return 'train a sampler, `ksivi.fit(key, target, at_least="sampler", num_steps=20_000)`'


def _refine(refine: str, what: str) -> Callable[[FitDiagnostics], str | None]:
    def remedy(made: FitDiagnostics) -> str | None:
        if made.refined is not None and _REFINED_BY[refine] in made.refined.by:
            return None
        call = f'`ksivi.fit(key, target, init=fit, refine="{refine}")`'
        return f"use {what}, {call}, and then `fit.refined.posterior`"

    return remedy


def _refined(made: FitDiagnostics) -> str | None:
    is_good = made.refined is not None and made.refined.trusted
    return "use `fit.refined.posterior`, which passed the checks" if is_good else None


def _always(text: str) -> Callable[[FitDiagnostics], str | None]:
    return lambda _: text


def _capitalised(text: str) -> str:
    return text[0].upper() + text[1:]


_REMEDIES: dict[str, Callable[[FitDiagnostics], str | None]] = {
    "refined": _refined,
    "go on": _go_on,
    "train": _train,
    "states": _refine("hmc", "the states of the chains"),
    "weights": _refine("importance", "draws that are resampled by the weights"),
    "reparametrise": _always(
        "reparametrise: write hierarchical models in their non-centred form, and standardise the data"
    ),
    "other key": _always("fit again with another key and without `init=`"),
    "nuts": _always("run long chains of NUTS, `ksivi.reference_draws(key, target)`"),
}
