"""The price of a KSIVI step in two checkouts: `python -m benchmarks.same_speed --before FOLDER`.

Two processes train the same run, one with the package of each checkout. They take turns, one chunk each, since
machines are noisy. Printed are the median times per step and the median ratio of neighbouring turns.
"""

import argparse
import os
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def worker(dim: int, seeds: int, steps: int, rounds: int) -> None:
    """Trains a chunk for each line on stdin, and prints its milliseconds per step."""
    import time

    import jax
    import optax

    import ksivi

    began = [0.0]

    def callback(_: object) -> None:
        print((time.perf_counter() - began[0]) / steps * 1e3, flush=True)
        sys.stdin.readline()
        began[0] = time.perf_counter()

    key, problem = jax.random.key(1), ksivi.problems.diffusion(dim)
    ksivi.train(
        key if seeds == 1 else jax.random.split(key, seeds),
        problem.target,
        ksivi.SemiImplicit.mlp(jax.random.key(0), dim, 100, (128, 128), log_var=-2.0),
        ksivi.KSIVI(num_samples=128),
        optimizer=optax.adam(2e-4),
        num_steps=steps * (rounds + 2),
        chunk_size=steps,
        callbacks=[callback],
        progress=False,
    )


def start(root: Path, options: argparse.Namespace) -> subprocess.Popen:
    words = [f"--{name}={getattr(options, name)}" for name in ("dim", "seeds", "steps", "rounds")]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(root / "src"), os.environ.get("PYTHONPATH", "")])
    }
    command = [sys.executable, __file__, "--worker", *words]
    return subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def turn(process: subprocess.Popen) -> float:
    process.stdin.write("\n")
    process.stdin.flush()
    return float(process.stdout.readline())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", type=Path, help="the other checkout")
    parser.add_argument("--worker", action="store_true")
    parser.add_argument("--dim", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    if options.worker:
        worker(options.dim, options.seeds, options.steps, options.rounds)
        return
    before, now = start(options.before, options), start(ROOT, options)
    for process in (before, now):  # the first chunk compiles
        process.stdout.readline()
        turn(process)
    turns = [(turn(before), turn(now)) for _ in range(options.rounds)]
    for process in (before, now):
        process.kill()
    medians = [statistics.median(times) for times in zip(*turns, strict=True)]
    ratio = statistics.median(b / a for a, b in turns)
    times = f"{medians[0]:.4f} ms before, {medians[1]:.4f} ms now"
    print(f"d = {options.dim}, {options.seeds} seeds: {times}, ratio {ratio:.3f}")


if __name__ == "__main__":
    main()
