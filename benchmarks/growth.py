"""How the price of a step grows: `python -m benchmarks.growth --out benchmarks/records/growth-two-cores.json`.

KSIVI's step against the number of samples, the dimension and the rows of data, with the least time that its matrix
products take at the rate of a large one in float32, measured in the same run. `docs/benchmarks.md` is made from these
records. A record that was begun is gone on with, on the same machine.
"""

import argparse
import json
import os
import statistics
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import optax

import ksivi

MIXING_DIM, WIDTH = 100, 128
SAMPLES = (32, 128, 512, 2_048, 4_096)
DIMS = (10, 50, 200, 1_000)
ROWS = (1_000, 10_000, 100_000, 1_000_000)


def matmul_rate(size: int = 4_096) -> float:
    """Floating-point operations a second of a large product, at the precision that the kernels use."""
    a = jax.random.normal(jax.random.key(0), (size, size))
    product = jax.jit(lambda a: jnp.matmul(a, a, precision=jax.lax.Precision.HIGHEST))
    product(a).block_until_ready()
    times = []
    for _ in range(5):
        began = time.perf_counter()
        product(a).block_until_ready()
        times.append(time.perf_counter() - began)
    return 2 * size**3 / statistics.median(times)


def network_operations(samples: int, dim: int) -> float:
    """Of μ's network on 2N samples, forwards and backwards; nothing flows back into z."""
    layers = (MIXING_DIM * WIDTH, WIDTH * WIDTH, WIDTH * dim)
    return 2 * 2 * samples * (3 * sum(layers) - layers[0])


def pair_operations(samples: int, dim: int) -> float:
    """Of the pairs: ⟨x, x′⟩ and ⟨f, f′⟩, and two products for the gradient of each."""
    return 2 * 6 * samples**2 * dim


def fixed_kernel() -> ksivi.kernels.Gaussian:
    return ksivi.kernels.Gaussian(ksivi.kernels.Fixed(10.0))


def step_ms(
    target: ksivi.Target,
    kernel: ksivi.kernels.Gaussian,
    samples: int,
    seconds: float = 2.0,
    mesh: jax.sharding.Mesh | None = None,
) -> float:
    """The median over chunks of some seconds in all, after the first, which compiles."""
    # Small steps of a GPU take less time than what the host does after each chunk of them; large ones take long enough.
    most, pairs_in_a_chunk = (10, 2**21) if jax.default_backend() == "cpu" else (500, 2**29)
    size = max(4, min(most, pairs_in_a_chunk // samples**2))
    family = ksivi.SemiImplicit.mlp(
        jax.random.key(0), target.dim, MIXING_DIM, (WIDTH, WIDTH), log_var=-2.0
    )
    times: list[float] = []
    last = [time.perf_counter()]

    def callback(chunk: ksivi.Chunk) -> bool:
        now = time.perf_counter()
        times.append((now - last[0]) / size * 1e3)
        last[0] = now
        return len(times) >= 4 and sum(times[1:]) * size / 1e3 > seconds

    objective = ksivi.KSIVI(kernel, num_samples=samples)
    options = {
        "optimizer": optax.adam(1e-4),
        "num_steps": 1_000 * size,
        "chunk_size": size,
        "callbacks": [callback],
    }
    ksivi.train(jax.random.key(1), target, family, objective, mesh=mesh, **options)
    return statistics.median(times[1:])


def regression(num_rows: int, dim: int = 20) -> ksivi.Target:
    x = jax.random.normal(jax.random.key(0), (num_rows, dim))
    return ksivi.Target.from_data(log_prior, log_likelihood, {"x": x, "y": x[:, 0]}, dim)


def log_prior(beta: jax.Array) -> jax.Array:
    return -0.5 * jnp.sum(beta**2)


def log_likelihood(beta: jax.Array, batch: dict[str, jax.Array]) -> jax.Array:
    # Divided by the rows, for a posterior whose width does not change with them.
    return -0.5 * jnp.mean((batch["y"] - batch["x"] @ beta) ** 2)


def floor_ms(samples: int, dim: int, rate: float) -> float:
    return (network_operations(samples, dim) + pair_operations(samples, dim)) / rate * 1e3


def of_samples(samples: int, rate: float) -> dict:
    """With the median bandwidth and a fixed one."""
    target = ksivi.problems.diffusion(100).target
    kernels = {"median_ms": ksivi.kernels.Gaussian(), "fixed_ms": fixed_kernel()}
    times = {name: step_ms(target, kernel, samples) for name, kernel in kernels.items()}
    return times | {"floor_ms": floor_ms(samples, 100, rate)}


def of_dim(dim: int, rate: float) -> dict:
    target = ksivi.problems.diffusion(dim).target
    return {
        "median_ms": step_ms(target, ksivi.kernels.Gaussian(), 128),
        "floor_ms": floor_ms(128, dim, rate),
    }


def of_rows(rows: int, rate: float) -> dict:
    # The score of a sample is two products with all rows, and its derivative two more.
    floor = (network_operations(128, 20) + 2 * 256 * rows * 20 * 4) / rate * 1e3
    return {
        "median_ms": step_ms(regression(rows), ksivi.kernels.Gaussian(), 128),
        "floor_ms": floor,
    }


SWEEPS = {"samples": (SAMPLES, of_samples), "dim": (DIMS, of_dim), "rows": (ROWS, of_rows)}


def begun(out: Path | None) -> dict:
    """A new record, or the one that is there, if it is of this machine."""
    here = {"device": jax.devices()[0].device_kind, "cores": os.cpu_count(), "jax": jax.__version__}
    if out is None or not out.exists():
        return {**here, "flops": matmul_rate(), **{name: [] for name in SWEEPS}}
    record = json.loads(out.read_text())
    if here != {name: record[name] for name in here}:
        raise SystemExit(
            f"{out} is of another machine: {record['device']}, {record['cores']} cores, jax {record['jax']}"
        )
    return record


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, help="the record, written after each row")
    out = parser.parse_args().out
    record = begun(out)
    print(f"{record['device']}: {record['flops'] / 1e9:.0f} GFLOP/s in a large product", flush=True)
    for name, (sizes, measure) in SWEEPS.items():
        done = {row[name] for row in record[name]}
        for size in sizes:
            if size in done:
                continue
            record[name].append({name: size, **measure(size, record["flops"])})
            print(
                "  ".join(f"{key} {value:10.4g}" for key, value in record[name][-1].items()),
                flush=True,
            )
            if out:
                out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
