"""The diagnostics of a fit: one frozen dataclass of numbers for each kind of method."""

import dataclasses
import math
from typing import Any, ClassVar

from .._core.wording import apart
from ._parameters import ParameterChecks
from ._refined import RefinedDraws

Rows = list[tuple[str, str]]
NAN = float("nan")


@dataclasses.dataclass(frozen=True)
class NotFinite:
    """What was not finite at the step that a run could not take.

    **Attributes:**

    - `step`: the number of the step.
    - `quantity`: "log density", "score", or "gradient" if the first two are finite.
    - `coordinates`: of the score, counted from 0. For a gradient: the names of its parameters.
    - `share`: the share of draws at which it was not finite; NaN for a gradient.
    """

    step: int
    quantity: str
    coordinates: tuple[int | str, ...]
    share: float

    def __post_init__(self):
        object.__setattr__(self, "coordinates", tuple(self.coordinates))  # JSON has lists

    def __str__(self) -> str:
        more = ", …" if len(self.coordinates) > 8 else ""
        where = f" in {', '.join(map(str, self.coordinates[:8]))}{more}" if self.coordinates else ""
        at = "" if math.isnan(self.share) else f" at {self.share:.2%} of the draws"
        return f"the {self.quantity}{where}{at}, at step {self.step:,}"


@dataclasses.dataclass(frozen=True)
class SampleDifference:
    """How far a sample is from a better one, over all coordinates.

    **Attributes:**

    - `mean_shift`, `largest_mean_shift`: the absolute change of the mean in standard deviations,
        on average over the coordinates and in the worst one.
    - `width_change`, `largest_width_change`: the absolute change of the log width of the central
        90% interval, on average and in the worst coordinate.
    - `lower_tail`, `upper_tail`: the shares of the sample below the better one's 1% quantile and
        above its 99% quantile; 0.01 if the tails agree.
    """

    mean_shift: float
    largest_mean_shift: float
    width_change: float
    largest_width_change: float
    lower_tail: float
    upper_tail: float

    def __str__(self) -> str:
        shift = f"{self.mean_shift:.2f} ({self.largest_mean_shift:.2f})"
        width = f"{self.width_change:.2f} ({self.largest_width_change:.2f})"
        tails = f"{self.lower_tail:.1%} and {self.upper_tail:.1%}"
        return f"means {shift} sd, log widths {width}, tails {tails}"


@dataclasses.dataclass(frozen=True)
class Discrepancy:
    """The squared kernel Stein discrepancy of the draws to the target.

    The p-value decides nothing: with enough draws it rejects every approximation.

    **Attributes:**

    - `ksd2`: the estimate of KSD²; 0 on average for draws from the target.
    - `low`, `high`: a band that holds 90% of its bootstrap estimates.
    - `p_value`: how often draws from the target would have a KSD² at least as large.
    - `kernel`: the name of the kernel.
    """

    ksd2: float
    low: float
    high: float
    p_value: float
    kernel: str

    def __str__(self) -> str:
        band = f"({self.low:.3g} to {self.high:.3g})"
        return f"{self.ksd2:.3g} {band}, p = {self.p_value:.2g}, {self.kernel} kernel"


@dataclasses.dataclass(frozen=True)
class Diagnostics:
    """The base class. A method of your own subclasses it as a frozen dataclass of numbers."""

    kind: ClassVar[str] = ""

    def rows(self) -> Rows:
        """The known numbers as text: labels and values, in the order in which they are shown."""
        known = ((field.name, getattr(self, field.name)) for field in dataclasses.fields(self))
        return [
            (name.replace("_", " "), in_words(value)) for name, value in known if value is not None
        ]


@dataclasses.dataclass(frozen=True)
class TrainDiagnostics(Diagnostics):
    """What `ksivi.train` reports.

    **Attributes:**

    - `stein_ratio`: the mean over the last 100 steps: 1 if the draws are as wide as the target,
        above 1 if they are too wide.
    - `skipped_steps`: steps that were skipped because they were not finite (`nonfinite="skip"`).
    - `not_finite`: what was not finite when the run diverged, or None.
    """

    kind: ClassVar[str] = "train"
    stein_ratio: float = NAN
    skipped_steps: int = 0
    not_finite: NotFinite | None = None

    def rows(self) -> Rows:
        rows = [("stein ratio", in_words(self.stein_ratio))]
        rows += [("skipped steps", f"{self.skipped_steps:,}")] if self.skipped_steps else []
        return rows + ([("not finite", str(self.not_finite))] if self.not_finite else [])


