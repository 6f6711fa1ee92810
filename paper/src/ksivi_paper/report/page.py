"""The page that sections write to: text, tables and figures, in order."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from . import text
from .index import Entry, RecordIndex
from .notes import Notes


class Page:
    """The page: the records and the marks that sections need, and the text that they have written.

    **Attributes:**

    - `figures`: the folder of the figures.
    - `link`: the path of that folder in links of the page.
    """

    def __init__(self, index: RecordIndex, notes: Notes, figures: Path = Path(), link: str = ""):
        self.index, self.notes = index, notes
        self.figures, self.link = figures, link
        self.blocks: list[str] = []

    def say(self, *paragraphs: str) -> None:
        self.blocks.extend(paragraphs)

    def table(self, header: Sequence[str], rows: Iterable[Sequence[str]], words: int = 1) -> None:
        self.say(text.table(header, rows, words))

    def figure(
        self, name: str, caption: str, shown: Sequence, draw: Callable[[Path], None]
    ) -> None:
        """Draws a figure, unless there is nothing to show. The name is its alternative text."""
        if not shown:
            self.say(f"*(No figure yet: {caption})*")
            return
        self.figures.mkdir(parents=True, exist_ok=True)
        draw(self.figures / f"{name}.png")
        self.say(f"![{name.replace('-', ' ')}]({self.link}/{name}.png)", f"*{caption}*")

    def ours(self, entry: Entry) -> str:
        """Our number, with its mark."""
        found = self.index.spread(entry)
        return text.spread(found, entry.decimals) + self.notes.mark(entry, found)

    def paper(self, entry: Entry) -> str:
        return text.fixed(entry.paper, entry.decimals)

    def beside(self, entry: Entry) -> list[str]:
        """Our number and the paper's."""
        return [self.ours(entry), self.paper(entry)]

    def floor(self, entries: Iterable[Entry]) -> str:
        """The floor, from the first record that has one."""
        found = (self.index.floor(entry) for entry in entries)
        return text.number(next((one for one in found if one is not None), None))

    def runs(self, entries: Iterable[Entry]) -> str:
        """The number of runs of the entries, in words."""
        return text.runs(self.index.spread(entry) for entry in entries)

    def count(self, entry: Entry) -> str:
        found = self.index.spread(entry)
        return text.NOTHING if found is None else str(len(found.values))
