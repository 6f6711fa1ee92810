"""The processes that `benchmarks.accuracy` starts, and what they leave."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, NamedTuple

from .accuracy_report import OURS, Record

_ROOT = Path(__file__).resolve().parents[1]
_THEIRS = ("JAX_COMPILATION_CACHE_DIR", "JAX_ENABLE_COMPILATION_CACHE", "KSIVI_PROGRAM_CACHE")
"""Settings of a cache of programs, with which a cold process could be warm, or a warm one cold."""


class Child(NamedTuple):
    """What a process is about."""

    case: str = ""
    method: str = OURS
    seed: int = 0


class Children:
    """Starts processes on the cores of the thread that asks, and waits for them.

    **Arguments:**

    - `name_of_set`, `truths`: the set of posteriors, and the folder of their truths.
    - `place`: a folder for what a process writes.
    - `most_s`: the limit of a process that measures.
    """

    def __init__(self, name_of_set: str, truths: Path, place: Path, most_s: float):
        self.set, self.truths, self.place, self.most_s = name_of_set, truths, place, most_s

    def names(self) -> list[str]:
        found = self._read(self._start("names", Child()))
        if found is None:
            raise SystemExit(f"there are no posteriors in the set {self.set!r}")
        return found

    def truth(self, case: str) -> str:
        """Makes the draws of a truth. If there are none, it returns the reason."""
        found = self._read(self._start("truth", Child(case)))
        return "the process ended early" if found is None else found.get("no_reference", "")

    def fill(self, cache: Path, child: Child, dim: int | None = None) -> None:
        """A fit that leaves its programs: to the case, or to a Gaussian of this dimension."""
        about = [] if dim is None else ["--dim", str(dim)]
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._start("fill", child, *about, cache=cache)

    def measure(self, cache: Path, child: Child, when: str) -> list[Record]:
        """The records of a fit. After the first one of all, two more follow in the same process."""
        is_followed = child.method == OURS and child.seed == 0 and when == "cold"
        then = ["--then", "second", "update"] if is_followed else []
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        result = self._start(
            "measure", child, "--when", when, *then, cache=cache, limit_s=self.most_s
        )
        return self._read(result) or self._given_up(result, when)

    def _given_up(self, result: Path, when: str) -> list[Record]:
        """A record of a process that was ended by the limit. One that crashed leaves no record."""
        about = result.with_name("about.json")
        if not (result.with_name("late").exists() and about.exists()):
            return []
        late = {"when": when, "seconds": self.most_s, "accurate": False}
        failures = [f"not done in {self.most_s:.0f} s"]
        return [json.loads(about.read_text()) | late | {"failures": failures}]

    def _start(
        self,
        task: str,
        child: Child,
        *arguments: str,
        cache: Path | None = None,
        limit_s: float | None = None,
    ) -> Path:
        """Where the result of a process is, now that it has ended."""
        result = Path(mkdtemp(dir=self.place)) / "result.json"
        about = ["--task", task, "--set", self.set, "--truths", str(self.truths)]
        about += ["--case", child.case, "--method", child.method, "--seed", str(child.seed)]
        command = [sys.executable, "-m", "benchmarks.accuracy_run", *about, *arguments]
        command += ["--result", str(result), "--began", repr(time.time())]
        try:
            ended = subprocess.run(
                command,
                cwd=_ROOT,
                env=_environment(cache),
                capture_output=True,
                text=True,
                timeout=limit_s,
            )
        except subprocess.TimeoutExpired:
            result.with_name("late").touch()
            return result
        if ended.returncode:
            last = (ended.stderr.strip().splitlines() or ["no words"])[-1]
            print(f"{' '.join(child[:2])}: the process ended with {ended.returncode}: {last}")
        return result

    def _read(self, result: Path) -> Any:
        return json.loads(result.read_text()) if result.exists() else None


def _environment(cache: Path | None) -> dict[str, str]:
    """Two cores are measured, so the processes keep to the CPU where there is a GPU."""
    kept = {name: value for name, value in os.environ.items() if name not in _THEIRS}
    kept |= {"JAX_PLATFORMS": "cpu"}
    return kept | ({} if cache is None else {"KSIVI_CACHE": str(cache)})
