"""One row per number of a model: what the draws say of it, and what the checks say of the draws."""

import dataclasses
import importlib
import math
import textwrap
from collections.abc import Iterator
from typing import Any

from .._core.checks import describe

NAN = float("nan")
TAIL, NOT_EXAMINED = "tail", "not examined"
"""What can speak against a number, besides a code or a bound."""
_UNITS = (
    "Off: lower bounds ± standard errors. Of means in sd, of the log of the width of the 90% interval "
    "(0.1 is about 10%), and of the share in both tails together."
)
_ABOUT_TAILS = (
    "tail: beyond the 1% or the 99% quantile, or both, are fewer than 0.6% or more than 2% of the draws. "
    "The sum of both tails can hide this."
)
_WIDEST = 100
_QUANTILES = ("5%", "50%", "95%")
_FULL = ((True, True), (False, True), (False, False))
"""Whether a table has quantiles and reasons; the widest table first."""
_SMALL, _LARGE = 1e-5, 1e7
"""Standard deviations outside this range are printed with an exponent."""


@dataclasses.dataclass(frozen=True)
class Shown:
    """How far the checks could show a quantity to be off: a lower bound of its error.

    **Attributes:**

    - `bound`: 0 if they showed nothing; NaN if it was not examined.
    - `error`: the standard error. Usually the true error is at least bound − 2 errors.
    """

    bound: float = NAN
    error: float = NAN

    @property
    def at_least(self) -> float:
        """bound − 2 errors, or 0 if that is negative."""
        return max(self.bound - 2 * self.error, 0.0) if self.is_examined else NAN

    @property
    def is_examined(self) -> bool:
        return not math.isnan(self.bound)

    def __str__(self) -> str:
        return self.in_words()

    def in_words(self, unit: float = 1.0, name: str = "") -> str:
        """The bound and its error in a unit, such as 0.01 for per cent."""
        if not self.is_examined:
            return NOT_EXAMINED
        return f"{self.bound / unit:.2f}±{self.error / unit:.2f}{name}"


@dataclasses.dataclass(frozen=True)
class Parameter:
    """A row: one number of the model, on the model's own scale.

    **Attributes:**

    - `name`: such as `tau` or `theta[2]`.
    - `mean`, `sd`, `low`, `median`, `high`: of the draws; the 5%, 50% and 95% quantiles.
    - `mean_off`: how far the mean is off, in standard deviations of the draws.
    - `width_off`: how far the log of the width of the central 90% interval is off.
    - `tails_off`: how far the probability outside the draws' 1% and 99% quantiles is from 2%.
    - `against`: what speaks against this number: codes, `"tail"` if a doubt is about its tails alone,
        one or both, or the bound that is too large. Each is there once. Empty if it is trusted.
    """

    name: str
    mean: float
    sd: float
    low: float
    median: float
    high: float
    mean_off: Shown
    width_off: Shown
    tails_off: Shown
    against: tuple[str, ...] = ()

    @property
    def trusted(self) -> bool:
        """Whether nothing that was found speaks against this number."""
        return not self.against

    @property
    def verdict(self) -> str:
        """`yes`, or `no` with the first reason, and how many more there are."""
        more = f" +{len(self.against) - 1}" if len(self.against) > 1 else ""
        return f"no: {self.against[0]}{more}" if self.against else "yes"


