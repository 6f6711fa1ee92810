"""One task of `benchmarks.accuracy`, in a process of its own: `python -m benchmarks.accuracy_run --case banana`.

A measurement counts the seconds from the start of the process to the end of the imports, and those of the fit with
1,000 draws. Building the posterior comes between the two and is not part of them.
"""

import argparse
import importlib
import json
import time
from pathlib import Path

_LIBRARIES = {"ksivi.fit": ("jax", "ksivi"), "Pathfinder": ("jax", "blackjax.vi")}
_OTHERWISE = ("jax", "numpyro.infer")
"""What a user of a method imports. Only this is counted, so this module imports nothing else before."""


def main() -> None:
    options = _options()
    import_s = _import(_LIBRARIES.get(options.method, _OTHERWISE), options.began)
    from . import accuracy_tasks  # after the clock was read

    found = getattr(accuracy_tasks, options.task)(options, import_s)
    if options.result is None:
        print(json.dumps(found, indent=1))
    else:
        options.result.write_text(json.dumps(found))


def _import(libraries: tuple[str, ...], began: float) -> float:
    """Imports, starts JAX, and returns the seconds since the process was started."""
    for name in libraries:
        importlib.import_module(name)
    importlib.import_module("jax").devices()
    return time.time() - began


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--task", default="measure", choices=("measure", "truth", "fill", "names"))
    parser.add_argument("--set", default="development")
    parser.add_argument("--case", default="")
    parser.add_argument("--method", default="ksivi.fit")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--when", default="cold", choices=("cold", "again", "other"))
    parser.add_argument("--then", nargs="*", default=[], choices=("second", "update"))
    parser.add_argument("--dim", type=int, help="fill: the dimension of a Gaussian to fit")
    parser.add_argument("--truths", type=Path, default=Path("truths"))
    parser.add_argument("--began", type=float, default=time.time(), help="when it was started")
    parser.add_argument("--result", type=Path, help="where to write the result, if not to stdout")
    return parser.parse_args()


if __name__ == "__main__":
    main()
