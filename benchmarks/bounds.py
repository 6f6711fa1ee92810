"""Whether the bounds of `fit.table()` hold: `python -m benchmarks.bounds --seeds 5`.

A bound says that a mean or a log width is off by at least bound − 2 standard errors. Posteriors with a known truth
say how far it is off. Three kinds of draws are looked at:

- **fit**, the draws of `ksivi.fit`, which are nearly always right;
- **short**, a sampler that was trained for 30 steps only, so that many fits are doubted;
- **rough**, independent normal draws around the fit's medians, 0.7 times as wide. They are wrong, and the bounds come
  from chains alone.

Each line of JSON in `--out` is about one fit, and is not made again. `--summary` reads them all. "exceeds" counts the
numbers whose bound − 2 errors is above the error. The error itself is known from 20,000 draws of the truth and of the
answer; "surely" counts those that are above by two more standard errors of that.

    python -m benchmarks.bounds --seeds 5
    python -m benchmarks.bounds --kinds short --seeds 1
"""

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

import ksivi
from ksivi.diagnostics import Better, error_bounds
from ksivi.families import Empirical
from ksivi.results import ParameterChecks, numbers_of

from .development import Case, case, names

Draws = Float[np.ndarray, "n p"]

QUICK = (
    *("log-gamma-1", "banana", "skewed-8", "twisted-4", "mixture-2", "x-shaped", "multimodal"),
    *("far-scales-12", "mixture-5", "circle-of-8", "crossing-modes-4", "two-modes-10", "ring"),
    *("heavy-tails-5", "chained-bananas-6", "funnel-3", "gaussian-50", "robust-regression"),
    *("category-shares", "logistic-separated", "hierarchy-noncentred", "schools-centred"),
    *("growth-curve", "zero-inflated", "negative-binomial", "logistic-20", "ordered-grades"),
    *("survival", "wave", "shell-4", "funnel-10", "hierarchy-centred", "varying-slopes"),
)
"""Those that take seconds."""
KINDS = ("fit", "short", "rough")
_SHORT = ksivi.Recipe(num_pretraining=50, max_steps=30, chunk=10)
_NUM_DRAWS, _NARROW = 20_000, 0.7
_LARGE = 0.1
"""Errors above it should show."""


def main() -> None:
    options = _options()
    done = {(one["case"], one["seed"], one["kind"]) for one in _read(options.out)}
    last = "short" if "short" in options.kinds else "rough"
    ends = time.monotonic() + (options.limit_s or float("inf"))
    for name in () if options.summary else _cases(options.cases):
        left = [s for s in range(options.seeds) if (name, s, last) not in done]
        if left and time.monotonic() < ends:
            for line in _of_case(name, left, options.kinds, ends):
                with options.out.open("a") as file:
                    file.write(json.dumps(line) + "\n")
                print(_in_words(line), flush=True)
    print(summary(_read(options.out)))


def summary(lines: list[dict[str, Any]]) -> str:
    """How often bounds exceed errors, by number and by fit."""
    parts = []
    for kind in KINDS:
        some = [line for line in lines if line["kind"] == kind]
        if not some:
            continue
        parts.append(f"{kind}: {len(some)} of {len({line['case'] for line in some})} posteriors")
        for what in ("mean", "width"):
            count = sum(line["numbers"] for line in some)
            over, surely = (sum(line[what][how] for line in some) for how in ("exceeds", "surely"))
            fits = sum(line[what]["surely"] > 0 for line in some)
            large, shown = (sum(line[what][how] for line in some) for how in ("large", "shown"))
            parts.append(
                f"  {what:<6} exceeds in {over} of {count} numbers, surely in {surely}, "
                f"in {fits} of {len(some)} fits; of {large} errors above {_LARGE:g} it shows {shown}"
            )
        whole = sum(line["mean"]["surely"] + line["width"]["surely"] == 0 for line in some)
        strict = sum(line["mean"]["exceeds"] + line["width"]["exceeds"] == 0 for line in some)
        parts.append(
            f"  all bounds hold in {strict} of {len(some)} fits, and within the noise of the truth "
            f"in {whole}"
        )
    return "\n".join(parts)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("benchmarks/records/bounds.jsonl"))
    parser.add_argument("--cases", nargs="+", default=[], help="default: all, the quick ones first")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--kinds", nargs="+", default=["fit", "rough"], choices=KINDS)
    parser.add_argument("--limit-s", type=float, help="nothing new begins after so many seconds")
    parser.add_argument("--summary", action="store_true", help="only read the lines")
    return parser.parse_args()


def _cases(wanted: list[str]) -> list[str]:
    unknown = set(wanted) - set(names())
    if unknown:
        raise SystemExit(f"no such case: {', '.join(unknown)}; there are {', '.join(names())}")
    return wanted or sorted(names(), key=lambda name: name not in QUICK)


def _read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _of_case(
    name: str, seeds: list[int], kinds: list[str], ends: float
) -> Iterator[dict[str, Any]]:
    """The lines of one posterior; none if its truth is not known."""
    one = case(name)
    try:
        truth = np.asarray(one.truth(), np.float64)
    except (ValueError, RuntimeError) as error:
        print(f"{name}: no truth, {error}", flush=True)
        return
    for seed in seeds:
        if time.monotonic() > ends:
            return
        if "short" in kinds:
            yield from _fitted(one, "short", truth, seed, recipe=_SHORT)
        if "fit" in kinds or "rough" in kinds:
            yield from _fitted(one, "fit", truth, seed)


