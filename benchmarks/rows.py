"""Training on rows that are not in memory: `python -m benchmarks.rows`.

Writes a regression of many rows to a memory map, trains on it, and compares with the posterior in closed form. The
memory is RssAnon, what the process itself holds; pages of the map belong to the system, which drops them as it needs.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax

import ksivi

from .memory import MemoryPeak

DIM = 20
_BLOCK = 2**18


def write(path: Path, num_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of x and y side by side; the posterior's mean and standard deviations in closed form, by double sums."""
    rng, coefficients = np.random.default_rng(0), np.linspace(-1, 1, DIM)
    table = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(num_rows, DIM + 1))
    squares, products = np.eye(DIM), np.zeros(DIM)
    for low in range(0, num_rows, _BLOCK):
        count = min(_BLOCK, num_rows - low)
        x = rng.normal(size=(count, DIM)).astype(np.float32)
        y = (x @ coefficients + rng.normal(size=count)).astype(np.float32)
        table[low : low + count, :DIM], table[low : low + count, DIM] = x, y
        squares += x.T.astype(float) @ x
        products += x.T.astype(float) @ y
    table.flush()
    covariance = np.linalg.inv(squares)
    return covariance @ products, np.sqrt(np.diag(covariance))


def log_prior(beta: jax.Array) -> jax.Array:
    return -0.5 * jnp.sum(beta**2)


def log_likelihood(beta: jax.Array, table: jax.Array) -> jax.Array:
    return -0.5 * jnp.sum((table[:, DIM] - table[:, :DIM] @ beta) ** 2)


def fit(path: Path, batch_size: int, num_steps: int) -> ksivi.Fit:
    rows = ksivi.Rows(np.load(path, mmap_mode="r"))
    target = ksivi.Target.from_data(log_prior, log_likelihood, rows, dim=DIM, batch_size=batch_size)
    target = target.with_control_variate(jnp.zeros(DIM), num_newton=3)
    hessian = jax.hessian(target.log_density)(target.anchor)
    family = ksivi.SemiImplicit.mlp(
        jax.random.key(0), DIM, mixing_dim=DIM, hidden=(64, 64), log_var=-1.0
    )
    return ksivi.train(
        jax.random.key(1),
        target.whitened(target.anchor, jnp.linalg.cholesky(jnp.linalg.inv(-hessian))),
        family,
        ksivi.KSIVI(num_samples=100),
        optimizer=optax.adam(optax.cosine_decay_schedule(2e-3, num_steps)),
        num_steps=num_steps,
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gigabytes", type=float, default=4.0)
    parser.add_argument("--batch-size", type=int, default=2_000)
    parser.add_argument("--steps", type=int, default=3_000)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    num_rows = int(options.gigabytes * 1e9 / 4 / (DIM + 1))
    with tempfile.TemporaryDirectory() as folder, MemoryPeak("RssAnon") as memory:
        path, began = Path(folder) / "rows.npy", time.perf_counter()
        mean, sd = write(path, num_rows)
        wrote, began = time.perf_counter() - began, time.perf_counter()
        posterior = fit(path, options.batch_size, options.steps).posterior
        draws = np.asarray(
            posterior.sample(jax.random.key(2), 20_000), float
        )  # sums of float32 would be the error
        seconds = time.perf_counter() - began
        size = path.stat().st_size
    record = {
        "rows": num_rows,
        "bytes": size,
        "seconds": round(seconds, 1),
        "seconds_to_write": round(wrote, 1),
        "peak_anonymous_gib": round(memory.peak / 2**30, 3),
        "worst_mean_in_sd": float(np.max(np.abs(draws.mean(axis=0) - mean) / sd)),
        "widths": [float(ratio) for ratio in np.quantile(draws.std(axis=0) / sd, [0, 0.5, 1])],
    }
    print(json.dumps(record))
    if options.out:
        options.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
