"""Large posteriors, many rows or many parameters: `python -m benchmarks.big`.

`ksivi.fit` beside NumPyro's NUTS, minibatch guides and HMCECS. Each fit has a fresh process without any program on disk
and, on a CPU, two cores. A line of JSON in `--out` has

- `seconds`: from the start of the process, imports included, to 1,000 draws; simulating the data is not counted;
- `gib`: peak resident memory of the process (`ru_maxrss`); `anonymous_gib`: without mapped files, for rows on disk;
- `accurate`, `failures`: the criterion of `benchmarks/criterion.py` against draws of the truth;
- `accurate_s`, `path`: for a method in slices, the first time at which its draws were accurate, and the distances in
  floors by time. A method that meets `--limit-s` is judged by the draws it had then;
- `trusted`, `status`, `answer`: what `ksivi.fit` says of itself. A method that does not take the target is "refused".

The networks of the paper have no truth; `rmse` and `nll` of their predictions are recorded. They need the data sets in
`$KSIVI_DATA` and are skipped without.

    python -m benchmarks.big --seeds 3 --truths truths --out benchmarks/records/big.jsonl
    python -m benchmarks.big --problems logistic-1000x5 poisson-20 --methods ksivi.fit NUTS --truths truths
    python -m benchmarks.big --problems volatility-1000 --only-truths --truths truths
    python -m benchmarks.big --report

A name ends with sizes, and any sizes can be asked for: rows × columns, rows × groups, groups, or time steps. The truths
are quadrature or importance weights, minutes on a CPU; only that of the horseshoe is long chains, which can run with
`--platform cuda`. With `--disk FOLDER` there is also a logistic regression of 47.6 million rows, 4 GB, which are put in
that folder once. A line that is already in `--out` is not made again.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from .accuracy_children import _environment
from .accuracy_report import Record, write
from .big_names import DEFAULT, ON_DISK, parse
from .big_run import read
from .slots import pin, slots

OURS, ALL_ROWS = "ksivi.fit", "ksivi.fit, all rows"
METHODS = (OURS, ALL_ROWS, "NUTS", "mean-field", "low-rank", "HMCECS")
_ROOT = Path(__file__).resolve().parents[1]
_GRACE_S = 30.0


class Job(NamedTuple):
    """One fit."""

    problem: str
    method: str
    seed: int


class Ended(NamedTuple):
    """How a process ended."""

    code: int | None
    gib: float
    seconds: float
    words: str


def main() -> None:
    options = _options()
    if not options.report:
        if options.platform == "cpu":
            pin(slots()[0])
        for name in options.problems:
            _run_problem(name, options)
    print(table(records(options.out)))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--problems", nargs="+", default=[], help="default: all but those on disk")
    parser.add_argument("--methods", nargs="+", default=METHODS, choices=METHODS)
    parser.add_argument("--seeds", type=int, default=1, help="of `ksivi.fit`; others have one")
    parser.add_argument("--truths", type=Path, default=Path("truths"), help="folder of the truths")
    parser.add_argument("--only-truths", action="store_true", help="make the truths and no fit")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/records/big.jsonl"))
    parser.add_argument("--limit-s", type=float, default=900, help="the limit of one fit")
    parser.add_argument("--disk", type=Path, help="folder for rows on disk, 4 GB")
    parser.add_argument("--platform", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--report", action="store_true", help="print the table and do nothing else")
    options = parser.parse_args()
    options.problems = options.problems or [*DEFAULT, *([ON_DISK] if options.disk else [])]
    for name in options.problems:
        try:
            parsed = parse(name)
        except ValueError as error:
            parser.error(str(error))
        if parsed.kind == "disk" and options.disk is None:
            parser.error(f"{name} writes its rows to a folder: give --disk FOLDER")
    return options


def records(path: Path) -> list[Record]:
    """The last line of each fit."""
    lines = path.read_text().splitlines() if path.exists() else []
    return list({_key(record): record for record in map(json.loads, lines)}.values())


def _key(record: Record) -> tuple[str, ...]:
    return tuple(str(record[name]) for name in ("problem", "method", "seed", "platform"))


def _run_problem(name: str, options: argparse.Namespace) -> None:
    done = {_key(record) for record in records(options.out)}
    jobs = [
        job
        for job in _jobs(name, options)
        if _key(job._asdict() | {"platform": options.platform}) not in done
    ]
    if not (jobs or options.only_truths):
        return
    reason = _no_truth(name, options)
    if reason:
        print(f"{name}: skipped, for there is no truth: {reason}", flush=True)
        return
    for job in jobs if not options.only_truths else ():
        record = measured(job, options)
        write(options.out, record)
        print(_line(record), flush=True)


def _jobs(name: str, options: argparse.Namespace) -> list[Job]:
    return [
        Job(name, method, seed)
        for method in options.methods
        for seed in range(options.seeds if method == OURS else 1)
    ]


def _no_truth(name: str, options: argparse.Namespace) -> str:
    """Makes the truth, if there is none yet. If there can be none, the reason."""
    if (options.truths / f"{name}.npy").exists():
        return ""
    with tempfile.TemporaryDirectory(prefix="ksivi-big-") as place:
        ended = _process("truth", Job(name, "NUTS", 0), Path(place), options)
        found = read(Path(place) / "truth.json")
    print(f"{name}: truth in {ended.seconds:.0f} s, {ended.gib:.2f} GiB. {ended.words}", flush=True)
    return found.get("no_truth", "") if found else f"the process ended with {ended.code}"


def measured(job: Job, options: argparse.Namespace) -> Record:
    """The record of one fit: it runs in a process, and another one judges what it left."""
    with tempfile.TemporaryDirectory(prefix="ksivi-big-") as folder:
        place = Path(folder)
        ended = _process("fit", job, place, options, limit_s=options.limit_s)
        said, times = read(place / "said.json"), read(place / "times.json").get("seconds", [])
        record = job._asdict() | {"platform": options.platform} | read(place / "about.json")
        spent = options.limit_s if ended.code is None else round(ended.seconds, 2)
        record |= {"seconds": times[-1] if times and said else spent}
        record |= {"limit_s": options.limit_s, "gib": round(ended.gib, 3)} | _ending(ended, said)
        if times:
            _process("judge", job, place, options)
        judged = read(place / "judged.json") or {"accurate": False, "failures": ["no draws"]}
    return record | judged


def _ending(ended: Ended, said: Record) -> Record:
    """What the fit says; of a process that was ended or that crashed, this."""
    if said:
        return said if "error" not in said else said | {"status": said["error"]}
    if ended.code is None:
        return {"status": "time limit"}
    return {"status": f"the process ended with {ended.code}: {ended.words}"[:300]}


def _process(
    task: str, job: Job, place: Path, options: argparse.Namespace, limit_s: float | None = None
) -> Ended:
    """Runs a task to its end, or ends it some seconds after the limit, which is for what it can end itself."""
    command = [sys.executable, "-m", "benchmarks.big_run", "--task", task, "--place", str(place)]
    command += ["--problem", job.problem, "--method", job.method, "--seed", str(job.seed)]
    command += ["--truths", str(options.truths.resolve())]
    command += ["--disk", str(options.disk.resolve())] if options.disk else []
    command += ["--limit-s", str(limit_s), "--began", repr(time.time())] if limit_s else []
    environment = _environment(place / "cache") | {"JAX_PLATFORMS": options.platform}
    (place / "cache").mkdir(mode=0o700, exist_ok=True)
    began, log = time.monotonic(), place / f"{task}.log"
    with log.open("w") as file:
        child = subprocess.Popen(
            command, cwd=_ROOT, env=environment, stdout=file, stderr=subprocess.STDOUT
        )
        code, gib = _wait(child, float("inf") if limit_s is None else limit_s + _GRACE_S)
    words = (log.read_text().strip().splitlines() or [""])[-1]
    return Ended(code, gib, time.monotonic() - began, words)


def _wait(child: subprocess.Popen, limit_s: float) -> tuple[int | None, float]:
    """The exit code, None at the limit, and the peak memory in GiB, which only `wait4` tells of one child."""
    ends, code = time.monotonic() + limit_s, None
    try:
        while time.monotonic() < ends:
            pid, status, usage = os.wait4(child.pid, os.WNOHANG)
            if pid:
                code = os.waitstatus_to_exitcode(status)
                child.returncode = code
                return code, usage.ru_maxrss / 2**20
            time.sleep(0.05)
    except BaseException:
        child.kill()
        raise
    child.kill()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    return None, usage.ru_maxrss / 2**20


def _line(record: Record) -> str:
    where = f"{record['problem']:<36} {record['method']:<20} seed {record['seed']}"
    return f"{where} {record['seconds']:8.1f} s {record['gib']:6.2f} GiB  {_verdict(record)}"


def _verdict(record: Record) -> str:
    trust = {True: "trusted", False: "not trusted", None: ""}[record.get("trusted")]
    if record["accurate"] is None:
        accuracy = f"nll {record['nll']:.3f}"
    else:
        accuracy = "accurate" if record["accurate"] else "; ".join(record["failures"])
    status = "" if record.get("trusted") is not None else record.get("status", "")
    return ", ".join(part for part in (accuracy, trust, status[:80]) if part)


def table(rows: list[Record]) -> str:
    """A line for each problem and method: medians over seeds, and counts."""
    heads = f"{'seconds':>8} {'GiB':>6} {'accurate':>9} {'at s':>7} {'trusted':>8}"
    lines = [f"{'problem':<36} {'device':<5} {'method':<20} {heads}  notes"]
    groups: dict[tuple[str, ...], list[Record]] = {}
    for row in rows:
        groups.setdefault((row["problem"], row["platform"], row["method"]), []).append(row)
    for (name, platform, method), some in groups.items():
        where = f"{name:<36} {platform:<5} {method:<20}"
        lines.append(f"{where} {_figures(some)}  {_notes(some)}".rstrip())
    return "\n".join(lines)


def _figures(some: list[Record]) -> str:
    seconds, gib = (_median([row[name] for row in some]) for name in ("seconds", "gib"))
    known = [row for row in some if row["accurate"] is not None]
    accurate = f"{sum(row['accurate'] for row in known)}/{len(known)}" if known else "-"
    first = [row["accurate_s"] for row in some if row.get("accurate_s") is not None]
    said = [row["trusted"] for row in some if row.get("trusted") is not None]
    trusted = f"{sum(said)}/{len(some)}" if said else "-"
    at = f"{_median(first):.1f}" if first else "-"
    return f"{seconds:>8.1f} {gib:>6.2f} {accurate:>9} {at:>7} {trusted:>8}"


def _median(values: list[float]) -> float:
    ordered = sorted(values)
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2


def _notes(some: list[Record]) -> str:
    """What failed, once each; the score of predictions; how a run ended that says nothing of trust."""
    found = [f"nll {row['nll']:.3f}" for row in some if "nll" in row]
    found += [words for row in some for words in row["failures"]]
    found += [row["status"] for row in some if row.get("trusted") is None and "status" in row]
    return "; ".join(dict.fromkeys(words[:70] for words in found if words != "done"))


if __name__ == "__main__":
    main()
