"""The page of a run: verdict, curves, marginals, pairs, tables, cost and versions."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import PRNGKeyArray

from .._core.schema import conform
from ..diagnostics import SMALL_CHANGES
from ..results import (
    Cost,
    FitDiagnostics,
    Record,
    Table,
    named_columns,
    require_finite,
    rows_of,
)
from ._figures import dress, mass_levels, new_figure, own_style
from ._html import note, page, panels, section, table
from ._what_now import parameters, verdict

_NUM_DRAWS = 4_000
_MARGINALS, _PAIRED = 12, 5
_BLUE, _GRID, _MASSES = "#3f8fd2", 40, (0.9, 0.6, 0.3)
_QUANTILES = {"5%": 0.05, "median": 0.5, "95%": 0.95}

MEANINGS = {
    "ELBO": "The evidence lower bound and its standard error, in nats: log evidence − KL(q‖p).",
    "log evidence": "log ∫ p(x) dx by importance weights, in nats. In a good fit it is close to the ELBO.",
    "Pareto k-hat": "How heavy the tail of the weights is. Below the limit they are reliable.",
    "effective share": "The effective sample size of the weights, as a share of the draws.",
    "weights move": "How much importance weights change the draws: average (worst). Small is good.",
    "HMC moves": "How much HMC changes the draws. Memory: how much it depends on the start.",
    "runs differ": "How much an independent run differs from this one.",
    "KSD²": "The kernel Stein discrepancy with a bootstrap band. It does not affect the verdict.",
    "stein ratio": "1 if the draws are as wide as the target, above 1 if they are too wide.",
    "skipped steps": "Training steps that were skipped because they were not finite.",
    "not finite": "What was not finite when the training diverged.",
    "R-hat": "The largest rank-normalised split R-hat. Below 1.01 the chains agree.",
    "effective sample size": "The smallest of all coordinates, in the bulk or in the tails.",
    "divergences": "Divergent transitions of NUTS. There should be none.",
    "acceptance": "The mean acceptance rate after the warm-up.",
    "rows": "How many rows the checks used, and the error of the log density from that.",
    "line integrals": "How far log densities differ between integrals of the score along lines.",
    "modes": "How many separate modes the search found, and how it looked for them.",
    "answer": "What the draws come from.",
    "refined draws": "Corrected draws, and their verdict. All else is about the draws before the correction.",
}
_SMALL = f"Means (in sd) and log widths {SMALL_CHANGES}"
LIMITS = {
    "Pareto k-hat": "Beside the value.",
    "effective share": "None. Near 1 is good.",
    "weights move": f"{_SMALL}. It counts where the second k-hat is below the limit.",
    "HMC moves": f"{_SMALL}; memory below 0.5, unless the weights can tell.",
    "runs differ": f"{_SMALL}; more is allowed if the other run is only narrower.",
    "KSD²": "None: it decides nothing.",
    "rows": "At most 0.1 nats.",
    "line integrals": "At most 0.1 nats.",
    "stein ratio": "None. 1 is right.",
    "R-hat": "Below 1.01.",
    "effective sample size": "At least 400.",
    "divergences": "0.",
}


@own_style()
def run_page(record: Record, key: PRNGKeyArray | None = None) -> str:
    """One HTML document about a run. It needs no other file and no network.

    **Arguments:**

    - `record`: the run, from `ksivi.read_record`.
    - `key`: for the draws on the page.
    """
    key = jax.random.key(0) if key is None else key
    found = record.posterior.draws(key, _NUM_DRAWS)
    require_finite(found)
    draws = named_columns(found)
    has_checks, rows = _has_checks(record), record.table()
    draws = _worst_first(draws, rows)
    parts = [
        verdict(record),
        parameters(rows) if has_checks else "",
        _curves(record.history),
        _marginals(draws),
        _pairs(draws),
        "" if has_checks else _summary(draws),
    ]
    parts += [_diagnostics(record.facts), _costs(record.facts)]
    return page(str(record.facts.get("model", "ksivi")), "\n".join(part for part in parts if part))


def _has_checks(record: Record) -> bool:
    found = record.diagnostics
    return isinstance(found, FitDiagnostics) and found.parameters is not None


def _worst_first(draws: dict[str, np.ndarray], rows: Table) -> dict[str, np.ndarray]:
    """Numbers that are not trusted come first, those that are farthest off before the others."""
    off = {
        row.name: max(np.nan_to_num([row.mean_off.at_least, row.width_off.at_least]))
        for row in rows
        if row.against
    }
    return {name: draws[name] for name in sorted(draws, key=lambda name: -off.get(name, -1.0))}


def _curves(history: dict[str, np.ndarray]) -> str:
    """The losses and the Stein ratio, as medians over windows, because single steps are noisy."""
    names = {"bound": "SIVI's bound", "loss": "loss", "stein_ratio": "Stein ratio"}
    found = {name: history[name] for name in names if len(history.get(name, ()))}
    shown = [
        (f"{names[name]} along the steps", _curve(history["step"], values, names[name]))
        for name, values in found.items()
    ]
    words = note(
        "Medians over 50 windows. If the loss still falls at the end, train for more steps. If it rises "
        "or jumps, the training is not stable: try other coordinates."
    )
    return section("Training", panels(shown, wide=True), words) if shown else ""


@own_style()
def growing_curve(steps: Sequence[int], losses: Sequence[float]) -> str:
    """The loss of a running fit, with one point per chunk."""
    return panels(
        [("loss so far", _curve(np.asarray(steps), np.asarray(losses), "loss"))], wide=True
    )


def _curve(steps: np.ndarray, values: np.ndarray, title: str) -> Any:
    figure = new_figure(figsize=(5.2, 2.4))
    axis = figure.subplots()
    parts = np.array_split(np.arange(len(values)), min(50, len(values)))
    axis.plot(
        [steps[part].mean() for part in parts],
        [_median(values[part]) for part in parts],
        color=_BLUE,
    )
    axis.set_xlabel("steps", fontsize=9)
    dress(axis, title)
    return figure


def _median(values: np.ndarray) -> float:
    taken = values[np.isfinite(values)]
    return float(np.median(taken)) if taken.size else float("nan")


def _marginals(draws: dict[str, np.ndarray]) -> str:
    shown = [
        (f"marginal of {name}", _marginal(name, x)) for name, x in list(draws.items())[:_MARGINALS]
    ]
    rest = (
        note(f"{_MARGINALS} of {len(draws)}, doubted ones first; all are in the table.")
        if len(draws) > _MARGINALS
        else ""
    )
    return section("Marginals", panels(shown), rest)


def _marginal(name: str, x: np.ndarray) -> Any:
    figure = new_figure(figsize=(3.0, 1.9))
    axis = figure.subplots()
    low, high = _frame(x)
    axis.hist(
        x[np.isfinite(x)],
        bins=40,
        range=(low, high),
        color=_BLUE,
        alpha=0.75,
        histtype="stepfilled",
    )
    axis.axvline(_median(x), color="black", linewidth=1)
    axis.set_yticks([])
    dress(axis, _plain(name))
    axis.spines["left"].set_visible(False)
    return figure


def _pairs(draws: dict[str, np.ndarray]) -> str:
    names = list(draws)[:_PAIRED]
    pairs = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :]]
    if not pairs:
        return ""
    shown = [(f"{a} and {b}", _pair(a, b, draws[a], draws[b])) for a, b in pairs]
    of = f" of {_PAIRED} parameters, doubted ones first" if len(draws) > _PAIRED else ""
    return section(
        "Pairs", panels(shown), note(f"All pairs{of}; areas hold 30, 60 and 90% of the draws.")
    )


def _pair(a: str, b: str, x: np.ndarray, y: np.ndarray) -> Any:
    figure = new_figure(figsize=(3.0, 2.6))
    axis = figure.subplots()
    spans = [_frame(x), _frame(y)]
    axis.scatter(x[:300], y[:300], s=2, color=_BLUE, alpha=0.5, linewidths=0)
    counts, edges_x, edges_y = np.histogram2d(x, y, bins=_GRID, range=spans)
    if counts.any():
        density = _smooth(counts).T
        levels = np.unique([*mass_levels(density, _MASSES), density.max() * 1.01])
        centres = [0.5 * (edges[1:] + edges[:-1]) for edges in (edges_x, edges_y)]
        colours = [(0.25, 0.56, 0.82, alpha) for alpha in (0.25, 0.45, 0.7)]
        axis.contourf(*centres, density, levels=levels, colors=colours[-(len(levels) - 1) :])
    axis.set(xlim=spans[0], ylim=spans[1])
    axis.set_xlabel(_plain(a), fontsize=9)
    axis.set_ylabel(_plain(b), fontsize=9)
    dress(axis, "")
    return figure


def _smooth(counts: np.ndarray) -> np.ndarray:
    from scipy.ndimage import gaussian_filter

    return gaussian_filter(counts, 1.5)


def _plain(name: str) -> str:
    """A name without mathematics: matplotlib would read text between dollar signs as a formula."""
    return name.replace("$", r"\$")


def _frame(x: np.ndarray) -> tuple[float, float]:
    """An interval that contains everything except the extreme outliers."""
    finite = x[np.isfinite(x)]
    low, high = np.quantile(finite, (0.002, 0.998)) if finite.size else (0.0, 1.0)
    least = 1e-6 * max(abs(low), 1.0)
    return (low, high) if high - low > least else (low - 1e3 * least, high + 1e3 * least)


def _summary(draws: dict[str, np.ndarray]) -> str:
    rows: list[Sequence[str | float]] = []
    lost = 0
    for name, x in draws.items():
        finite = x[np.isfinite(x)]
        lost += len(x) - len(finite)
        finite = finite if finite.size > 1 else np.full(2, np.nan)
        quantiles = [float(q) for q in np.quantile(finite, list(_QUANTILES.values()))]
        rows.append([name, float(finite.mean()), float(finite.std(ddof=1)), *quantiles])
    bad = f" {lost:,} values that are not finite are excluded." if lost else ""
    words = note(f"From {_NUM_DRAWS:,} draws.{bad} Click a column's head to sort by it.")
    return section("Posterior", table(["parameter", "mean", "sd", *_QUANTILES], rows), words)


def _diagnostics(facts: dict[str, Any]) -> str:
    rows = [
        [name, value, LIMITS.get(name, ""), MEANINGS.get(name, "")]
        for name, value in rows_of(facts["diagnostics"])
    ]
    heads = ["check", "found", "limit", "meaning"]
    return section("Diagnostics", table(heads, rows, sortable=False)) if rows else ""


def _costs(facts: dict[str, Any]) -> str:
    cost = conform(facts["cost"], Cost, "cost")
    rows = [["seconds", f"{cost.seconds:,.1f}"], ["steps", f"{cost.steps:,}"]]
    rows += [["score evaluations", f"{cost.score_evals:,}"], ["machine", str(facts["device"])]]
    rows += [[name, str(version)] for name, version in facts["versions"].items()]
    return section("Cost and versions", table(["what", "value"], rows, sortable=False))
