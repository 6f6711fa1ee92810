"""A long run, watched: `python -m benchmarks.soak`.

A million steps with checkpoints, a log and a callback. Memory must not grow, and the last tenth must be as fast as a
fresh run in a process of its own, made right after. Exits with 1 where either is not so.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import ksivi

from .memory import resident

_CHUNK = 1_000


class Watch:
    """Seconds and resident bytes after every chunk."""

    def __init__(self) -> None:
        self.steps: list[int] = []
        self.seconds: list[float] = []
        self.bytes: list[int] = []

    def __call__(self, chunk: ksivi.Chunk) -> None:
        self.steps.append(chunk.step)
        self.seconds.append(time.perf_counter())
        self.bytes.append(resident("VmRSS"))

    def speed(self, share: float) -> float:
        """Steps a second over the last share of the run."""
        first = int(len(self.steps) * (1 - share))
        return (self.steps[-1] - self.steps[first]) / (self.seconds[-1] - self.seconds[first])

    def growth(self) -> float:
        """Of the memory, from a tenth of the run on, by medians of a tenth each."""
        tenth = len(self.bytes) // 10
        return float(np.median(self.bytes[-tenth:]) / np.median(self.bytes[tenth : 2 * tenth])) - 1


def run(num_steps: int) -> Watch:
    """The run, with all that may leak switched on."""
    watch, target = (
        Watch(),
        ksivi.Target(lambda x: -0.5 * jnp.sum((x - 1) ** 2 * jnp.arange(1.0, 6.0)), dim=5),
    )
    family = ksivi.SemiImplicit.mlp(jax.random.key(0), dim=5, mixing_dim=5, hidden=(16, 16))
    with tempfile.TemporaryDirectory() as folder:
        ksivi.train(
            jax.random.key(1),
            target,
            family,
            ksivi.KSIVI(num_samples=16),
            num_steps=num_steps,
            chunk_size=_CHUNK,
            callbacks=[watch, ksivi.JSONLines(Path(folder) / "log.jsonl")],
            checkpoint=Path(folder) / "checkpoints",
            every=num_steps // 20,
        )
    return watch


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument(
        "--fresh", action="store_true", help="a tenth of the steps, and nothing but its speed"
    )
    parser.add_argument("--out", type=Path, help="a file for the figures")
    options = parser.parse_args()
    if options.fresh:
        print(run(options.steps // 10).speed(0.9))
        return 0
    watch = run(options.steps)
    command = [sys.executable, "-m", "benchmarks.soak", "--fresh", "--steps", str(options.steps)]
    fresh = float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    slower = fresh / watch.speed(0.1) - 1
    found = {
        "steps": options.steps,
        "resident_mib": watch.bytes[-1] / 2**20,
        "growth": watch.growth(),
    }
    found |= {
        "steps_per_second": watch.speed(0.1),
        "fresh_steps_per_second": fresh,
        "slower": slower,
    }
    print(json.dumps(found))
    if options.out is not None:
        options.out.write_text(json.dumps(found) + "\n")
    return int(watch.growth() > 0.05 or slower > 0.05)


if __name__ == "__main__":
    sys.exit(main())
