"""A page of the gallery, read: its program, what it says that the program prints, its figures and sections.

The pages are `docs/gallery/NAME.md`. The ```python blocks of a page, in order, are one program. A ```text block behind
a python block is what that block prints. A figure is saved by `plt.savefig("NAME-what.png")`.
"""

import dataclasses
import functools
import re
from collections.abc import Iterator
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "gallery"
BESIDE, APPLIES = "Comparison with NUTS", "When this applies to you"
MEASURED = re.compile(r"(<!-- measured -->\n)(.*?)\n?(<!-- /measured -->)", re.DOTALL)
"""The place in the section "Comparison with NUTS" that the runner writes."""

_FENCED = re.compile(r"^```(python|text)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_NUMBER = re.compile(r"(?<![A-Za-z_\d])[-−]?\d(?:[\d,]*\d)?(?:\.\d+)?(?:e[-+]?\d+)?")
_SHARE = 0.05


@dataclasses.dataclass(frozen=True)
class Block:
    """A python block: its code, the line where it begins, what it should print and where that is, its section."""

    code: str
    line: int
    output: str
    span: tuple[int, int]
    section: str


@dataclasses.dataclass(frozen=True)
class Page:
    """One page, by its path."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.stem

    @functools.cached_property
    def text(self) -> str:
        return self.path.read_text()

    @property
    def headings(self) -> list[str]:
        """The titles of its sections, in order."""
        return re.findall(r"^## (.+)$", _FENCED.sub("", self.text), re.MULTILINE)

    @property
    def figures(self) -> list[str]:
        """The files of the figures that it shows, in order."""
        return re.findall(r"!\[[^\]]*\]\(([\w-]+\.png)\)", self.text)

    @property
    def thumbnail(self) -> str:
        """The figure that stands for the page: the last one before the section "Comparison with NUTS"."""
        before, _, _ = self.text.partition(f"\n## {BESIDE}\n")
        return [name for name in self.figures if f"({name})" in before][-1]

    def blocks(self, short: bool = False) -> list[Block]:
        """The program, without the section "Comparison with NUTS" in the short form."""
        return [one for one in self._blocks() if not (short and one.section == BESIDE)]

    def _blocks(self) -> Iterator[Block]:
        found = list(_FENCED.finditer(self.text))
        for this, following in zip(found, [*found[1:], None], strict=True):
            if this[1] == "python":
                prints = following is not None and following[1] == "text"
                output, span = (following[2], following.span(2)) if prints else ("", (0, 0))
                before = self.text[: this.start(2)]
                section = re.findall(r"^## (.+)$", _FENCED.sub("", before), re.MULTILINE)
                yield Block(this[2], before.count("\n"), output, span, (section or [""])[-1])

    def with_printed(self, printed: list[str]) -> str:
        """Its text with what its blocks print now; a text with `…` stays as it is if it agrees."""
        text = self.text
        for block, found in reversed(list(zip(self.blocks(), printed, strict=False))):
            if block.output and not ("…" in block.output and agree(found, block.output)):
                lines = "".join(f"{line.rstrip()}\n" for line in found.strip("\n").splitlines())
                text = text[: block.span[0]] + lines + text[block.span[1] :]
        return text


def with_measured(text: str, found: str) -> str:
    """A page's text with a new measurement in the marked place, or at the end of "Comparison with NUTS"."""
    if MEASURED.search(text):
        return MEASURED.sub(lambda old: f"{old[1]}{found}\n{old[3]}", text)
    before, heading, after = text.partition(f"## {APPLIES}\n")
    return f"{before}<!-- measured -->\n{found}\n<!-- /measured -->\n\n{heading}{after}"


def pages() -> list[Page]:
    """All pages of the gallery but the index."""
    return [Page(path) for path in sorted(FOLDER.glob("*.md")) if path.stem != "index"]


def agree(printed: str, shown: str) -> bool:
    """Whether a program prints what a page shows, up to spaces and to noise in the numbers.

    A number may differ by two units of its last digit, or by one in twenty. `…` stands for
    anything within a line.
    """
    shown, printed = shown.strip(), printed.strip()
    pattern, end = "", 0
    for number in _NUMBER.finditer(shown):
        pattern += _literal(shown[end : number.start()]) + f"({_NUMBER.pattern})"
        end = number.end()
    found = re.fullmatch(pattern + _literal(shown[end:]), printed)
    return found is not None and all(map(_near, found.groups(), _NUMBER.findall(shown)))


def _literal(text: str) -> str:
    """A pattern for this text with any spaces; `…` matches a run of characters in one line."""
    parts = [re.escape(part).replace("…", ".*?") for part in re.split(r"\s+", text)]
    return r"\s+".join(parts)


def _near(one: str, other: str) -> bool:
    a, b = _value(one), _value(other)
    unit = 10.0 ** -len(other.partition(".")[2].partition("e")[0])
    return abs(a - b) <= max(2.001 * unit, _SHARE * max(abs(a), abs(b)))


def _value(number: str) -> float:
    return float(number.replace(",", "").replace("−", "-"))