@dataclasses.dataclass(frozen=True)
class ParticleDiagnostics(Diagnostics):
    """What `ksivi.run` reports of a particle method.

    **Attributes:**

    - `stein_ratio`: at the last step: 1 if the particles are as wide as the target, above 1 if
        they are too wide.
    """

    kind: ClassVar[str] = "particles"
    stein_ratio: float = NAN


@dataclasses.dataclass(frozen=True)
class ChainDiagnostics(Diagnostics):
    """What `ksivi.run` reports of Markov chains. A number that is not known is None.

    **Attributes:**

    - `r_hat`: the largest rank-normalised split R-hat of any coordinate; below 1.01 if the chains
        agree.
    - `effective_sample_size`: the smallest of any coordinate, of the bulk or of the tails.
    - `divergences`: the number of divergent transitions; only NUTS counts them.
    - `acceptance`: the mean acceptance rate after the warm-up; SGLD accepts every proposal and has
        none.
    """

    kind: ClassVar[str] = "chains"
    r_hat: float | None = None
    effective_sample_size: float | None = None
    divergences: int | None = None
    acceptance: float | None = None

    def rows(self) -> Rows:
        return [("R-hat" if name == "r hat" else name, value) for name, value in super().rows()]


@dataclasses.dataclass(frozen=True)
class FitDiagnostics(Diagnostics):
    """What `ksivi.fit` reports.

    Numbers are NaN, and values None, if the draws could not be checked.

    **Attributes:**

    - `elbo`, `elbo_error`: the evidence lower bound of the sampler, and its standard error.
    - `log_evidence`, `log_evidence_error`: log ∫ p(x) dx by importance weights, and its standard
        error.
    - `pareto_khat`: the Pareto k-hat of the sampler's importance weights: how heavy their tail is.
    - `pareto_khat_limit`: the largest k-hat at which averages over that many weights are reliable.
    - `wide_pareto_khat`: the k-hat with a mixing distribution `widening` times as wide. It decides.
    - `effective_share`: the effective sample size of the weights divided by their number.
    - `weights_difference`: what importance weights change of the draws.
    - `hmc_difference`: what short chains of Hamiltonian Monte Carlo change of the draws.
    - `hmc_memory`: how much the chains still depend on where they started: 0 not at all, 1
        entirely.
    - `run_differences`: the difference to each of the other runs that came near.
    - `ksd`: the kernel Stein discrepancy to the target. It decides nothing.
    - `training`: what the training of the chosen run reports.
    - `num_weights`, `num_mixing`, `widening`: the settings of the importance weights.
    - `num_modes`: the number of separate modes that the search found.
    - `num_paths`, `num_tempered`: the number of paths of the search, and of tempered chains that
        gave starts.
    - `reach`: how far the search looked, in standard deviations of the best Gaussian. NaN if it
        only followed paths from around the origin.
    - `num_rows`, `num_all_rows`: how many rows of the data the answer was fitted to and checked on,
        and how many there are; 0 if all rows were used.
    - `rows_error`: the standard deviation over draws of the error of the log density from these
        rows, in nats. No posterior mean is off by many more standard deviations.
    - `lines_error`: for a target with a score alone: how much log densities differ between integrals
        of the score along different lines, in nats. Otherwise NaN. `elbo` and `log_evidence` are NaN
        then, because a score does not tell the constant.
    - `answer`: what the posterior is: a Gaussian, a mixture of Gaussians, or a trained sampler.
    - `parameters`: what the draws and the checks say of each number. `fit.table()` shows it.
    - `refined`: what is known of corrected draws; None if there are none. All else is about the draws
        before the correction.
    - `given`: which of the arguments `init`, `num_steps` and `refine` were given, and `again` if
        `init` was a fit to this very target. The next steps of `fit.explain()` depend on it.
    - `num_steps`: the steps of the training; 0 if nothing was trained.
    """

    kind: ClassVar[str] = "fit"
    elbo: float = NAN
    elbo_error: float = NAN
    log_evidence: float = NAN
    log_evidence_error: float = NAN
    pareto_khat: float = NAN
    pareto_khat_limit: float = NAN
    wide_pareto_khat: float = NAN
    effective_share: float = NAN
    weights_difference: SampleDifference | None = None
    hmc_difference: SampleDifference | None = None
    hmc_memory: float = NAN
    run_differences: tuple[SampleDifference, ...] = ()
    ksd: Discrepancy | None = None
    training: TrainDiagnostics | None = None
    num_weights: int = 0
    num_mixing: int = 0
    widening: float = NAN
    num_modes: int = 0
    num_paths: int = 0
    num_tempered: int = 0
    reach: float = NAN
    num_rows: int = 0
    num_all_rows: int = 0
    rows_error: float = NAN
    lines_error: float = NAN
    answer: str = ""
    parameters: ParameterChecks | None = dataclasses.field(default=None, repr=False)  # long
    refined: RefinedDraws | None = None
    given: tuple[str, ...] = ()
    num_steps: int = 0

    @property
    def evidence_is_reliable(self) -> bool:
        """Whether the weights that give the log evidence have a k-hat of at most its limit."""
        return self.wide_pareto_khat <= self.pareto_khat_limit

    @property
    def modes(self) -> str:
        """How many modes the search found, and how far it looked."""
        number = f"{self.num_modes} mode{'' if self.num_modes == 1 else 's'} found"
        where = "from the origin" if math.isnan(self.reach) else f"within {self.reach:g} sd"
        return f"{number} {where}"

    def rows(self) -> Rows:
        if self.weights_difference is None:
            return [] if self.training is None else self.training.rows()
        khat, most = apart(self.pareto_khat, self.pareto_khat_limit)
        limit = f"at most {most} for {self.num_weights:,} draws"
        has_z = self.num_mixing > 0
        wider = "the mixing" if has_z else "half of the draws"
        wide = f"k-hat {self.wide_pareto_khat:.2f} with {wider} {self.widening:g} times as wide"
        runs = "; ".join(map(str, self.run_differences)) or "no other run came near"
        density = f"K = {self.num_mixing:,}, " if has_z else ""
        return [
            *([("answer", self.answer)] if self.answer else []),
            *self._bounds(),
            ("Pareto k-hat", f"{khat}, {density}{limit}"),
            ("effective share", f"{self.effective_share:.2f} of the weights"),
            ("weights move", f"{self.weights_difference}; {wide}"),
            ("HMC moves", f"{self.hmc_difference}; memory {self.hmc_memory:.2f}"),
            *([("runs differ", runs)] if has_z else []),
            *([("KSD²", str(self.ksd))] if self.ksd else []),
            *([("rows", self._rows())] if self.num_rows else []),
            *([("modes", f"{self.modes}, by {self._searched()}")] if self.num_paths else []),
            *([("refined draws", str(self.refined))] if self.refined else []),
        ]

    def _bounds(self) -> Rows:
        """The ELBO and the evidence, or the error of what stands for log densities."""
        if not math.isnan(self.lines_error):
            return [("line integrals", f"differ by {self.lines_error:.2g} nats")]
        khat, most = apart(self.wide_pareto_khat, self.pareto_khat_limit)
        why = f", not reliable: the k-hat of its weights is {khat}, at most {most}"
        doubted = "" if self.evidence_is_reliable else why
        return [
            ("ELBO", f"{self.elbo:.2f} ± {self.elbo_error:.2f}"),
            ("log evidence", f"{self.log_evidence:.2f} ± {self.log_evidence_error:.2f}{doubted}"),
        ]

    def _rows(self) -> str:
        used = f"{self.num_rows:,} of {self.num_all_rows:,}"
        if math.isnan(self.rows_error):
            return f"{used}; the error of the log density was not measured"
        return f"{used}; the log density is then off by {self.rows_error:.2g} nats"

    def _searched(self) -> str:
        chains = f" and {self.num_tempered} tempered chains" if self.num_tempered else ""
        return f"{self.num_paths} paths{chains}; a mode that they did not meet is not known"


def in_words(value: Any) -> str:
    """A number with as many digits as a reader needs."""
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if not isinstance(value, float):
        return str(value)
    return f"{value:,.0f}" if 1_000 <= abs(value) < 1e9 else f"{value:.4g}"
