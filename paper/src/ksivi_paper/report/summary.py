"""The headline: KSIVI's numbers beside the paper's."""

from collections.abc import Iterable
from pathlib import Path

from ..experiments import UCI
from ..remarks import REMARKS
from . import diffusion, networks, student_t, text, waveform
from .index import CellRecord, Entry, RecordIndex
from .notes import RULE, Notes
from .page import Page

BEGIN, END = "<!-- headline, made from the records -->", "<!-- end of the headline -->"
WHICH = (
    "KSIVI with the vanilla estimator, as in the paper. The diffusion has the drift of the "
    "released code. The networks have the released split, posterior and minibatches, and settings "
    "chosen on development rows."
)


def headline(records: Iterable[CellRecord]) -> str:
    """The headline table in Markdown, with its rule and its footnotes.

    **Arguments:**

    - `records`: the result of `Folder.records`, for the preset "paper".

    ```python
    from pathlib import Path
    from ksivi_paper import Folder, headline

    print(headline(Folder(Path("results/paper")).records()))
    ```
    """
    page = Page(RecordIndex(records), Notes(REMARKS))
    return "\n\n".join([table(page), WHICH, RULE, *page.notes.footnotes()]) + "\n"


def embed(path: Path, records: Iterable[CellRecord]) -> None:
    """Writes the headline between its two marks in a Markdown file."""
    before, begin, rest = path.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{path} must contain the lines {BEGIN} and {END}")
    path.write_text(f"{before}{BEGIN}\n\n{headline(records)}\n{END}{after}", encoding="utf-8")


def table(page: Page) -> str:
    rows = [
        [name, *page.beside(entry), page.floor([entry]), page.count(entry)]
        for name, entry in _entries()
        if page.index.expects(entry.experiment, entry.cell)
    ]
    return text.table(("KSIVI on", "ours", "paper", "truth against itself", "runs"), rows)


def _entries() -> list[tuple[str, Entry]]:
    entries = [("logistic regression (waveform), sliced W₂", waveform.entry("ksivi"))]
    for dim in diffusion.DIMS:
        entries.append(
            (
                f"conditioned diffusion, d = {dim}, sliced W₂",
                diffusion.entry(dim, "released", "ksivi"),
            )
        )
    for half in student_t.HALF_WIDTHS:
        entries.append(
            (
                f"Student-t, Riesz kernel, half-width {half}, W₂²",
                student_t.entry("ksivi-riesz", half),
            )
        )
    for field in ("rmse", "nll"):
        for data in UCI:
            entry = networks.entry(data, "released", "released", "ksivi", field)
            entries.append((f"network, {data}, test {field.upper()}", entry))
    return entries
