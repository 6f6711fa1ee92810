"""The price of a step: `python -m benchmarks.step`. One table in one run, comparisons as ratios.

On a CPU: ksivi against the direct PyTorch translation of Algorithm 1 (`benchmarks.torch_ksivi`), in turns, since
machines are noisy. On a GPU: ksivi alone, for one seed and for several at once. Then memory at large N, the cost of
the import, and whether new data trace again.

With `--methods all`: each semi-implicit method at the paper's settings for the diffusion, relative to KSIVI, in turns.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import optax

import ksivi

from .memory import MemoryPeak

N, HIDDEN = 128, (128, 128)
METHODS = {
    "ksivi": lambda: ksivi.KSIVI(num_samples=N),
    "ksivi-u": lambda: ksivi.KSIVI(estimator="u-statistic", num_samples=N),
    "ksivi-stein": lambda: ksivi.KSIVI(estimator="stein", num_samples=N),
    "ksivi-combined": lambda: ksivi.KSIVI(estimator="combined", num_samples=N),
    "sivi": lambda: ksivi.SIVI(N, num_mixing=100),
    "sivi-sm": lambda: ksivi.SIVISM(N, (512, 512), critic_optimizer=optax.adam(1e-4)),
    "uivi": lambda: ksivi.UIVI(N),
    "kpg": lambda: ksivi.objectives.KPG(N),
    "kpg-is": lambda: ksivi.objectives.KPGIS(N, 10),
    "amortized-svgd": lambda: ksivi.objectives.AmortizedSVGD(N),
    "denoised-score": lambda: ksivi.objectives.DenoisedScore(N),
    "pvi": lambda: ksivi.objectives.PVI(num_particles=N),
    "aisivi": lambda: ksivi.objectives.AISIVI(N),
}
PAPER_SECONDS = {
    "ksivi": {50: 56.67, 100: 90.48, 200: 107.84},
    "sivi": {50: 58.00, 100: 88.12, 200: 113.46},
    "sivi-sm": {50: 70.42, 100: 128.13, 200: 149.61},
}
"""For 10,000 steps, from the paper's table of training times."""


def step_times(
    dim: int,
    seeds: int,
    steps: int,
    rounds: int,
    between: Callable[[], None] = lambda: None,
    method: str = "ksivi",
) -> list[float]:
    """Milliseconds a step over `rounds` chunks of training, without compilation; `between` runs after each chunk."""
    problem = ksivi.problems.diffusion(dim)
    family = ksivi.SemiImplicit.mlp(jax.random.key(0), dim, 100, HIDDEN, log_var=-2.0)
    times: list[float] = []
    resumed = [time.perf_counter()]

    def callback(chunk: ksivi.Chunk) -> None:
        times.append((time.perf_counter() - resumed[0]) / steps * 1e3)
        between()
        resumed[0] = time.perf_counter()

    key = jax.random.key(1)
    ksivi.train(
        key if seeds == 1 else jax.random.split(key, seeds),
        problem.target,
        family,
        METHODS[method](),
        optimizer=optax.adam(2e-4),
        num_steps=steps * (rounds + 1),
        chunk_size=steps,
        callbacks=[callback],
    )
    return times[1:]


