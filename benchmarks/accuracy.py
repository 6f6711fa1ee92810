"""How accurate draws are, whether fits know, and what a user waits for: `python -m benchmarks.accuracy`.

`ksivi.fit` beside NumPyro's NUTS, and on request Laplace, Pathfinder, Gaussian families and a flow. Every fit has a
fresh process and two cores; seconds count from the start of that process to the draws. A fit is

- **cold** where no program was ever compiled before; for seed 0 also
- **second**, with another key in the same process, and **update**, where the first fit is the start;
- **again**, in a fresh process that finds the programs of the cold one on disk;
- **other**, in a fresh process that finds those of a fit to a Gaussian of the same dimension.

Each result is a line of JSON in `--out`, and is not made again. The table and the figures are made from those lines
alone. Draws of the truths, some of which are long chains of NUTS, are kept in `--truths`.

    python -m benchmarks.accuracy --seeds 5 --truths truths --out accuracy.jsonl
"""

import argparse
import shutil
import tempfile
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

from .accuracy_children import Child, Children
from .accuracy_report import METHODS, NUTS, OURS, Record, in_words, key, ratios, read, table, write
from .slots import Crew, slots

SLOW = (
    *("diamonds", "network-98", "gaussian-process", "volatility", "horseshoe", "correlations"),
    *("hidden-markov", "predator-prey", "random-walk", "item-response", "logistic-100"),
)
"""These begin first, so that none of them is the last one to run alone."""


class Job(NamedTuple):
    """A truth to be made, or the fits of a method with one seed."""

    case: str
    method: str
    seed: int = 0


_TRUTH, _KINDS = "truth", ("cold", "again", "other")


def main() -> None:
    options = _options()
    with tempfile.TemporaryDirectory(prefix="ksivi-accuracy-") as place:
        bench = Bench(options, Path(place))
        Crew(bench.jobs(), bench.run, bench.is_ready).work(slots()[: options.workers])
    records = read(options.out)
    print("\n" + table(records))
    if options.figure or options.times:
        from .accuracy_figures import accuracies, times

        if options.figure:
            accuracies(options.figure, records)
        if options.times and ratios(records):
            times(options.times, records)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("benchmarks/records/accuracy.jsonl"))
    parser.add_argument("--methods", nargs="+", default=[OURS, *NUTS], choices=METHODS)
    parser.add_argument("--set", default="development", help="or mixtures, or expensive")
    parser.add_argument("--cases", nargs="+", default=[], help="default: all of the set")
    parser.add_argument("--seeds", type=int, default=1, help="of `ksivi.fit`; others have one")
    parser.add_argument(
        "--kinds", nargs="+", default=_KINDS, choices=_KINDS, help="of processes; default: all"
    )
    parser.add_argument("--workers", type=int, help="fits at a time; default: one for two cores")
    parser.add_argument("--limit-s", type=float, help="nothing new begins after so many seconds")
    parser.add_argument("--most-s", type=float, default=900, help="the limit of one process")
    parser.add_argument("--truths", type=Path, help="a folder to keep draws of the truths in")
    parser.add_argument("--figure", type=Path, help="where to draw the accuracies")
    parser.add_argument("--times", type=Path, help="where to draw the times beside those of NUTS")
    options = parser.parse_args()
    if options.workers is not None and not 1 <= options.workers <= len(slots()):
        parser.error(f"--workers must be between 1 and {len(slots())} here")
    return options


class Bench:
    """The jobs that are left, and how each is done."""

    def __init__(self, options: argparse.Namespace, place: Path):
        self.options, self.place = options, place
        self.truths = (options.truths or place / "truths").resolve()
        self.children = Children(options.set, self.truths, place, options.most_s)
        self.ends = time.monotonic() + (options.limit_s or float("inf"))
        records = read(options.out)
        self.done = {key(record) for record in records}
        self.dims = {record["case"]: record["dim"] for record in records}
        self.without_truth: set[str] = set()
        self.writing = threading.Lock()
        self.filling: dict[int, threading.Lock] = defaultdict(threading.Lock)

    def jobs(self) -> list[Job]:
        """Truths, then seed 0 of all methods, then the other seeds; the slow cases first in each."""
        cases = sorted(self._cases(), key=lambda c: SLOW.index(c) if c in SLOW else len(SLOW))
        fits = [Job(case, method) for case in cases for method in self.options.methods]
        if OURS in self.options.methods:
            fits += [Job(c, OURS, seed) for seed in range(1, self.options.seeds) for c in cases]
        left = [job for job in fits if self._missing(job)]
        unknown = dict.fromkeys(job.case for job in left if not self._has_truth(job.case))
        return [*(Job(case, _TRUTH) for case in unknown), *left]

    def is_ready(self, job: Job) -> bool:
        is_decided = self._has_truth(job.case) or job.case in self.without_truth
        return job.method == _TRUTH or is_decided or self._is_over()

    def run(self, job: Job) -> None:
        if job.method == _TRUTH and not self._is_over():
            self._make_truth(job.case)
            return
        for when in self._missing(job):
            if job.case not in self.without_truth and not self._is_over():
                self._measure(job, when)
        shutil.rmtree(self._cache(job), ignore_errors=True)

    def _cases(self) -> list[str]:
        known = self.children.names()
        unknown = set(self.options.cases) - set(known)
        if unknown:
            raise SystemExit(f"no such case: {', '.join(unknown)}; there are {', '.join(known)}")
        return [name for name in known if not self.options.cases or name in self.options.cases]

    def _missing(self, job: Job) -> list[str]:
        """The kinds of processes whose result is not there yet."""
        has_caches = job.method == OURS and job.seed == 0
        kinds = self.options.kinds if has_caches else ("cold",)
        return [when for when in kinds if (*job, when) not in self.done]

    def _is_over(self) -> bool:
        return time.monotonic() > self.ends

    def _has_truth(self, case: str) -> bool:
        return (self.truths / f"{case}.npy").exists()

    def _cache(self, job: Job) -> Path:
        return self.place / "caches" / f"{job.case}-{job.method}-{job.seed}"

    def _make_truth(self, case: str) -> None:
        reason = self.children.truth(case)
        if reason:
            self.without_truth.add(case)
            print(f"{case:<22} skipped, for there is no truth: {reason}", flush=True)

    def _measure(self, job: Job, when: str) -> None:
        child = Child(job.case, job.method, job.seed)
        cache = self._cache(job)
        if when == "again" and not cache.exists():
            self.children.fill(cache, child)
        if when == "other":
            cache = self._of_another_model(job, cache.with_name(f"{cache.name}-other"))
        for record in self.children.measure(cache, child, when):
            self._keep(record)

    def _of_another_model(self, job: Job, cache: Path) -> Path:
        """The programs of a fit to a Gaussian of the same dimension, which is made once."""
        dim = self.dims[job.case]
        made = self.place / "gaussians" / str(dim)
        with self.filling[dim]:
            if not made.exists():
                self.children.fill(made, Child(job.case, job.method), dim)
        return Path(shutil.copytree(made, cache))

    def _keep(self, record: Record) -> None:
        with self.writing:
            write(self.options.out, record)
            self.done.add(key(record))
            self.dims[record["case"]] = record["dim"]
            print(in_words(record), flush=True)


if __name__ == "__main__":
    main()
