"""How accurate draws are, and whether fits know: `python -m benchmarks.accuracy`.

`ksivi.fit` against Laplace, Pathfinder, Gaussian families, a flow and NUTS, over the development set, in one run. Each
result is a line of JSON in `--out`, and is not made again. The table and the figure are made from those lines alone.

Several processes share the work where they are given one folder of `--claims`: each takes what no other has taken.
Draws of the truths, some of which are long chains of NUTS, are kept in `--truths`.

    for i in 0 1 2 3; do python -m benchmarks.accuracy --seeds 5 --claims claims --truths truths & done; wait
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

import ksivi

from .accuracy_report import OURS, figure, table
from .criterion import Criterion
from .development import Case, cases, mixtures
from .rivals import RIVALS

METHODS = (OURS, *RIVALS)
_DRAW_SEED, _NUM_DRAWS = 10_000, 1_000
_MANY_SEED, _NUM_MANY = 20_000, 20_000
"""So many draws tell a sampler that is wrong from 1,000 draws that are unlucky, as exact ones are at times."""


def main() -> None:
    options = _options()
    done = _read(options.out)
    for case in mixtures.cases() if options.set == "mixtures" else cases():
        if options.cases and case.name not in options.cases:
            continue
        wanted = [
            (method, seed)
            for method in options.methods
            for seed in range(options.seeds)
            if (case.name, method, seed) not in done
        ]
        _run_case(case, wanted, options)
    records = list(_read(options.out).values())
    print("\n" + table(records, METHODS))
    if options.figure:
        figure(options.figure, records, METHODS)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("benchmarks/records/accuracy.jsonl"))
    parser.add_argument("--methods", nargs="+", default=[OURS], choices=METHODS)
    parser.add_argument(
        "--set",
        default="development",
        choices=("development", "mixtures"),
        help="posteriors to fit: the development set, or mixtures of separate modes",
    )
    parser.add_argument("--cases", nargs="+", default=[])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument(
        "--claims", type=Path, help="a folder, empty at first, of what is being run by any process"
    )
    parser.add_argument("--truths", type=Path, help="a folder to keep draws of the truths in")
    parser.add_argument("--figure", type=Path, help="where to draw the table")
    return parser.parse_args()


def _run_case(case: Case, wanted: list[tuple[str, int]], options: argparse.Namespace) -> None:
    criterion = None
    for method, seed in wanted:
        if not _claim(options.claims, f"{case.name}-{method}-{seed}"):
            continue
        criterion = Criterion(_truth(case, options.truths)) if criterion is None else criterion
        record = {"case": case.name, "dim": case.target.dim, "method": method, "seed": seed}
        record["held_out"] = case.held_out
        record |= _measure(case, criterion, method, seed)
        with options.out.open("a") as file:
            file.write(json.dumps(record) + "\n")
        print(_in_words(record), flush=True)


def _claim(folder: Path | None, name: str) -> bool:
    """Whether this process may run it: only one makes the folder of that name."""
    if folder is None:
        return True
    try:
        (folder / name).mkdir(parents=True)
    except FileExistsError:
        return False
    return True


def _truth(case: Case, folder: Path | None) -> np.ndarray:
    path = None if folder is None else folder / f"{case.name}.npy"
    if path is not None and path.exists():
        return np.load(path).astype(np.float64)
    draws = case.truth()
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path, draws.astype(np.float32))
    return draws


def _measure(case: Case, criterion: Criterion, method: str, seed: int) -> dict[str, Any]:
    """One fit, compilation included, and its accuracy; a method that fails is not accurate."""
    jax.clear_caches()  # a second seed compiles again, as a user's first one does
    began = time.perf_counter()
    said: dict[str, Any] = {}
    try:
        if method == OURS:
            fit = ksivi.fit(jax.random.key(seed), case.target, progress=False)
            posterior = fit.posterior
            said = {"trusted": fit.trusted, "status": str(fit.status), "steps": fit.cost.steps}
            said |= {"diagnostics": dict(fit.diagnostics.rows())}
        else:
            posterior = RIVALS[method](jax.random.key(seed), case.target)
        draws = np.asarray(case.view(jax.random.key(_DRAW_SEED + seed), posterior, _NUM_DRAWS))
        seconds = time.perf_counter() - began
        many = np.asarray(case.view(jax.random.key(_MANY_SEED + seed), posterior, _NUM_MANY))
    except (ValueError, RuntimeError, FloatingPointError) as error:
        return {
            "seconds": time.perf_counter() - began,
            "accurate": False,
            "failures": [str(error)[:200]],
        }
    if not np.isfinite(draws).all():
        failures = ["draws that are not finite"]
        return {
            "seconds": seconds,
            "accurate": False,
            "failures": failures,
            "failures_of_many": failures,
            **said,
        }
    found = criterion.measure(draws)
    ratio = round(found.distance / found.floor, 3)
    return {
        "seconds": round(seconds, 1),
        "accurate": found.accurate,
        "failures": found.failures,
        "failures_of_many": criterion.measure(many[np.isfinite(many).all(axis=1)]).failures,
        "distance": ratio,
    } | said


def _in_words(record: dict[str, Any]) -> str:
    trust = {True: "trusted", False: "doubted"}.get(record.get("trusted"), "")
    verdict = "accurate" if record["accurate"] else "; ".join(record["failures"])
    where = f"{record['case']:<22} {record['method']:<11} seed {record['seed']}"
    distance = f"{record.get('distance', float('nan')):5.2f} × floor"
    return f"{where}  {record['seconds']:5.0f} s  {distance}  {trust:<8} {verdict}  {record.get('status', '')}"


def _read(path: Path) -> dict[tuple[str, str, int], dict[str, Any]]:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = path.read_text().splitlines() if path.exists() else []
    records = [json.loads(line) for line in lines]
    return {(record["case"], record["method"], record["seed"]): record for record in records}


if __name__ == "__main__":
    main()
