"""The tables of the page of all methods: scores, failures, seconds."""

import fnmatch
from collections.abc import Callable, Sequence

from .. import published
from ..figures import style
from ..methods import METHODS, PATHS, TOYS, network_sets
from ..remarks import METHOD_REMARKS
from . import method_numbers as numbers
from . import text
from .method_words import FAILED, LIKELIHOOD, NETWORKS, PUBLISHED, SECONDS, TOY_WORDS
from .page import Page

SAMPLED = ("waveform", *PATHS)
_FLOOR = "*truth against itself*"
_TITLES = {"eight-gaussians": "eight Gaussians"} | {
    path: f"diffusion, d = {path.split('-')[1]}" for path in PATHS
}


def title(problem: str) -> str:
    return _TITLES.get(problem, problem)


def toys(page: Page) -> None:
    problems = numbers.expected(page.index, TOYS)
    page.say("## Toys in two dimensions", TOY_WORDS, "Sliced W₂:")
    _table(page, [(problem, "sliced_w2") for problem in problems], marked=True)
    page.say("KL(q‖p):")
    _table(page, [(problem, "kl") for problem in problems])
    page.say(PUBLISHED)
    toys = [*published.STUDY_TOYS]
    rows = [
        [style.label(m), *(text.fixed(published.STUDY_TOYS[toy].get(m), 3) for toy in toys)]
        for m in METHODS
        if any(m in published.STUDY_TOYS[toy] for toy in toys)
    ]
    page.table(("published: W₂", *toys), rows)


def sampled(page: Page) -> None:
    problems = numbers.expected(page.index, SAMPLED)
    page.say("## Logistic regression and conditioned diffusions", "Sliced W₂:")
    _table(page, [(problem, "sliced_w2") for problem in problems], marked=True)
    page.say(LIKELIHOOD)
    kl = [(problem, "kl") for problem in problems if problem == "waveform"]
    columns = [*kl, *((problem, "log_kde") for problem in problems)]
    named = {"kl": "KL(q‖p)", "log_kde": "log likelihood"}
    titles = [f"{title(problem)}: {named[field]}" for problem, field in columns]
    _table(page, columns, titles=titles)
    _published_likelihood(page)


def _published_likelihood(page: Page) -> None:
    if PATHS[1] not in numbers.expected(page.index, PATHS):
        return
    page.say(
        "Beside published numbers, at d = 100: the sum over 1,000 reference draws, and the mean "
        f"for each. In the study, SGLD has {published.STUDY_SGLD}."
    )
    header = ("method", "sum", "KPG's paper", "for each", "study of 2026")
    page.table(header, [_likelihoods(page, method) for method in METHODS])


def _likelihoods(page: Page, method: str) -> list[str]:
    found = page.index.spread(numbers.entry(page.index, PATHS[1], method, "log_kde"))
    known = found is not None and found.finite
    total = f"{1_000 * found.mean:,.0f}".replace("-", "−") if found and known else text.NOTHING
    theirs = published.KPG_LOG_LIKELIHOOD.get(method)
    return [
        style.label(method),
        total,
        text.NOTHING if theirs is None else f"{theirs:,}",
        text.fixed(found.mean, 3) if found and known else text.NOTHING,
        text.fixed(published.STUDY_LOG_LIKELIHOOD.get(method), 3),
    ]


def networks(page: Page) -> None:
    page.say("## Bayesian neural networks", NETWORKS)
    for field in ("rmse", "nll"):
        page.say(f"Test {field.upper()}:")
        columns = [(data, field) for data in network_sets(page.index.preset)]
        theirs = published.STUDY_RMSE if field == "rmse" else {}
        _table(page, columns, decimals=3, marked=field == "rmse", theirs=theirs)


def _table(
    page: Page,
    columns: Sequence[tuple[str, str]],
    *,
    titles: Sequence[str] | None = None,
    decimals: int = 4,
    marked: bool = False,
    theirs: dict[str, dict[str, float]] | None = None,
) -> None:
    """One row per method, and the floor; published numbers in brackets."""

    def cell(problem: str, method: str, field: str) -> str:
        entry = numbers.entry(page.index, problem, method, field, decimals)
        shown = text.spread(page.index.spread(entry), decimals)
        other = (theirs or {}).get(problem, {}).get(method)
        shown += "" if other is None else f" ({text.fixed(other, decimals)})"
        return shown + (mark(page, problem, method) if marked else "")

    rows = [
        [style.label(method), *(cell(problem, method, field) for problem, field in columns)]
        for method in METHODS
    ]
    floors = [numbers.floor(page.index, problem, field) for problem, field in columns]
    if any(floor is not None for floor in floors):
        rows.append([_FLOOR, *(text.number(floor, decimals) for floor in floors)])
    page.table(("method", *(titles or [title(problem) for problem, _ in columns])), rows)


def mark(page: Page, problem: str, method: str) -> str:
    """The number of the remark on a cell that has run."""
    key = remark(problem, method)
    if key is None or numbers.record(page.index, problem, method) is None:
        return ""
    return f" [{list(METHOD_REMARKS).index(key) + 1}]"


def remark(problem: str, method: str) -> str | None:
    path = f"{problem}/{method}"
    return next((key for key in METHOD_REMARKS if fnmatch.fnmatchcase(path, key)), None)


def everywhere(page: Page) -> list[str]:
    return [
        *numbers.expected(page.index, (*TOYS, *SAMPLED)),
        *network_sets(page.index.preset),
    ]


def failures(page: Page) -> None:
    page.say("## Runs that failed", FAILED)
    problems = everywhere(page)
    rows = []
    for method in METHODS:
        found = [numbers.failures(page.index, problem, method) for problem in problems]
        known = [one for one in found if one is not None]
        total = (sum(lost for lost, _ in known), sum(runs for _, runs in known))
        rows.append([style.label(method), *map(_share, found), _share(total if known else None)])
    page.table(("method", *map(title, problems), "**all**"), rows)


def _share(found: tuple[int, int] | None) -> str:
    if found is None:
        return text.NOTHING
    lost, runs = found
    return f"{lost} of {runs}" if lost else "0"


def times(page: Page) -> None:
    page.say("## Time", SECONDS, "Seconds for each run:")
    _times(page, everywhere(page), lambda found: found.a_run)
    page.say("Milliseconds for a step of all runs of a batch together:")
    problems = numbers.expected(page.index, (*TOYS, *SAMPLED))
    _times(page, problems, lambda found: 1_000 * found.a_step)


def _times(page: Page, problems: list[str], of: Callable[[numbers.Seconds], float]) -> None:
    rows = []
    for method in METHODS:
        found = [numbers.seconds(page.index, problem, method) for problem in problems]
        shown = (text.NOTHING if one is None else text.significant(of(one), 2) for one in found)
        rows.append([style.label(method), *shown])
    page.table(("method", *map(title, problems)), rows)