@dataclasses.dataclass(frozen=True)
class Table:
    """The numbers of a model, one row each. `str` aligns them; `table["tau"]` is one row.

    ```python
    table = fit.table()
    table["x[0]"].mean, table["x[0]"].mean_off.at_least, table["x[0]"].trusted
    print(table)
    ```
    """

    rows: tuple[Parameter, ...]

    def __getitem__(self, name: str) -> Parameter:
        """The row with this name."""
        found = next((r for r in self.rows if isinstance(name, str) and r.name == name), None)
        if found is None:
            raise ValueError(f"name must be one of {known(self.names)}, got {describe(name)}")
        return found

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Parameter]:
        return iter(self.rows)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(row.name for row in self.rows)

    @property
    def is_examined(self) -> bool:
        """Whether checks were made of any number."""
        return any(row.mean_off.is_examined for row in self.rows)

    def __str__(self) -> str:
        return self.text()

    def text(self, columns: int | None = None) -> str:
        """The aligned table, and the units of its bounds below.

        If there is no room within a limit of columns, quantiles are left out, then reasons.
        """
        kinds = (
            self._aligned(with_quantiles, with_reasons) for with_quantiles, with_reasons in _FULL
        )
        found = next(
            lines
            for is_last, lines in zip((False, False, True), kinds, strict=True)
            if is_last or columns is None or max(map(len, lines)) <= columns
        )
        return "\n".join([*found, *self._notes(columns or _WIDEST)])

    def cells(self) -> list[dict[str, str]]:
        """The rows as texts, by column."""
        return [_texts(row, self.is_examined) for row in self.rows]

    def to_dict(self) -> dict[str, dict[str, float | bool | str | None]]:
        """Each row as a dictionary of plain values, by name. A value that is not known is None."""
        return {row.name: _plain(row) for row in self.rows}

    def to_pandas(self) -> Any:
        """A `pandas.DataFrame` with the names as its index. Needs pandas."""
        try:
            pandas = importlib.import_module("pandas")
        except ImportError as error:
            raise ImportError("to_pandas needs pandas: pip install pandas") from error
        found = [_plain(row) for row in self.rows]
        return pandas.DataFrame(found, index=pandas.Index(self.names, name="name"))

    def _aligned(self, with_quantiles: bool, with_reasons: bool) -> list[str]:
        found = [
            {head: text for head, text in cells.items() if with_quantiles or head not in _QUANTILES}
            for cells in self.cells()
        ]
        if not found:
            return ["no parameters"]
        if not with_reasons:
            found = [cells | {"trusted": cells["trusted"].split(":")[0]} for cells in found]
        heads = list(found[0])
        widths = [max(len(head), *(len(cells[head]) for cells in found)) for head in heads]
        lines = [dict(zip(heads, ["", *heads[1:]], strict=True)), *found]
        return [_line(list(cells.values()), widths) for cells in lines]

    def _notes(self, columns: int) -> list[str]:
        """The units, and what some words mean."""
        notes = [_UNITS] if self.is_examined else []
        notes += [_ABOUT_TAILS] if any(TAIL in row.against for row in self.rows) else []
        return [line for note in notes for line in textwrap.wrap(note, columns)]


def known(names: tuple[str, ...], most: int = 20) -> str:
    """Names for a message: all of them, or the first."""
    more = f", … ({len(names):,} in all)" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _line(cells: list[str], widths: list[int]) -> str:
    first, *rest = cells
    numbers = [f"{text:>{width}}" for text, width in zip(rest, widths[1:], strict=True)]
    return "  ".join([f"{first:<{widths[0]}}", *numbers]).rstrip()


def _texts(row: Parameter, is_examined: bool) -> dict[str, str]:
    """The cells of a row. Without checks there are no columns about them."""
    names = {"mean": row.mean, "sd": row.sd, "5%": row.low, "50%": row.median, "95%": row.high}
    cells = {"name": row.name} | {head: _number(value, row.sd) for head, value in names.items()}
    shown = {"mean off": row.mean_off, "width off": row.width_off}
    found = {head: one.in_words() for head, one in shown.items()}
    found["tails off"] = row.tails_off.in_words(0.01, "%")
    if not is_examined:
        found = {"checks": NOT_EXAMINED}
    return cells | found | {"trusted": row.verdict}


def _number(value: float, sd: float) -> str:
    """A number with as many decimals as show two or three digits of the standard deviation."""
    if not math.isfinite(value):
        return str(value)
    if not _SMALL < sd < _LARGE:
        return f"{value:.3g}"
    decimals = max(0, 1 - math.floor(math.log10(sd / 3)))
    return f"{round(value, decimals) + 0.0:,.{decimals}f}"  # no -0.00


def _plain(row: Parameter) -> dict[str, float | bool | str | None]:
    found: dict[str, float | bool | str | None] = {
        name: _finite(getattr(row, name)) for name in ("mean", "sd", "low", "median", "high")
    }
    for name in ("mean_off", "width_off", "tails_off"):
        shown: Shown = getattr(row, name)
        found[name], found[f"{name}_error"] = _finite(shown.bound), _finite(shown.error)
    return found | {"trusted": row.trusted, "against": ", ".join(row.against)}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
