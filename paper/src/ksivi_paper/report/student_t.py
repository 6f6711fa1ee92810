"""The section of the Student-t distribution."""

from .. import published
from ..figures import style
from ..measures import HALF_WIDTHS
from ..methods import ROBUST
from . import text
from .index import Entry
from .page import Page

METHODS = {
    "mied": "MIED",
    "ksdd": "KSDD",
    "ksivi-gaussian": "KSIVI, Gaussian kernel",
    "ksivi-riesz": "KSIVI, Riesz kernel",
    "ksivi-riesz-proper": "KSIVI, Riesz kernel, annealed from a Cauchy base",
    ROBUST: style.label(ROBUST),
    "ksivi-gaussian-plain": "KSIVI, Gaussian kernel, without the fixes",
    "ksivi-riesz-plain": "KSIVI, Riesz kernel, without the fixes",
}


def entry(method: str, half: int) -> Entry:
    if method == ROBUST:
        return Entry("robust", "student-t", f"boxed_{half}")
    known = published.STUDENT_T.get(method)
    return Entry(
        "student-t", method, f"boxed_{half}", known[HALF_WIDTHS.index(half)] if known else None
    )


def section(page: Page) -> None:
    page.say("## Heavy tails: a product of two Student-t distributions")
    page.say(
        "Optimal transport at squared Euclidean cost between 1,000 draws and 10,000 draws of the "
        "truth, within boxes of three half-widths (the paper's edge widths): means over ten "
        "redraws. KSIVI has the two fixes of the released code: a weight on log p that ends after "
        "20,000 of 50,000 steps, and the inverse covariance between the pairs. The last rows have "
        "neither. The Cauchy base b is a product of Student-t densities with one degree of "
        "freedom: the target is p^c b^(1 − c), with c from 0.1 to 1 over 40,500 steps. Draws "
        "outside a box do not count, so the second last column has the share of draws within the "
        "largest box."
    )
    rows = [_row(page, method, name) for method, name in METHODS.items()]
    floors = [page.floor(entry(method, half) for method in METHODS) for half in HALF_WIDTHS]
    share = page.floor(_inside(method) for method in METHODS)
    floors_row = [part for one in floors for part in (one, text.NOTHING)]
    rows.append(["*truth against itself*", *floors_row, share, text.NOTHING])
    names = text.with_paper(f"half-width {half}" for half in HALF_WIDTHS)
    page.table(("method", *names, f"within {HALF_WIDTHS[-1]}", "runs"), rows)


def _inside(method: str) -> Entry:
    one = entry(method, HALF_WIDTHS[-1])
    return Entry(one.experiment, one.cell, f"inside_{HALF_WIDTHS[-1]}", decimals=3)


def _row(page: Page, method: str, name: str) -> list[str]:
    entries = [entry(method, half) for half in HALF_WIDTHS]
    sds = published.STUDENT_T_SD.get(method, (None,) * len(HALF_WIDTHS))
    cells = [
        part
        for one, sd in zip(entries, sds, strict=True)
        for part in (page.ours(one), _paper(page, one, sd))
    ]
    return [name, *cells, page.ours(_inside(method)), page.count(entries[0])]


def _paper(page: Page, one: Entry, sd: float | None) -> str:
    return page.paper(one) + ("" if sd is None else f" ± {sd:.2f}")