def _fitted(one: Case, kind: str, truth: Draws, seed: int, **how: Any) -> Iterator[dict[str, Any]]:
    """The line of a fit, and of draws that are wrong in a known way beside a default one."""
    began = time.perf_counter()
    fit = ksivi.fit(jax.random.key(seed), one.target, progress=False, **how)
    about = {"case": one.name, "seed": seed, "trusted": fit.trusted, "codes": fit.status.codes}
    about |= {"answer": fit.diagnostics.answer, "fit_s": round(time.perf_counter() - began, 1)}
    found = fit.diagnostics.parameters
    if found is not None:
        draws = fit.posterior.host_draws(np.random.default_rng(seed + 1), _NUM_DRAWS)
        yield about | {"kind": kind} | _compared(one, fit.posterior, found, draws, truth)
    if not how:
        yield about | {"kind": "rough"} | _rough(one, fit.posterior, truth, seed)


def _rough(one: Case, of: ksivi.Posterior, truth: Draws, seed: int) -> dict[str, Any]:
    """Draws that are wrong in a known way, and what chains show of it."""
    rng = np.random.default_rng(seed)
    known = of.host_draws(rng, 4_000)
    low, middle, high = np.quantile(known, (0.16, 0.5, 0.84), axis=0)
    wide = 0.5 * _NARROW * (high - low)
    draws = middle + wide * rng.standard_normal((_NUM_DRAWS, one.target.dim))
    posterior = ksivi.Posterior.of(Empirical(jnp.asarray(draws, jnp.float32)), one.target)
    moved = ksivi.diagnostics.movement(jax.random.key(seed), one.target, posterior)
    numbers, kept = numbers_of(posterior), moved.kept
    states = numbers.of(kept.reshape(-1, kept.shape[2])).reshape(*kept.shape[:2], -1)
    found = ParameterChecks.of(
        numbers.names,
        numbers.of(draws[:10_000]),
        error_bounds(numbers.of(draws[:10_000]), Better(states, numbers.of(moved.before))),
    )
    return _compared(one, posterior, found, draws, truth)


def _compared(
    one: Case, posterior: ksivi.Posterior, found: ParameterChecks, draws: Draws, truth: Draws
) -> dict[str, Any]:
    """The bounds beside the errors, which have some noise of their own."""
    numbers = numbers_of(posterior)
    names = list(numbers.names)
    known = [name for name in names if name in (one.columns or names)]
    at = [names.index(name) for name in known]
    ours = numbers.of(draws)[:, at]
    theirs = truth[:, [one.columns.index(n) for n in known]] if one.columns else numbers.of(truth)
    sd = np.maximum(np.asarray(found.sd)[at], 1e-30)
    widths = [np.diff(np.quantile(x, (0.05, 0.95), axis=0), axis=0)[0] for x in (ours, theirs)]
    mean = np.abs(ours.mean(axis=0) - theirs.mean(axis=0)) / sd
    noise = np.sqrt(ours.var(axis=0) / len(ours) + theirs.var(axis=0) / len(theirs)) / sd
    with np.errstate(divide="ignore", invalid="ignore"):
        width = np.abs(np.log(widths[0] / widths[1]))
    width_noise = np.full(len(sd), 1.1 * np.sqrt(1 / len(ours) + 1 / len(theirs)))
    return {
        "numbers": len(sd),
        "mean": _counts(_at(found.mean_off, at), _at(found.mean_off_error, at), mean, noise),
        "width": _counts(
            _at(found.width_off, at), _at(found.width_off_error, at), width, width_noise
        ),
    }


def _at(values: Any, at: list[int]) -> np.ndarray:
    return np.asarray(values, float)[at]


def _counts(
    bounds: np.ndarray, errors: np.ndarray, actual: np.ndarray, noise: np.ndarray
) -> dict[str, Any]:
    least = bounds - 2 * errors
    is_large = actual > _LARGE
    return {
        "exceeds": int(np.sum(least > actual)),
        "surely": int(np.sum(least > actual + 2 * noise)),
        "large": int(np.sum(is_large)),
        "shown": int(np.sum(is_large & (least > 0.5 * _LARGE))),
        "largest_excess": round(float(np.nanmax(least - actual)), 3),
        "worst_error": round(float(np.nanmax(actual)), 3),
        "worst_least": round(float(max(np.nanmax(least), 0.0)), 3),
    }


def _in_words(line: dict[str, Any]) -> str:
    trust = "trusted" if line["trusted"] else "doubted"
    parts = [f"{line['case']:<22} seed {line['seed']} {line['kind']:<6} {trust}"]
    for what in ("mean", "width"):
        one = line[what]
        parts.append(f"{what} off {one['worst_error']:.2f}, at least {one['worst_least']:.2f}")
        parts.append(f"exceeds {one['exceeds']} ({one['largest_excess']:+.3f})")
    return "  ".join(parts)


if __name__ == "__main__":
    main()
