"""Ctrl-C at random moments of `ksivi fit` in a terminal: `python -m benchmarks.interrupts --count 40`.

The moments are spread over the start, the search, the training, the checks, and the end: from the first byte of the
record to the exit.
Each run must end with exit code 130, without a traceback, and the folder must hold a whole record or none. Exits with 1
where it is not so. A cache of compiled programs (`JAX_COMPILATION_CACHE_DIR`) makes the runs shorter.
"""

import argparse
import collections
import dataclasses
import os
import pty
import random
import re
import select
import subprocess
import sys
import tempfile
import time
from pathlib import Path

MODEL = """
import jax.numpy as jnp

def log_density(x):
    return -0.5 * jnp.sum((x - 2.0) ** 2)
"""
CODE = "import sys; print('start', flush=True); from ksivi_command import main; sys.argv[0] = 'ksivi'; main()"
STAGES = ("start", "fit: search", "fit: training", "fit: checks", "end")
_CTRL_C = b"\x03"
_LONGEST_S = 600
_PF_EXITING = 4
"""A flag of Linux in /proc/PID/stat."""


@dataclasses.dataclass(frozen=True)
class Ending:
    """How a run ended: its exit code as a shell states it, what it printed, and when its stages began."""

    code: int
    output: str
    began: dict[str, float]
    seconds: float
    interrupted: bool

    @property
    def faults(self) -> list[str]:
        code = [] if self.code == 130 else [f"exit code {self.code}"]
        return code + (["a traceback"] if "Traceback" in self.output else [])


def run_in_terminal(command: list[str], out: Path, stage: str = "", delay: float = 0) -> Ending:
    """Runs a command in a terminal of its own. Types Ctrl-C so many seconds after a stage began."""
    start = time.monotonic()
    child, terminal = pty.fork()
    if child == 0:
        os.execv(command[0], [*command, "--out", str(out)])
    began, output, interrupted = {}, b"", False
    while time.monotonic() - start < _LONGEST_S:
        now = time.monotonic() - start
        is_time = not interrupted and stage in began and now >= began[stage] + delay
        if is_time and not _is_exiting(child):
            os.write(terminal, _CTRL_C)
            interrupted = True
        if select.select([terminal], [], [], 0.001)[0]:
            try:
                output += os.read(terminal, 65_536)
            except OSError:  # the process has closed its side
                break
        for one in STAGES:
            found = _is_written(out) if one == "end" else one.encode() in output
            if one not in began and found:
                began[one] = time.monotonic() - start
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.close(terminal)
    seconds = time.monotonic() - start
    return Ending(code if code >= 0 else 128 - code, _plain(output), began, seconds, interrupted)


def _is_exiting(process: int) -> bool:
    """Whether the system is removing the process. Its exit code is decided."""
    try:
        after_name = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return False
    return after_name[0] == "Z" or bool(int(after_name[6]) & _PF_EXITING)


def _is_written(out: Path) -> bool:
    """Whether the folder has a first file of the record, hidden or not."""
    return any("history" in one.name for one in out.iterdir()) if out.is_dir() else False


def _plain(output: bytes) -> str:
    """The text without the codes that move the cursor and set colours."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", output.decode(errors="replace"))


def damaged_records(folders: list[Path]) -> list[str]:
    """The records that another process cannot read, with the reason. A folder may have none."""
    code = (
        "import sys, ksivi\nfor folder in sys.argv[1:]:\n    try: ksivi.read_record(folder)\n"
        "    except ValueError as error: print(error)"
    )
    written = [str(folder) for folder in folders if (folder / "fit.json").exists()]
    command = [sys.executable, "-c", code, *written]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()


def moment(whole: Ending, i: int, rng: random.Random) -> tuple[str, float]:
    """A stage and a delay in it: the stages in turn, and a random delay within the stage's length."""
    begins = [whole.began[stage] for stage in STAGES] + [whole.seconds]
    at = i % len(STAGES)
    return STAGES[at], rng.uniform(0, begins[at + 1] - begins[at])


def interrupted_runs(count: int, steps: int, seed: int, folder: Path) -> list[str]:
    """Interrupts so many runs. Returns a sentence for each fault, and prints each run."""
    (folder / "model.py").write_text(MODEL)
    model = f"{folder / 'model.py'}:log_density"
    command = [sys.executable, "-c", CODE, "fit", model, "--dim", "2", "--steps", str(steps)]
    whole, rng = run_in_terminal(command, folder / "whole"), random.Random(seed)
    print("a whole run:", {name: round(at, 2) for name, at in whole.began.items()}, flush=True)
    done, faults, tried, codes = 0, [], 0, collections.Counter()
    while done < count and tried < 3 * count:
        out, (stage, delay) = folder / f"run-{tried}", moment(whole, done, rng)
        ending, tried = run_in_terminal(command, out, stage, delay), tried + 1
        if not ending.interrupted:
            continue  # it was faster than the whole run: the moment never came
        found = ending.faults
        done, codes[ending.code] = done + 1, codes[ending.code] + 1
        print(
            f"{done} of {count}: {stage} + {delay:.2f} s: {ending.code} {found or ''}", flush=True
        )
        if found:
            print(ending.output[-2_000:], flush=True)
            faults.append(f"{stage} + {delay:.2f} s: {', '.join(found)}")
    print("exit codes:", dict(codes), flush=True)
    faults += damaged_records(sorted(folder.glob("run-*")))
    return faults if done == count else [*faults, f"only {done} of {count} runs were interrupted"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=40, help="number of interrupted runs")
    parser.add_argument("--steps", type=int, default=500, help="training steps of a run")
    parser.add_argument("--seed", type=int, default=0, help="random seed of the moments")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        faults = interrupted_runs(options.count, options.steps, options.seed, Path(folder))
    print(f"{len(faults)} faults", *faults, sep="\n")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
