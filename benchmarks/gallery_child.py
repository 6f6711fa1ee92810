"""Runs one page of the gallery in this process: `python -m benchmarks.gallery_child PAGE OUT [--short]`.

`benchmarks.gallery` starts it in an empty folder. It writes to OUT what each block printed, and what was measured: the
seconds of the fit and of NUTS, and how far their draws agree. For that a page calls its fit `fit`, and NUTS's result
`nuts`: an MCMC of NumPyro, or what `pymc.sample` returns.
"""

import contextlib
import functools
import importlib
import io
import json
import sys
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

import ksivi

from .gallery_pages import Page

STYLE: dict[str, Any] = {
    "figure.figsize": (7.2, 3.4),
    "figure.dpi": 130,
    "savefig.dpi": 130,
    "figure.constrained_layout.use": True,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "axes.facecolor": "white",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#ececec",
    "legend.frameon": False,
    "font.size": 10,
    "lines.linewidth": 1.8,
}
COLORS = ("#0072b2", "#d55e00", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#777777")
"""Okabe and Ito's, which people with colour blindness can tell apart."""

Columns = dict[str, np.ndarray]
_NUM_DRAWS = 8_000


class Clock:
    """Measures the calls of functions, and remembers the seconds of each by its result."""

    def __init__(self) -> None:
        self.seconds: dict[int, float] = {}
        self._results: list[Any] = []  # an id is only unique while its object lives

    def measure(self, owner: Any, name: str, of_self: bool = False) -> None:
        """Replaces a function, or a method whose object is then the result."""
        plain = getattr(owner, name)

        @functools.wraps(plain)
        def timed(*args: Any, **kwargs: Any) -> Any:
            began = time.perf_counter()
            result = plain(*args, **kwargs)
            found = args[0] if of_self else result
            jax.block_until_ready(found.get_samples() if of_self else 0)
            self._results.append(found)
            self.seconds[id(found)] = time.perf_counter() - began
            return result

        setattr(owner, name, timed)


def run(page: Page, short: bool) -> dict[str, Any]:
    """What the blocks print, and the measurements."""
    clock, names = Clock(), {"__name__": "__main__"}
    _prepare(clock, page)
    printed = []
    for block in page.blocks(short):
        code = compile("\n" * block.line + block.code, str(page.path), "exec")
        with contextlib.redirect_stdout(io.StringIO()) as output:
            exec(code, names)
        printed.append(output.getvalue())
    return {"printed": printed, "measured": measured(names, clock)}


def _prepare(clock: Clock, page: Page) -> None:
    """The look of figures, and clocks on the packages that the page uses."""
    clock.measure(ksivi, "fit")
    if "numpyro" in page.text:
        clock.measure(importlib.import_module("numpyro.infer").MCMC, "run", of_self=True)
    if "pymc" in page.text:
        clock.measure(importlib.import_module("pymc"), "sample")
    matplotlib = importlib.import_module("matplotlib")
    matplotlib.use("Agg")
    matplotlib.rcParams.update(STYLE, **{"axes.prop_cycle": matplotlib.cycler(color=COLORS)})


def measured(names: dict[str, Any], clock: Clock) -> dict[str, Any]:
    """Seconds, warnings and agreement of what the page calls `fit` and `nuts`."""
    fit, nuts = names.get("fit"), names.get("nuts")
    found: dict[str, Any] = {}
    if isinstance(fit, ksivi.Fit):
        # A plug-in does not call `ksivi.fit` by that name.
        seconds = clock.seconds.get(id(fit), fit.cost.seconds)
        found |= {"fit_seconds": seconds, "trusted": fit.trusted}
        found |= {"status": str(fit.status)}
    if nuts is not None:
        chains = chains_of(nuts)
        found |= {"nuts_seconds": clock.seconds.get(id(nuts)), "nuts": _settings(nuts)}
        found |= {"divergences": _divergences(nuts), "r_hat": r_hat(chains)}
    if isinstance(fit, ksivi.Fit) and nuts is not None:
        found |= agreement(draws_of(fit, chains), chains)
    return found


def chains_of(nuts: Any) -> Columns:
    """Draws of NUTS by name, each (chains, draws, numbers)."""
    if hasattr(nuts, "get_samples"):
        found = nuts.get_samples(group_by_chain=True)
        found = found if isinstance(found, dict) else {"": found}
    else:
        found = {name: nuts.posterior[name].values for name in nuts.posterior.data_vars}
    return {name: np.reshape(x, (*np.shape(x)[:2], -1)) for name, x in found.items()}


def draws_of(fit: ksivi.Fit, chains: Columns) -> Columns:
    """Draws of the fit under the names of the chains, each (draws, numbers)."""
    key = jax.random.key(20)
    if set(chains) == {""}:
        return {"": np.asarray(fit.posterior.sample(key, _NUM_DRAWS))}
    draws = fit.posterior.draws(key, _NUM_DRAWS)
    return {name: np.reshape(draws[name], (_NUM_DRAWS, -1)) for name in chains if name in draws}


def agreement(draws: Columns, chains: Columns) -> dict[str, Any]:
    """The largest difference of means, in standard deviations of NUTS, and of log standard deviations."""
    ours = np.concatenate([draws[name] for name in draws], axis=1).astype(float)
    theirs = np.concatenate([chains[name] for name in draws], axis=2).astype(float)
    theirs = theirs.reshape(-1, theirs.shape[2])
    shifts = np.abs(ours.mean(axis=0) - theirs.mean(axis=0)) / theirs.std(axis=0)
    widths = np.abs(np.log(ours.std(axis=0) / theirs.std(axis=0)))
    return {"numbers": ours.shape[1], "means": float(shifts.max()), "widths": float(widths.max())}


def r_hat(chains: Columns) -> float:
    """The largest split R-hat."""
    from numpyro.diagnostics import split_gelman_rubin

    return float(max(np.nanmax(split_gelman_rubin(x)) for x in chains.values()))


def _settings(nuts: Any) -> str:
    if hasattr(nuts, "num_chains"):
        return f"{nuts.num_chains} × ({nuts.num_warmup:,} + {nuts.num_samples:,})"
    return f"{nuts.posterior.sizes['chain']} × {nuts.posterior.sizes['draw']:,}"


def _divergences(nuts: Any) -> int:
    if hasattr(nuts, "get_extra_fields"):
        return int(nuts.get_extra_fields()["diverging"].sum())
    return int(nuts.sample_stats["diverging"].sum())


if __name__ == "__main__":
    page, out, *rest = sys.argv[1:]
    Path(out).write_text(json.dumps(run(Page(Path(page)), "--short" in rest)))
