"""One task of `benchmarks.big` in a process of its own: makes a truth, fits, or judges what a fit left.

Of a fit the seconds are counted from the start of the process to the end of the imports, and then those of the fit up
to 1,000 draws. Building the posterior comes between the two and is not part of them. Draws are written as they come, so
that a fit that is ended by the limit leaves its last ones.
"""

import argparse
import json
import time
from pathlib import Path

from .accuracy_run import _OTHERWISE, _import

_LIBRARIES = {"ksivi.fit": ("jax", "ksivi"), "ksivi.fit, all rows": ("jax", "ksivi")}


def main() -> None:
    options = _options()
    import_s = _import(_LIBRARIES.get(options.method, _OTHERWISE), options.began)
    from . import big_tasks  # after the clock was read

    getattr(big_tasks, options.task)(options, import_s)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--task", default="fit", choices=("fit", "judge", "truth"))
    parser.add_argument("--problem", required=True)
    parser.add_argument("--method", default="ksivi.fit")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--truths", type=Path, required=True, help="a folder of draws of the truths"
    )
    parser.add_argument("--disk", type=Path, help="a folder for the rows on disk")
    parser.add_argument("--limit-s", type=float, default=float("inf"))
    parser.add_argument("--began", type=float, default=time.time(), help="when it was started")
    parser.add_argument("--place", type=Path, required=True, help="a folder for the results")
    return parser.parse_args()


def read(path: Path) -> dict:
    """A file of JSON, or nothing if there is none."""
    return json.loads(path.read_text()) if path.exists() else {}


if __name__ == "__main__":
    main()
