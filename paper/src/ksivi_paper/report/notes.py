"""Marks beside numbers: whether they are as good as the paper's, and footnotes that say why not."""

import fnmatch
import re
from collections.abc import Mapping

from .index import Entry, Spread

RULE = (
    "Marks compare KSIVI's numbers with the paper's, rounded to the paper's digits. ✓: our mean "
    "is at least as good. ≈: our mean minus one standard deviation is. The standard deviation is "
    "that of the runs; for distances between samples it includes that of the redraws. ✗: not as "
    "good either way. A footnote says why, if we know."
)


def verdict(ours: Spread, paper: float, decimals: int) -> str:
    """✓, ≈ or ✗, by the rule. ✗ if the number of a run is not finite."""
    if ours.lost:
        return "✗"
    if round(ours.mean, decimals) <= paper:
        return "✓"
    return "≈" if round(ours.mean - ours.sd_of_one, decimals) <= paper else "✗"


class Notes:
    """The remarks that a page has used so far, and the numbers that need a remark and have none."""

    def __init__(self, remarks: Mapping[str, str]):
        self.remarks = remarks
        self.used: dict[str, str] = {}
        self.unexplained: list[str] = []

    def mark(self, entry: Entry, ours: Spread | None) -> str:
        """The mark after a number.

        Other methods get no mark, but a footnote if they are not as good as the paper's.
        """
        if ours is None or entry.paper is None:
            return ""
        judged, found = "ksivi" in entry.cell, verdict(ours, entry.paper, entry.decimals)
        pointer = "" if found == "✓" else self._pointer(entry.path)
        if judged and found == "✗" and not pointer and entry.path not in self.unexplained:
            self.unexplained.append(entry.path)
        return (f" {found}" if judged else "") + pointer

    def footnotes(self) -> list[str]:
        return [f"[^{name}]: {text}" for name, text in self.used.items()]

    def _pointer(self, path: str) -> str:
        key = next((key for key in self.remarks if _fits(path, key)), None)
        if key is None:
            return ""
        name = re.sub(r"[^a-z0-9]+", "-", key.lower()).strip("-")
        self.used[name] = self.remarks[key]
        return f"[^{name}]"


def _fits(path: str, key: str) -> bool:
    return fnmatch.fnmatchcase(path, key) or fnmatch.fnmatchcase(path, f"{key}/*")
