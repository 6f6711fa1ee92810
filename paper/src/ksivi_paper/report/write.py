"""Writing the report."""

from pathlib import Path

from ..records import Folder
from ..remarks import REMARKS
from . import closing, diffusion, networks, opening, student_t, summary, theory, toys, waveform
from .index import RecordIndex
from .notes import Notes
from .page import Page


def write_report(folder: Folder, path: Path) -> Path:
    """Writes the page of a folder of records, and its figures in a folder next to it.

    The same records give the same files, byte for byte.

    **Arguments:**

    - `folder`: the folder of the records. If its name is "smoke", the page says that it is a smoke
        run.
    - `path`: the path of the page. Figures go into the folder NAME/figures next to it.

    **Returns:**

    The path of the page.

    ```python
    from pathlib import Path
    from ksivi_paper import Folder, write_report

    write_report(Folder(Path("results/paper")), Path("results/paper.md"))
    ```
    """
    preset = "smoke" if folder.path.name == "smoke" else "paper"
    link = f"{path.stem}/figures"
    page = Page(RecordIndex(folder.records(), preset), Notes(REMARKS), path.parent / link, link)
    opening.section(page)
    page.say("## Headline", summary.WHICH, summary.table(page))
    for section in _SECTIONS:
        section(page)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n\n".join([*page.blocks, *page.notes.footnotes()]) + "\n", encoding="utf-8")
    return path


_SECTIONS = (
    toys.section,
    waveform.section,
    diffusion.section,
    networks.section,
    student_t.section,
    theory.smoothness,
    theory.estimators,
    closing.differences,
    closing.leftovers,
)
