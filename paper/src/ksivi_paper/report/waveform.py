"""The section on Bayesian logistic regression with the waveform data."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from ksivi.metrics import kl_knn

from .. import published
from ..experiments import STEP_SIZES, TRAINED
from ..figures import pairs, scatters, style
from ..methods import ROBUST
from . import text
from .index import Entry, RecordIndex
from .page import Page

_BY_RATE = dict(zip(STEP_SIZES, range(len(STEP_SIZES)), strict=True))
_MARGINS = (2, 3, 4)
_MORE_MARGINS = (1, 2, 3, 4, 5, 6)


def entry(cell: str, field: str = "sliced_w2", step: int | None = None) -> Entry:
    """A number of the main table.

    The paper has distances after 20,000 steps at the learning rate 0.001.
    """
    if cell == ROBUST:
        return Entry("robust", "waveform", field, step=step)
    known = field == "sliced_w2" and cell in ("ksivi", "sivi-sm") and step is None
    return Entry(
        "waveform", cell, field, _published(cell, 1e-3, 20_000) if known else None, step=step
    )


def _published(method: str, rate: float, step: int) -> float:
    return published.STEP_SIZES[method, step][_BY_RATE[rate]]


def section(page: Page) -> None:
    page.say("## Bayesian logistic regression on waveform")
    _table(page)
    _step_sizes(page)
    _corners(page, "waveform-pairs", _MARGINS, columns=3, height=3.2)
    _corners(page, "waveform-more-pairs", _MORE_MARGINS, columns=2, height=4.8)
    _correlations(page)
    _chains(page)


def _table(page: Page) -> None:
    names = {
        "ksivi": "KSIVI",
        ROBUST: style.label(ROBUST),
        "ksivi-averaged": "KSIVI, averaged parameters",
        "ksivi-40k": "KSIVI, longer",
    }
    names |= {method: style.label(method) for method in TRAINED[1:]}
    rows = []
    for cell, name in names.items():
        steps = page.index.steps(*_place(cell))
        rows += [_row(page, cell, name, step) for step in steps] or [_row(page, cell, name, None)]
    page.say(
        "Sliced distances to draws of NUTS: means over ten redraws of 1,000 draws. The paper does "
        "not say which p its sliced Wasserstein distance has. We show both, and put W₂ beside the "
        "paper's numbers. Averaged parameters come from an exponential moving average with decay "
        "0.999."
    )
    page.table(
        ("method", "steps", "sliced W₂", "paper", "sliced W₁", "runs"),
        [*rows, _floors(page, list(names))],
    )


def _place(cell: str) -> tuple[str, str]:
    found = entry(cell)
    return found.experiment, found.cell


def _row(page: Page, cell: str, name: str, step: int | None) -> list[str]:
    last = step is None or step == page.index.steps(*_place(cell))[-1]
    found = entry(cell) if last else entry(cell, step=step)
    w1 = entry(cell, "sliced_w1", step)
    steps = text.NOTHING if step is None else f"{step:,}"
    return [name, steps, *page.beside(found), page.ours(w1), page.count(found)]


def _floors(page: Page, cells: list[str]) -> list[str]:
    w2, w1 = (
        page.floor(entry(cell, field) for cell in cells) for field in ("sliced_w2", "sliced_w1")
    )
    return ["*truth against itself*", text.NOTHING, w2, text.NOTHING, w1, text.NOTHING]


def _step_sizes(page: Page) -> None:
    halves = [(method, half) for method in ("ksivi", "sivi-sm") for half in (1, 2)]
    entries = {
        rate: [_at_rate(page.index, method, rate, half) for method, half in halves]
        for rate in STEP_SIZES
    }
    rows = [
        [f"{rate:.5f}".rstrip("0"), *(part for one in row for part in page.beside(one))]
        for rate, row in entries.items()
    ]
    everything = [one for row in entries.values() for one in row]
    page.say(
        f"Sliced W₂ by learning rate and number of steps, over {page.runs(everything)} "
        f"(the paper's table of step sizes; floor {page.floor(everything)})."
    )
    names = [f"{style.label(method)}, {10 * half}k" for method, half in halves]
    page.table(("learning rate", *text.with_paper(names)), rows)


def _at_rate(index: RecordIndex, method: str, rate: float, half: int) -> Entry:
    """After half of the steps or all of them. A smoke run has fewer steps."""
    cell = f"step-sizes-{method}"
    steps = index.steps("waveform", cell)
    step = 10_000 * half if not steps or 10_000 in steps else (steps[-1] * half) // 2
    return Entry(
        "waveform", cell, paper=_published(method, rate, 10_000 * half), step=step, rate=rate
    )


def _corners(page: Page, name: str, margins: tuple[int, ...], columns: int, height: float) -> None:
    found = [(method, page.index.shown("waveform", method, "draws")) for method in TRAINED]
    shown = [(method, _columns(one["draws"], margins)) for method, one in found if one]
    truths = [_columns(one["truth"], margins) for _, one in found if one]
    names = [f"β{'₀₁₂₃₄₅₆'[i]}" for i in margins]
    caption = (
        f"Marginal and pairwise densities of {names[0]} to {names[-1]}, with the truth in black: "
        "kernel estimates from 1,000 draws, with contours that contain 30, 60 and 90% of the "
        "mass."
    )
    draw = lambda path: pairs.corners(path, truths[0], shown, names, columns, height)  # noqa: E731
    page.figure(name, caption, shown, draw)


def _columns(draws: list, margins: tuple[int, ...]) -> np.ndarray:
    return np.asarray(draws, float)[:, list(margins)]


def _correlations(page: Page) -> None:
    found = [(method, page.index.shown("waveform", method, "correlations")) for method in TRAINED]
    fits = {method: _fit(one) for method, one in found if one}
    shown = [
        (m, *_pair(one), scatters.Line(fits[m].slope, fits[m].intercept)) for m, one in found if one
    ]
    caption = (
        "Correlation coefficients of all pairs of coefficients, estimated from 1,000 draws, "
        "against those of the truth (10,000 draws), with their regression lines."
    )
    page.figure(
        "waveform-correlations", caption, shown, lambda path: scatters.correlations(path, shown)
    )
    page.say(
        "A slope of 1 is correct. A smaller slope means that correlations are too weak. The "
        "standard error is that of the regression, which treats the pairs as independent."
    )
    rows = [[style.label(method), _slope(fits.get(method))] for method in TRAINED]
    page.table(("method", "slope of the regression line ± its standard error"), rows)


def _pair(one: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    return np.asarray(one["truth"], float), np.asarray(one["draws"], float)


def _fit(one: dict[str, Any]) -> Any:
    from scipy.stats import linregress

    return linregress(*_pair(one))


def _slope(fit: Any) -> str:
    return text.NOTHING if fit is None else f"{fit.slope:.3f} ± {fit.stderr:.3f}"


def _chains(page: Page) -> None:
    chains = {"sgld": "SGLD, the paper's truth", "mala": "MALA"}
    rows = [
        [name, page.ours(entry(cell)), page.floor([entry(cell)])] for cell, name in chains.items()
    ]
    page.say("The paper uses SGLD as the truth. One draw from each of 1,000 chains, against NUTS:")
    page.table(("chains", "sliced W₂", "truth against itself"), rows)
    page.say(
        "KL divergence of the draws of MALA from the draws of SGLD, estimated from the tenth "
        f"nearest neighbours: {_divergence(page)} (paper: {published.MALA_SGLD_KL})."
    )


def _divergence(page: Page) -> str:
    both = [page.index.shown("waveform", cell, "all-draws") for cell in ("mala", "sgld")]
    if not all(both):
        return text.NOTHING
    mala, sgld = (jnp.asarray(one["draws"], float) for one in both if one)
    return f"{kl_knn(mala, sgld):.4f}"
