"""Settings of the robust KSIVI, varied: `python -m benchmarks.robust [--problems banana x-shaped] [--out folder]`.

Each line of `--variants` is a JSON object of changes to `ksivi.comparison.RobustPlan`; an empty object is the plan as
it is. `--parts` takes the plan as it is, and without each of its parts. `--all` holds changes for every line. Each
problem has a process of its own, which searches for coordinates once for each seed, and writes
`<out>/<problem>.jsonl`: for each variant the sliced W₂ of each seed in floors, the distances of exact draws to exact
draws, and the seconds of all seeds together, compilation included.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

import ksivi
from benchmarks.development import case
from ksivi.comparison import RobustPlan, redraw, sliced_distances
from ksivi_paper.cells import ProblemSpec

_DIFFUSION = {"drift": "released", "observations": "authors"}
PROBLEMS = {
    **{
        name: ProblemSpec.of(name)
        for name in ("banana", "multimodal", "x-shaped", "student-t", "eight-gaussians")
    },
    "waveform": ProblemSpec.of("waveform", data="authors"),
    **{
        f"diffusion-{dim}": ProblemSpec.of("diffusion", dim=dim, **_DIFFUSION)
        for dim in (50, 100, 200)
    },
}
"""The problems of the paper. Others are the development posteriors of the study of `fit`."""
PARTS: dict[str, dict[str, Any]] = {
    "all parts": {},
    "σ(z) learns as fast as μ(z)": {"scale_rate": 1.0},
    "no annealing": {"coldest": None},
    "no tilt": {"across": 0.0, "growth": 0.0},
    "a tilt of directions only": {"growth": 0.0},
    "one kernel": {"scales": [0.3]},
    "a narrow start": {"sd": 0.4},
    "no moving average": {"ema": None},
    "coordinates as they are": {"is_whitened": False},
    "the score of the mixture": {"estimator": "mixture"},
}
"""The plan without each of its parts: changes, by what is left out or put in its place."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--problems", nargs="+", default=["banana", "x-shaped", "waveform", "diffusion-100"]
    )
    parser.add_argument("--variants", type=Path, help="A file with a JSON object per line.")
    parser.add_argument("--parts", action="store_true", help="The plan without each of its parts.")
    parser.add_argument("--all", default="{}", help="Changes for every variant, as JSON.")
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--out", type=Path, default=Path("local/robust"))
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    if len(args.problems) > 1:
        sys.exit(_beside(args))
    variants = [json.loads(args.all) | changes for changes in _variants(args)]
    run(args.problems[0], variants, args.seeds, args.out / f"{args.problems[0]}.jsonl")


def _variants(args: argparse.Namespace) -> list[dict[str, Any]]:
    if args.parts:
        return list(PARTS.values())
    lines = args.variants.read_text().splitlines() if args.variants else ["{}"]
    return [json.loads(line) for line in lines if line.strip()]


def _beside(args: argparse.Namespace) -> int:
    """A process for each problem."""
    rest = ["--all", args.all, "--seeds", str(args.seeds), "--out", str(args.out)]
    rest += ["--variants", str(args.variants)] if args.variants else []
    rest += ["--parts"] if args.parts else []
    command = [sys.executable, "-m", "benchmarks.robust", "--problems"]
    # Several processes share a GPU: none of them may take all of its memory.
    environment = os.environ | {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    processes = [
        subprocess.Popen([*command, name, *rest], env=environment) for name in args.problems
    ]
    return max(process.wait() for process in processes)


def run(name: str, variants: list[dict[str, Any]], seeds: int, out: Path) -> None:
    target, truth = _problem(name)
    keys = jax.random.split(jax.random.key(0), seeds)
    began = time.perf_counter()
    whitened = [ksivi.auto.whitened(key, target) for key in keys]
    print(f"{name}: coordinates in {time.perf_counter() - began:.0f} s", flush=True)
    for changes in variants:
        plan, began = RobustPlan().replace(**_as_tuples(changes)), time.perf_counter()
        targets = whitened if plan.is_whitened else [target] * seeds
        try:
            fits = plan.train(keys, targets)
        except (ValueError, RuntimeError) as error:
            _write(out, {"problem": name, "changes": changes, "error": str(error)})
            continue
        floors = [_floors(fit.posterior, truth) for fit in fits]
        record = {
            "problem": name,
            "changes": changes,
            "floors": [round(value, 3) if math.isfinite(value) else None for value in floors],
            "status": [fit.status.kind for fit in fits],
            "precision": [float(f"{fit.history['trace_precision'][-1]:.3g}") for fit in fits],
            "seconds": round(time.perf_counter() - began, 1),
        }
        _write(out, record)


def _write(out: Path, record: dict[str, Any]) -> None:
    print(json.dumps(record), flush=True)
    with out.open("a") as file:
        file.write(json.dumps(record) + "\n")


def _as_tuples(changes: dict[str, Any]) -> dict[str, Any]:
    return {k: tuple(v) if isinstance(v, list) else v for k, v in changes.items()}


def _problem(name: str) -> tuple[ksivi.Target, Any]:
    """The target, with blocks of exact draws and their floor."""
    if name in PROBLEMS:
        return PROBLEMS[name].make().target, PROBLEMS[name].truth()
    development = case(name)
    return development.target, _truth_of(development.truth()[:10_000])


def _truth_of(draws: np.ndarray) -> ksivi.comparison.Truth:
    blocks = jax.numpy.asarray(draws.reshape(10, 1_000, -1))
    floors = sliced_distances(jax.random.key(1), jax.numpy.roll(blocks, 1, axis=0), blocks)
    return ksivi.comparison.Truth(blocks, float(np.mean(floors)), float(np.std(floors, ddof=1)))


def _floors(posterior: ksivi.Posterior, truth: ksivi.comparison.Truth) -> float:
    samples = redraw(jax.random.key(2), posterior.sample, len(truth.blocks))
    found = np.mean(sliced_distances(jax.random.key(3), samples, truth.blocks))
    return float(found) / truth.floor if math.isfinite(found) else math.inf


if __name__ == "__main__":
    main()
