"""Markdown: numbers, tables."""

import math
from collections.abc import Iterable, Sequence

from .index import Spread

NOTHING = "–"
_DIGITS = 4


def number(value: float | None, decimals: int = 4) -> str:
    """A number with at most this many decimals, and with four digits if it is large."""
    return (
        NOTHING if value is None else f"{value:,.{_decimals(value, decimals)}f}".replace("-", "−")
    )


def spread(found: Spread | None, decimals: int = 4) -> str:
    """Mean ± standard deviation, with a note on runs that failed."""
    if found is None:
        return NOTHING
    if not found.finite:
        return "not finite"
    text = number(found.mean, decimals)
    if len(found.finite) > 1:
        text += f" ± {found.sd:,.{_decimals(found.mean, decimals)}f}"
    text += " †" if found.diverged else ""
    return text + (f" ({found.lost} of {len(found.values)} not finite)" if found.lost else "")


def _decimals(value: float, decimals: int) -> int:
    if not math.isfinite(value) or abs(value) < 1:
        return decimals
    return max(0, min(decimals, _DIGITS - 1 - math.floor(math.log10(abs(value)))))


def fixed(value: float | None, decimals: int) -> str:
    """A published number, with the published decimals."""
    return NOTHING if value is None else f"{value:.{decimals}f}".replace("-", "−")


def significant(value: float, digits: int = 3) -> str:
    """A number with this many digits, and without an exponent."""
    rounded = float(f"{value:.{digits}g}")
    return f"{rounded:,.0f}" if abs(rounded) >= 10 ** (digits - 1) else f"{rounded:g}"


def runs(found: Iterable[Spread | None]) -> str:
    """The number of runs: "3 runs", "1 to 3 runs"."""
    counts = sorted({len(one.values) for one in found if one is not None})
    if not counts:
        return "no runs yet"
    if counts == [1]:
        return "1 run"
    return f"{counts[0]} runs" if len(counts) == 1 else f"{counts[0]} to {counts[-1]} runs"


def table(header: Sequence[str], rows: Iterable[Sequence[str]], words: int = 1) -> str:
    """A table. The first `words` columns are text, and the others are numbers."""
    lines = [header, ["---"] * words + ["---:"] * (len(header) - words), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def with_paper(names: Iterable[str]) -> list[str]:
    """Titles of our columns, each followed by a column of the paper."""
    return [part for name in names for part in (name, "paper")]


def count(n: int, thing: str) -> str:
    return f"{n:,} {thing}" + ("" if n == 1 else "s")
