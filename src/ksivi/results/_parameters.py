"""What is kept of each number of a model: a few columns, which records and JSON hold."""

import dataclasses
import math
from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Float

_NOT_EXAMINED = float("nan")
_LEVELS = (0.05, 0.5, 0.95)
_DIGITS = 4
Column = tuple[float, ...]


@dataclasses.dataclass(frozen=True)
class ParameterChecks:
    """The numbers of a model on its own scale, one entry each in every column.

    `fit.table()` shows them. Bounds are lower bounds of an error; NaN if nothing was examined.

    **Attributes:**

    - `names`: such as `tau` or `theta[2]`.
    - `mean`, `sd`, `low`, `median`, `high`: of the draws; the 5%, 50% and 95% quantiles.
    - `mean_off`, `mean_off_error`: the bound for the mean in standard deviations of the draws, and
        its standard error.
    - `width_off`, `width_off_error`: for the log of the width of the central 90% interval.
    - `tails_off`, `tails_off_error`: for the probability outside the draws' 1% and 99% quantiles.
    """

    names: tuple[str, ...]
    mean: Column
    sd: Column
    low: Column
    median: Column
    high: Column
    mean_off: Column
    mean_off_error: Column
    width_off: Column
    width_off_error: Column
    tails_off: Column
    tails_off_error: Column

    @classmethod
    def of(
        cls,
        names: Sequence[str],
        draws: Float[np.ndarray, "n p"],
        bounds: Sequence[Float[np.ndarray, " p"]] | None = None,
    ) -> "ParameterChecks":
        """The columns from draws, and from six columns of bounds and errors if there are any."""
        with np.errstate(invalid="ignore", over="ignore"):  # single draws may be infinite
            sd = draws.std(axis=0)
            summary = [draws.mean(axis=0), sd, *np.quantile(draws, _LEVELS, axis=0)]
        unknown = [np.full(len(names), _NOT_EXAMINED)] * 6
        shown = [_rounded(column, sd) for column in summary]
        return cls(tuple(names), *shown, *map(_few_digits, bounds or unknown))

    def rows(self) -> Iterator[tuple[float, ...]]:
        """The values of each number, in the order of the columns."""
        columns = [getattr(self, field.name) for field in dataclasses.fields(self)]
        return zip(*columns[1:], strict=True)

    def require_names(self, names: Sequence[str]) -> None:
        """Raises `ValueError` unless the columns are about these names."""
        lengths = {len(getattr(self, field.name)) for field in dataclasses.fields(self)}
        if self.names != tuple(names) or lengths != {len(names)}:
            raise ValueError(
                f"diagnostics.parameters must have one entry for each of the {len(names):,} numbers "
                f"of the posterior, got {len(self.names):,} names and columns of {sorted(lengths)}"
            )


def _rounded(column: Float[np.ndarray, " p"], sd: Float[np.ndarray, " p"]) -> Column:
    """The column, exact to a thousandth of a standard deviation."""
    return tuple(
        round(value, 3 - math.floor(math.log10(scale))) if 1e-300 < scale < math.inf else value
        for value, scale in zip(column.tolist(), sd.tolist(), strict=True)
    )


def _few_digits(column: Float[np.ndarray, " p"]) -> Column:
    return tuple(float(f"{value:.{_DIGITS}g}") for value in column.tolist())