def against_torch(dim: int, steps: int, rounds: int, seeds: int) -> dict:
    """Both, in turns: one seed, and several at once, per seed."""
    import torch

    from .torch_ksivi import Translation

    torch.set_num_threads(os.cpu_count() or 1)
    torch_step = Translation(
        np.asarray(ksivi.problems.diffusion(dim).observations), dim, N, HIDDEN
    ).step
    row: dict = {}
    for name, count in {"ksivi": 1, f"{seeds}_seeds": seeds}.items():
        torch_times: list[float] = []

        def between(times: list[float] = torch_times) -> None:
            began = time.perf_counter()
            for _ in range(steps // 4):
                torch_step()
            times.append((time.perf_counter() - began) / (steps // 4) * 1e3)

        ours = [ms / count for ms in step_times(dim, count, steps, rounds, between)]
        row.setdefault("torch_ms", statistics.median(torch_times[1:]))
        row[f"{name}_ms"] = statistics.median(ours)
        row[f"{name}_ratio"] = statistics.median(
            t / k for t, k in zip(torch_times[1:], ours, strict=True)
        )
    return row


def relative_times(dim: int, names: list[str], steps: int, rounds: int) -> dict:
    """Milliseconds a step of each method, and its ratio to KSIVI's in the same round."""
    for name in names:
        step_times(dim, 1, steps, 1, method=name)
    turns = [
        {name: step_times(dim, 1, steps, 1, method=name)[0] for name in names}
        for _ in range(rounds)
    ]
    row = {}
    for name in names:
        paper = PAPER_SECONDS.get(name, {}).get(dim)
        row[name] = {
            "ms": statistics.median(turn[name] for turn in turns),
            "ratio": statistics.median(turn[name] / turn["ksivi"] for turn in turns),
            "paper_ratio": None if paper is None else paper / PAPER_SECONDS["ksivi"][dim],
        }
    return row


def compare_methods(dims: list[int], names: list[str], steps: int, rounds: int) -> dict:
    """A table of methods by dimension."""
    record = {}
    for dim in dims:
        record[dim] = relative_times(dim, names, steps, rounds)
        for name, row in record[dim].items():
            paper = "     " if row["paper_ratio"] is None else f"{row['paper_ratio']:5.2f}"
            print(
                f"d = {dim:3}  {name:14} {row['ms']:8.3f} ms   ratio {row['ratio']:5.2f}   paper {paper}",
                flush=True,
            )
    return record


def gradient_memory(n: int = 16_384, dim: int = 100) -> dict:
    """Peak memory of one KSIVI gradient, median bandwidth included: resident on a CPU, the device's own on a GPU."""
    problem = ksivi.problems.diffusion(dim)
    family = ksivi.SemiImplicit.mlp(jax.random.key(0), dim, 100, HIDDEN, log_var=-2.0)
    options = {"optimizer": optax.adam(2e-4), "chunk_size": 2}
    ksivi.train(
        jax.random.key(1),
        problem.target,
        family,
        ksivi.KSIVI(num_samples=8),
        num_steps=2,
        **options,
    )
    with MemoryPeak("VmRSS") as resident:
        ksivi.train(
            jax.random.key(1),
            problem.target,
            family,
            ksivi.KSIVI(num_samples=n),
            num_steps=2,
            **options,
        )
    stats = jax.devices()[0].memory_stats()
    peak = stats["peak_bytes_in_use"] if stats else resident.growth
    return {"num_samples": n, "dim": dim, "peak_gib": peak / 2**30}


def import_seconds() -> float:
    """What `import ksivi` adds to `import jax, equinox, optax`, best of five."""
    code = "import time, jax, equinox, optax; t = time.perf_counter(); import ksivi; print(time.perf_counter() - t)"
    runs = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        for _ in range(5)
    ]
    return min(float(run.stdout) for run in runs)


def retraces() -> int:
    """How often a second `train` on new data of the same shapes runs the model's Python; 0 is right."""
    calls = []

    def log_likelihood(x: jax.Array, batch: jax.Array) -> jax.Array:
        calls.append(None)
        return -0.5 * jnp.sum((batch - x[None]) ** 2)

    def run(seed: int) -> None:
        rows = jax.random.normal(jax.random.key(seed), (50, 2))
        target = ksivi.Target.from_data(log_prior, log_likelihood, rows, dim=2)
        family = ksivi.SemiImplicit.mlp(jax.random.key(0), 2, 3)
        ksivi.train(
            jax.random.key(1),
            target,
            family,
            ksivi.KSIVI(),
            optimizer=optax.adam(1e-3),
            num_steps=20,
        )

    run(0)
    first = len(calls)
    run(1)
    return len(calls) - first


def log_prior(x: jax.Array) -> jax.Array:
    return -0.5 * jnp.sum(x**2)


def in_a_process(what: str) -> dict:
    """Peaks are per process."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.step", "--only", what], capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--dims", type=int, nargs="+", default=[50, 100, 200])
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--only", choices=["memory"])
    parser.add_argument(
        "--methods", help="all, or names separated by commas: their step times relative to ksivi"
    )
    parser.add_argument("--out")
    args = parser.parse_args()
    if args.only == "memory":
        print(json.dumps(gradient_memory()))
        return
    gpu = jax.default_backend() != "cpu"
    record: dict = {
        "device": jax.devices()[0].device_kind,
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "jax": jax.__version__,
    }
    if args.methods:
        names = list(METHODS) if args.methods == "all" else args.methods.split(",")
        record["methods"] = compare_methods(
            args.dims, list(dict.fromkeys(["ksivi", *names])), 2_000 if gpu else 200, args.rounds
        )
        save(record, args.out)
        return
    record["steps"] = {}
    print(
        f"{record['device']}, jax {jax.__version__}: vanilla KSIVI, N = {N}, network [100, 128, 128, d], ms a step",
        flush=True,
    )
    for dim in args.dims:
        if gpu:
            row = {
                "ksivi_ms": statistics.median(step_times(dim, 1, 2_000, args.rounds)),
                f"ksivi_ms_{args.seeds}_seeds": statistics.median(
                    step_times(dim, args.seeds, 2_000, args.rounds)
                ),
            }
        else:
            row = against_torch(dim, 200, args.rounds, args.seeds)
        record["steps"][dim] = row
        print(
            f"d = {dim:3}  " + "  ".join(f"{name} {value:7.3f}" for name, value in row.items()),
            flush=True,
        )
    record["memory"] = gradient_memory() if gpu else in_a_process("memory")
    print("gradient memory:", json.dumps(record["memory"]), flush=True)
    record["import_seconds"] = import_seconds()
    record["retraces"] = retraces()
    print(
        f"import ksivi: {record['import_seconds']:.3f} s beyond its dependencies; retraces: {record['retraces']}",
        flush=True,
    )
    save(record, args.out)


def save(record: dict, path: str | None) -> None:
    if path:
        with open(path, "w") as file:
            json.dump(record, file, indent=1)


if __name__ == "__main__":
    main()
