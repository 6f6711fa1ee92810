"""The table of compared models."""

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Any

NAN = float("nan")
_HEADS = ("", "log evidence", "difference", "probability", "elpd (LOO)", "difference", "bad k")


@dataclasses.dataclass(frozen=True)
class ComparedModel:
    """What is known of one model. Numbers that are not known are NaN, or None for counts.

    **Attributes:**

    - `name`, `trusted`, `status`: the name, and the verdict of its fit.
    - `log_evidence`, `log_evidence_error`: log p(data), and its standard error.
    - `evidence_khat`, `evidence_khat_limit`: the Pareto k-hat of the weights of the evidence, and
        the largest at which their mean is reliable.
    - `evidence_difference`, `evidence_difference_error`: to the best model, and its standard error.
    - `probability`, `probability_low`, `probability_high`: of the model, if all models are equally
        likely before the data, with a 95% interval from the standard errors of the evidence.
    - `elpd`, `elpd_error`: the expected log pointwise predictive density by PSIS-LOO, and its
        standard error.
    - `elpd_difference`, `elpd_difference_error`: to the model with the largest elpd, and its
        standard error, from the differences at each observation.
    - `num_bad_khat`: the number of observations whose k-hat is above ArviZ's limit.
    - `elpd_trusted`: whether the draws that gave elpd are trusted.
    - `elpd_status`: the verdict of the corrected draws, if elpd is from these; otherwise empty.
    - `improper`: the parameters whose prior is improper. The model has no evidence then: its constant
        is arbitrary.
    """

    name: str
    trusted: bool
    status: str
    log_evidence: float = NAN
    log_evidence_error: float = NAN
    evidence_khat: float = NAN
    evidence_khat_limit: float = NAN
    evidence_difference: float = NAN
    evidence_difference_error: float = NAN
    probability: float = NAN
    probability_low: float = NAN
    probability_high: float = NAN
    elpd: float = NAN
    elpd_error: float = NAN
    elpd_difference: float = NAN
    elpd_difference_error: float = NAN
    num_bad_khat: int | None = None
    elpd_trusted: bool = True
    elpd_status: str = ""
    improper: tuple[str, ...] = ()

    @property
    def evidence_is_reliable(self) -> bool:
        """Whether the evidence is known, and the tail of its weights is light enough."""
        is_known = math.isfinite(self.log_evidence)
        return is_known and self.evidence_khat <= self.evidence_khat_limit

    @property
    def doubts(self) -> list[str]:
        """What speaks against these numbers, as sentences."""
        found = self._verdicts()
        if self.improper:
            found.append(
                f"it has no evidence, because the prior of {', '.join(map(repr, self.improper))} is "
                "improper: give it a distribution with a finite integral, or compare by elpd"
            )
        if math.isfinite(self.log_evidence) and not self.evidence_is_reliable:
            found.append(
                f"the log evidence is not reliable: the k-hat of its weights is "
                f"{self.evidence_khat:.2f}, and at most {self.evidence_khat_limit:.2f} is good"
            )
        if math.isfinite(self.log_evidence) and math.isnan(self.log_evidence_error):
            found.append(
                "the error of the log evidence is not known, so there are no probabilities"
            )
        if math.isfinite(self.elpd_difference) and math.isnan(self.elpd_difference_error):
            found.append("its elpd counts other units than that of the best model")
        return found

    def _verdicts(self) -> list[str]:
        """The verdicts of draws that failed the checks, and the numbers that are from these draws."""
        if not self.elpd_status:
            return [] if self.trusted else [self.status]
        found = []
        if not self.trusted and math.isfinite(self.log_evidence):
            found.append(f"the log evidence is from draws with the status {self.status}")
        if not self.elpd_trusted:
            found.append(f"elpd is from corrected draws with the status {self.elpd_status}")
        return found


@dataclasses.dataclass(frozen=True)
class ModelComparison:
    """The compared models, the one with the largest evidence, then elpd, first. `str` is an aligned table.

    A model whose name begins with `!` in the table has a doubt, which is below the table.

    **Attributes:**

    - `models`: one `ComparedModel` for each model.
    """

    models: tuple[ComparedModel, ...]

    def __getitem__(self, name: str) -> ComparedModel:
        for one in self.models:
            if one.name == name:
                return one
        raise KeyError(f"{name!r} is not one of {', '.join(repr(one.name) for one in self.models)}")

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """The numbers of each model, by its name."""
        return {one.name: dataclasses.asdict(one) for one in self.models}

    def to_pandas(self) -> Any:
        """A data frame with one row per model."""
        try:
            import pandas
        except ImportError as error:
            raise ImportError("to_pandas needs pandas: pip install pandas") from error
        return pandas.DataFrame(list(self.to_dict().values())).set_index("name")

    def __str__(self) -> str:
        found = zip(_HEADS, _columns(self.models), strict=True)
        columns = [[head, *cells] for head, cells in found if not head or any(cells)]
        widths = [max(map(len, column)) for column in columns]
        lines = [
            "   ".join(_aligned(cell, widths[i], i == 0) for i, cell in enumerate(row))
            for row in zip(*columns, strict=True)
        ]
        doubts = [f"! {one.name}: {text}" for one in self.models for text in one.doubts]
        return "\n".join([*(line.rstrip() for line in lines), *doubts])


def _columns(models: Sequence[ComparedModel]) -> Iterator[list[str]]:
    """The cells below each head. What is not known is empty."""
    yield [f"! {one.name}" if one.doubts else f"  {one.name}" for one in models]
    yield _with_errors([(one.log_evidence, one.log_evidence_error) for one in models], 2)
    gaps = [(one.evidence_difference, one.evidence_difference_error) for one in models]
    yield _with_errors(gaps, 2)
    yield [_chance(one) for one in models]
    yield _with_errors([(one.elpd, one.elpd_error) for one in models], 1)
    yield _with_errors([(one.elpd_difference, one.elpd_difference_error) for one in models], 1)
    yield ["" if one.num_bad_khat is None else f"{one.num_bad_khat:,}" for one in models]


def _chance(one: ComparedModel) -> str:
    if math.isnan(one.probability):
        return ""
    if one.probability_high < 0.0005:
        return "< 0.001"
    interval = f"({one.probability_low:.3f} to {one.probability_high:.3f})"
    return f"{one.probability:.3f} {interval}"


def _with_errors(pairs: Sequence[tuple[float, float]], digits: int) -> list[str]:
    cell = lambda value, error: f"{value:.{digits}f} ± {error:.{digits}f}"  # noqa: E731
    return [
        "" if math.isnan(value) else "0" if value == error == 0 else cell(value, error)
        for value, error in pairs
    ]


def _aligned(cell: str, width: int, is_left: bool) -> str:
    return f"{cell:<{width}}" if is_left else f"{cell:>{width}}"
