"""All codes of doubts and endings, each with a title and the next step: the one place for them.

`docs/glossary.md` has a section about each code. `tests/test_glossary.py` compares the two.
"""

import dataclasses
import enum
from collections.abc import Iterable

_ALL_ROWS = (
    "Give the rows as arrays if they fit into memory: `fit` then uses all of them where some are "
    "not enough"
)
_AXES = (
    "Functions of several of these parameters are wrong. An element of a simplex or of a matrix can "
    "also be such a function: `fit.table()` judges each number alone."
)
REPARAMETRISE = (
    "reparametrise: write hierarchical models in their non-centred form, and standardise the data"
)


@enum.unique
class Code(enum.Enum):
    """The kinds of doubts and endings.

    **Attributes:**

    - `value`: the code, such as `chains-move`. It is also the anchor of its section in the glossary.
    - `title`: what it means, in a few words.
    - `next_step`: what to do or, if there are remedies, what to know first.
    - `is_doubt`: False for an ending that says nothing against the draws.
    - `remedies`: names of what can be done, in this order. What was done for a fit already is left out.
    """

    title: str
    next_step: str
    is_doubt: bool
    remedies: tuple[str, ...]

    def __new__(
        cls,
        code: str,
        title: str,
        next_step: str,
        is_doubt: bool = True,
        remedies: tuple[str, ...] = (),
    ) -> "Code":
        self = object.__new__(cls)
        self._value_ = code
        self.title, self.next_step = title, next_step
        self.is_doubt, self.remedies = is_doubt, remedies
        return self

    CHAINS_MOVE = (
        "chains-move",
        "Chains of HMC move the draws",
        "`fit.table()` shows which parameters moved.",
        True,
        ("go on", "states", "reparametrise", "nuts"),
    )
    CHAINS_MOVE_AXES = (
        "chains-move-axes",
        "Chains of HMC change how parameters depend on each other",
        f"{_AXES} Parameters that `chains-move` names were left out here.",
        True,
        ("go on", "states", "reparametrise", "nuts"),
    )
    CHAINS_NOT_SETTLED = (
        "chains-not-settled",
        "Long chains of HMC still change",
        "A new fit from this answer starts its chains there.",
        True,
        ("go on", "reparametrise", "nuts"),
    )
    CHAINS_TOO_SLOW = (
        "chains-too-slow",
        "No check can tell",
        "The draws may be right.",
        True,
        ("order modes", "each of the modes", "nuts", "reparametrise"),
    )
    WEIGHTS_MOVE = (
        "weights-move",
        "Importance weights move the draws",
        "The k-hat of the weights is below its limit, so they can correct the draws.",
        True,
        ("weights", "go on", "other key", "nuts"),
    )
    WEIGHTS_MOVE_AXES = (
        "weights-move-axes",
        "Importance weights change how parameters depend on each other",
        f"{_AXES} Parameters that `weights-move` names were left out here.",
        True,
        ("weights", "go on", "reparametrise", "nuts"),
    )
    SHARES_WRONG = (
        "shares-wrong",
        "The shares of separate modes are wrong",
        "The k-hat of the weights is below its limit, so they can correct the shares.",
        True,
        ("weights", "go on", "other key"),
    )
    JOINT_SHAPE = (
        "joint-shape",
        "Draws lie where the posterior has hardly any mass",
        "Single parameters passed the checks. Functions of several, such as products and predictions, "
        "can be far off: correct the draws.",
        True,
        ("weights", "states", "nuts"),
    )
    RUNS_DIFFER = (
        "runs-differ",
        "Two runs of the training found different draws",
        "Fit again with another key and without `init=`. If the doubt returns, plot the draws of both "
        "fits: modes that only one of them has are real, unless their density is much lower.",
    )
    RUN_NOT_EXAMINED = (
        "run-not-examined",
        "The second run could not be compared",
        "Fit again with another key and without `init=`. If the doubt returns, look for overflow in "
        "the log density.",
    )
    MISSED_MODE = (
        "missed-mode",
        "The draws lack a mode",
        "A new fit may keep it.",
        True,
        ("other key", "train"),
    )
    SECOND_MODE = (
        "second-mode",
        "A second mode in many dimensions",
        "The answer covers one mode only.",
        True,
        ("order", "each mode"),
    )
    IMPROPER = (
        "improper",
        "The posterior may be improper",
        "Give the named parameter a proper prior. No method can sample an improper posterior.",
    )
    NOT_EXAMINED = (
        "not-examined",
        "The draws cannot be examined",
        "The log density is infinite or NaN at some draws: write the model on an unconstrained scale "
        "(`ksivi.Target.from_pytree(..., supports=...)`), or use double precision "
        '(`jax.config.update("jax_enable_x64", True)`).',
    )
    NOT_CHECKED = (
        "not-checked",
        "The draws were not checked",
        "Give a larger `budget_s`, or none.",
    )
    BUDGET = (
        "budget",
        "The time was used up",
        "This is the best answer so far. Give a larger `budget_s`, or go on from here with "
        "`fit = ksivi.fit(key, target, init=fit)`.",
    )
    TIME_LIMIT = (
        "time-limit",
        "The training used all its time",
        "If the fit is not trusted, give a larger `budget_s`, or go on from here with "
        "`fit = ksivi.fit(key, target, init=fit, budget_s=600)`.",
        False,
    )
    STEP_LIMIT = (
        "step-limit",
        "The run took all its steps",
        'It checks nothing. Look at `fit.history["loss"]`: if it still falls, go on with '
        "`resume=fit.state`. Check a trained sampler with `fit = ksivi.fit(key, target, init=fit)`, which "
        "also improves it if need be.",
        False,
    )
    NOT_SETTLED = (
        "not-settled",
        "The training took all its steps",
        "The checks decide, not the bound: a trusted fit needs nothing more. If the fit is not trusted, "
        "follow the next steps of its doubts.",
        False,
    )
    STILL_ANNEALED = (
        "still-annealed",
        "The run ended before the annealing did",
        "The draws are of a flatter density than the target. Take more steps than "
        "`ksivi.Annealing(horizon=…)`, or go on with `resume=fit.state`.",
    )
    DIVERGED = (
        "diverged",
        "The run diverged",
        "Do not use these draws. Look for overflow in the log density (exponentials, divisions, "
        "logarithms of values near 0), standardise the data, and use a smaller learning rate or double "
        "precision.",
    )
    INTERRUPTED = (
        "interrupted",
        "The run was stopped",
        "Run the same call again. With `checkpoint=folder` the training continues where it was.",
    )
    NOT_REFINED = (
        "not-refined",
        "There are no corrected draws",
        'Ask for them again, `fit = ksivi.fit(key, target, init=fit, refine="hmc")`, and let the '
        "refinement finish. If the draws of the answer could not be checked, mend that first.",
        False,
    )
    ROWS_ERROR = (
        "rows-error",
        "Some rows are not enough",
        f"{_ALL_ROWS}. Otherwise use the draws with the stated error of the log density in mind.",
    )
    ROWS_NOT_MEASURED = (
        "rows-not-measured",
        "The error of using some rows was not measured",
        "Give a larger `budget_s`: the last pass over all rows is missing.",
    )
    ROWS_MODES = (
        "rows-modes",
        "Only the highest of several modes was examined",
        f"{_ALL_ROWS}.",
    )
    LINES_ERROR = (
        "lines-error",
        "Integrals of the score depend on the line",
        "If you can write the log density, use `ksivi.Target`. Otherwise check that the score is the "
        "gradient of one function: its Jacobian is symmetric.",
    )
    LINES_NOT_COMPARED = (
        "lines-not-compared",
        "Integrals of the score were not compared",
        "Run the same call again, and let it finish. If the score is not finite at some draws, correct it.",
    )
    R_HAT = (
        "r-hat",
        "The chains do not agree",
        "Run longer, for example `ksivi.NUTS(num_warmup=2_000, num_draws=5_000)`. If R-hat stays large, look for "
        f"separate modes, or {REPARAMETRISE}.",
    )
    FEW_EFFECTIVE = (
        "few-effective",
        "Too few effective draws",
        "Draw more, for example `ksivi.NUTS(num_draws=5_000)`. If the number stays small, standardise the data and "
        "reparametrise.",
    )
    DIVERGENCES = (
        "divergences",
        "NUTS had divergent transitions",
        "Take smaller steps, `ksivi.NUTS(target_acceptance=0.99)`. If divergences remain, "
        f"{REPARAMETRISE}.",
    )
    TOO_FEW_CHAINS = (
        "too-few-chains",
        "There are too few chains or draws to compare",
        "Run several chains, for example `ksivi.NUTS(num_chains=4)`, with at least a few hundred draws "
        "each.",
    )

    COULD_NOT_RUN = (
        "could-not-run",
        "A method of a comparison could not run",
        "The status says why. Change the problem, or leave this method out of `methods`.",
    )

    def doubt(
        self, sentence: str, coordinates: Iterable[int] | None = None, by_tail: Iterable[int] = ()
    ) -> "Doubt":
        """A doubt with this code."""
        where = None if coordinates is None else tuple(coordinates)
        return Doubt(self.value, sentence, where, tuple(by_tail))

    @classmethod
    def of(cls, code: str) -> "Code | None":
        """The code with this name; None for one of a later version."""
        return next((one for one in cls if one.value == code), None)


@dataclasses.dataclass(frozen=True)
class Doubt:
    """A reason not to trust draws, or an ending that a user can act on. `str` gives the sentence.

    **Attributes:**

    - `code`: a short word that stays the same in later versions, such as `chains-move`.
    - `sentence`: what was found, with its numbers.
    - `coordinates`: the unconstrained coordinates that it is about; None if it is about all draws.
    - `by_tail`: those of these coordinates whose mean and width are right, and a tail is not, or both.
    """

    code: str
    sentence: str
    coordinates: tuple[int, ...] | None = None
    by_tail: tuple[int, ...] = ()

    def __post_init__(self):
        object.__setattr__(self, "by_tail", tuple(map(int, self.by_tail)))
        if self.coordinates is not None:
            object.__setattr__(self, "coordinates", tuple(map(int, self.coordinates)))

    def __str__(self) -> str:
        return self.sentence

    @property
    def is_about_all(self) -> bool:
        """Whether it speaks against every parameter. A code of a later version does."""
        known = Code.of(self.code)
        return self.coordinates is None and (known is None or known.is_doubt)
