"""Many samples, on a GPU: `python -m benchmarks.large --out benchmarks/records/large-h200.json`.

KSIVI's step at N = 65,536 with a fixed bandwidth and with the median's, beside the least time that its matrix products
take at the rate of a large square one, at the same precision in the same run. Then the metrics at a million samples.
"""

import argparse
import json
import time
from pathlib import Path

import jax

import ksivi

from .growth import fixed_kernel, floor_ms, matmul_rate, step_ms


def training(n: int, dim: int, rate: float) -> dict:
    target = ksivi.problems.diffusion(dim).target
    fixed = step_ms(target, fixed_kernel(), n)
    peak = (jax.devices()[0].memory_stats() or {}).get("peak_bytes_in_use", 0) / 2**30
    return {
        "samples": n,
        "dim": dim,
        "fixed_ms": fixed,
        "peak_gib": peak,
        "median_ms": step_ms(target, ksivi.kernels.Gaussian(), n),
        "square_floor_ms": floor_ms(n, dim, rate),
    }


def metrics(n: int, dim: int) -> dict:
    """Of exact samples, where both are near 0, and of samples too wide by a tenth; seconds with compilation."""
    x, y = (jax.random.normal(jax.random.key(i), (n, dim)) for i in (0, 1))
    score = lambda x: -x  # noqa: E731
    found: dict = {"samples": n, "dim": dim}
    for name, wide in {"exact": 1.0, "wide": 1.1}.items():
        for metric, value in {
            "ksd2": lambda w=wide: ksivi.metrics.ksd(w * x, score),
            "mmd": lambda w=wide: ksivi.metrics.mmd(w * x, y),
        }.items():
            began = time.perf_counter()
            found[f"{metric}_{name}"] = value()
            found[f"{metric}_{name}_s"] = time.perf_counter() - began
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--samples", type=int, default=65_536)
    parser.add_argument("--metric-samples", type=int, default=1_000_000)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rate = matmul_rate(8_192 if options.samples > 10_000 else 2_048)
    record = {"device": jax.devices()[0].device_kind, "jax": jax.__version__, "flops": rate}
    for name, part in {
        "training": lambda: training(options.samples, 100, rate),
        "metrics": lambda: metrics(options.metric_samples, 10),
    }.items():
        record[name] = part()
        print(name, json.dumps(record[name]), flush=True)
        if options.out:
            options.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
