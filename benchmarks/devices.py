"""How a step's price falls with devices: `python -m benchmarks.devices`.

Virtual devices of this processor, one a core: a process for each number of them, held to as many cores, which share the
4,096 samples of a step. `docs/benchmarks.md` is made from these records.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import jax

import ksivi

from .growth import fixed_kernel, step_ms

SAMPLES, DIM = 4_096, 100


def on_this_many(count: int) -> float:
    """Milliseconds a step, in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.devices", "--here", str(count)]
    environment = os.environ | {"JAX_NUM_CPU_DEVICES": str(count), "JAX_PLATFORMS": "cpu"}
    return float(
        subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE).stdout
    )


def here(count: int) -> float:
    os.sched_setaffinity(0, range(count))  # before JAX starts its threads
    mesh = jax.make_mesh((count,), ("samples",))
    target = ksivi.problems.diffusion(DIM).target
    return step_ms(target, fixed_kernel(), SAMPLES, seconds=10.0, mesh=mesh)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--devices", type=int, nargs="+", default=[1, 2], help="how many, one a core"
    )
    parser.add_argument("--here", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.here:
        print(here(options.here))
        return
    record = {"machine": platform.machine(), "cores": os.cpu_count(), "jax": jax.__version__}
    record |= {"samples": SAMPLES, "dim": DIM, "devices": []}
    for count in options.devices:
        record["devices"].append({"devices": count, "fixed_ms": on_this_many(count)})
        print(record["devices"][-1], flush=True)
        if options.out:
            options.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
