"""The sections on the theory: smooth networks, and gradients whose variance falls as 1/N."""

import itertools
from typing import Any

import numpy as np

from ..experiments import OURS
from ..figures import scatters, style
from . import text
from .index import RecordIndex
from .page import Page

_QUANTITIES = {"jacobian": "‖∂μ/∂φ‖", "lipschitz": "Lipschitz estimate of ∂μ/∂φ"}


def smoothness(page: Page) -> None:
    page.say("## Smoothness of the networks")
    page.say(
        "The paper assumes that the Jacobian J of μ(z; φ) in φ, and its Lipschitz constant, are "
        "at most G(1 + ‖z‖). For the logistic regression and 200 random z, we show the Frobenius "
        "norm of J after several numbers of steps, and ‖J(φₐ) − J(φ_b)‖ / ‖φₐ − φ_b‖ between "
        "neighbouring stages a and b, which is at most the Lipschitz constant in the same norm. "
        "One run of each estimator."
    )
    rows = [
        _stages(page.index, method)
        for method in OURS
        if page.index.shown("smoothness", method, "smoothness")
    ]
    caption = "Both quantities against ‖z‖. Dashed lines: the smallest G(1 + ‖z‖) above all points of a stage."
    names = list(_QUANTITIES.values())
    page.figure("smoothness", caption, rows, lambda path: scatters.smoothness(path, rows, names))
    page.table(
        ("estimator", "quantity", "steps", "smallest G"),
        _bounds(rows) or [[text.NOTHING] * 4],
        words=3,
    )


def _stages(index: RecordIndex, method: str) -> list[scatters.Smoothness]:
    found = index.shown("smoothness", method, "smoothness") or {}
    steps = [f"{step:,}" for step in index.steps("smoothness", method)]
    names = {"jacobian": steps, "lipschitz": [f"{a} to {b}" for a, b in itertools.pairwise(steps)]}
    z_norm = np.asarray(found["z_norm"], float)
    parts = []
    for quantity in _QUANTITIES:
        values = [np.asarray(one, float) for one in found[quantity]]
        stages = [
            (n, v, float(np.max(v / (1 + z_norm))))
            for n, v in zip(names[quantity], values, strict=True)
        ]
        parts.append(scatters.Smoothness(style.label(method), z_norm, stages))
    return parts


def _bounds(rows: list[list[scatters.Smoothness]]) -> list[list[str]]:
    return [
        [one.title, name, steps, text.number(bound, 2)]
        for row in rows
        for one, name in zip(row, _QUANTITIES.values(), strict=True)
        for steps, _, bound in one.stages
    ]


def estimators(page: Page) -> None:
    page.say("## Variance and cost of the gradient estimators")
    page.say(
        "The logistic regression at the start of training, with log σ² = −2. For a bandwidth that "
        "does not depend on the draws, the theory bounds the variance by Σ₀/N: a slope of −1 on "
        "logarithmic axes. A term that falls as 1/N² makes the slope steeper for small N. "
        "Training uses the median bandwidth. The vanilla estimator takes 2N draws, and the "
        "u-statistic N. Errors of variances are standard errors over repeats. Errors of slopes "
        "are standard errors of the regression."
    )
    shown = [
        one
        for method in OURS
        for bandwidth in ("fixed", "median")
        if (one := _estimates(page, method, bandwidth))
    ]
    caption = "Variance of one stochastic gradient with fitted lines, and its time on the device named above."
    page.figure("estimators", caption, shown, lambda path: scatters.estimators(path, shown))
    rows = [
        _estimates_row(page, method, bandwidth)
        for method in OURS
        for bandwidth in ("fixed", "median")
    ]
    slopes = ("slope ± error, all N", "largest three N")
    page.table(
        ("estimator, bandwidth", *slopes, "N", "variance there", "ms a gradient there", "repeats"),
        rows,
    )


def _estimates(page: Page, method: str, bandwidth: str) -> scatters.Estimates | None:
    record = page.index.get("estimators", f"{method}-{bandwidth}")
    if record is None:
        return None
    n, variance, error, seconds = (
        _column(record, name) for name in ("n", "variance", "error", "seconds")
    )
    fit = _fit(record)
    line = scatters.Line(fit.slope, fit.intercept)
    return scatters.Estimates(method, bandwidth, n, variance, error, seconds, line)


def _column(record: dict[str, Any], name: str) -> np.ndarray:
    return np.asarray([row[name] for row in record["numbers"]["rows"]], float)


def _fit(record: dict[str, Any], largest: int = 0) -> Any:
    """The regression of log variance on log N, for all N or for the largest few."""
    from scipy.stats import linregress

    n, variance = (np.log(_column(record, name))[-largest:] for name in ("n", "variance"))
    return linregress(n, variance)


def _estimates_row(page: Page, method: str, bandwidth: str) -> list[str]:
    name = f"{style.label(method)}, {bandwidth}"
    record = page.index.get("estimators", f"{method}-{bandwidth}")
    if record is None:
        return [name, *[text.NOTHING] * 6]
    last = record["numbers"]["rows"][-1]
    slopes = [
        f"{text.fixed(fit.slope, 3)} ± {fit.stderr:.3f}" for fit in (_fit(record), _fit(record, 3))
    ]
    variance = f"{text.significant(last['variance'])} ± {text.significant(last['error'], 2)}"
    seconds = text.significant(1_000 * last["seconds"])
    return [name, *slopes, f"{last['n']:,}", variance, seconds, f"{record['spec']['repeats']:,}"]
