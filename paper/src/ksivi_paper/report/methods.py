"""The page of all methods: every trained method on every problem, in the same settings."""

import math
from collections.abc import Callable
from pathlib import Path

from ..figures import heat, style
from ..methods import METHODS, TOYS, methods, network_sets
from ..records import Folder
from ..remarks import METHOD_REMARKS
from . import method_numbers as numbers
from . import method_tables as tables
from .index import RecordIndex
from .method_words import ABOUT, SMOKE
from .notes import Notes
from .opening import made_with
from .page import Page

_WORST_FLOORS, _WORST_RATIO = 30.0, 2.0


def write_methods(folder: Folder, path: Path) -> Path | None:
    """Writes the page of all methods from a folder of records, and its figure next to it.

    The same records give the same files, byte for byte.

    **Returns:**

    The path of the page; None if the folder has no records of the experiment.

    ```python
    from pathlib import Path
    from ksivi_paper import Folder, write_methods

    write_methods(Folder(Path("results/paper")), Path("results/methods.md"))
    ```
    """
    preset = "smoke" if folder.path.name == "smoke" else "paper"
    index = RecordIndex(folder.records(), preset, {"methods": methods})
    if not index.of("methods"):
        return None
    link = f"{path.stem}/figures"
    page = Page(index, Notes({}), path.parent / link, link)
    for section in _SECTIONS:
        section(page)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n\n".join(page.blocks) + "\n", encoding="utf-8")
    return path


def _opening(page: Page) -> None:
    page.say("# All methods on all problems")
    if page.index.preset == "smoke":
        page.say(SMOKE)
    options = "" if page.index.preset == "paper" else f" --preset {page.index.preset}"
    page.say(
        ABOUT[0],
        f"```bash\nksivi paper run methods{options}\nksivi paper report\n```",
        made_with(page.index),
        *ABOUT[1:],
    )
    _figure(page)


def _figure(page: Page) -> None:
    index = page.index
    problems = numbers.expected(index, (*TOYS, *tables.SAMPLED))
    sets = list(network_sets(index.preset))
    blocks = [
        _block(page, "sliced W₂ / its floor", problems, numbers.in_floors, _WORST_FLOORS),
        _block(page, "networks: RMSE / the lowest", sets, _over_lowest, _WORST_RATIO, decimals=2),
    ]
    names = [style.label(method) for method in METHODS]
    caption = (
        "Every method on every problem: the median of its runs. 1 is as good as exact draws (left) "
        "or as the best method (right); the darker, the worse. †: some runs failed. ×: most runs "
        "have no finite number. –: not run yet."
    )
    page.figure("all-methods", caption, names, lambda path: heat.squares(path, names, blocks))


def _block(
    page: Page,
    title: str,
    problems: list[str],
    value: Callable[[RecordIndex, str, str], float | None],
    worst: float,
    **options: int,
) -> heat.Block:
    rows = [
        [
            heat.Square(
                value(page.index, problem, method),
                bool((numbers.failures(page.index, problem, method) or (0,))[0]),
            )
            for problem in problems
        ]
        for method in METHODS
    ]
    return heat.Block(
        title, [tables.title(problem) for problem in problems], rows, worst, **options
    )


def _over_lowest(index: RecordIndex, problem: str, method: str) -> float | None:
    """The median RMSE over that of the best method."""
    medians: dict[str, float | None] = {
        one: numbers.median(index, problem, one, "rmse") for one in METHODS
    }
    least = min((one for one in medians.values() if one is not None), default=math.inf)
    mine = medians[method]
    return mine if mine is None or not math.isfinite(mine) else mine / least


def _closing(page: Page) -> None:
    shown = {
        key
        for problem in tables.everywhere(page)
        for method in METHODS
        if tables.mark(page, problem, method) and (key := tables.remark(problem, method))
    }
    page.say("## Remarks")
    rows = [
        [f"[{i}]", key, METHOD_REMARKS[key]]
        for i, key in enumerate(METHOD_REMARKS, 1)
        if key in shown
    ]
    page.table(("", "cell", "remark"), rows, words=3) if rows else page.say("None.")
    missing = [f"{cell.experiment}/{cell.name}" for cell in page.index.missing()]
    page.say("## What is missing", ", ".join(missing) + "." if missing else "Nothing.")
    if page.index.outdated:
        old = ", ".join(record["cell"] for record in page.index.outdated)
        page.say(f"Records with outdated settings, which are left out: {old}.")


_SECTIONS = (
    _opening,
    tables.toys,
    tables.sampled,
    tables.networks,
    tables.failures,
    tables.times,
    _closing,
)
