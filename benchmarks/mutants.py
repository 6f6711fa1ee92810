"""Whether the fast tests notice faults: `python -m benchmarks.mutants --count 200 --out mutants.jsonl`.

Changes one operator, number or condition of the kernels, objectives, training and methods at a time, in a clone, by
Cosmic Ray, and runs the tests until one fails. Operators that no float has, such as shifts, are left out: any test sees
them.
Start it with `--part 0 --parts 2` and `--part 1 --parts 2` for two at a time; what is in the file is not run again.
"""

import argparse
import json
import os
import random
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from cosmic_ray.commands import init
from cosmic_ray.modules import find_modules
from cosmic_ray.mutating import mutate_and_test
from cosmic_ray.work_db import WorkDB, use_db
from cosmic_ray.work_item import MutationSpec

PACKAGES = tuple(f"src/ksivi/{name}" for name in ("kernels", "objectives", "training", "methods"))
_TRIVIAL = re.compile("RShift|LShift|BitOr|BitAnd|BitXor|Mod")
_FIRST = {
    "kernels": ("formulas", "kernels", "median", "ksivi", "metrics", "particles", "bad_input"),
    "objectives": ("formulas", "rivals", "wake", "conformance", "ksivi", "bad_input"),
    "training": (
        "trouble",
        "training",
        "checkpoints",
        "run",
        "conformance",
        "normals",
        "bad_input",
        "fit",
    ),
    "methods": ("run", "conformance", "particles", "mcmc", "reference", "bad_input"),
}
"""The test files of a package, those that see most first."""
_LIMIT = 900.0


def mutations() -> list[MutationSpec]:
    """All that count, in a fixed order."""
    with use_db(Path(tempfile.mkdtemp()) / "all.sqlite", WorkDB.Mode.create) as database:
        init(find_modules([Path(package) for package in PACKAGES]), database, {})
        found = [item.mutations[0] for item in database.work_items]
    found.sort(key=lambda one: (str(one.module_path), one.operator_name, one.occurrence))
    return [one for one in found if not _TRIVIAL.search(one.operator_name)]


def command(module: Path) -> str:
    """Runs the package's fast tests until one fails, without what they need not compile again."""
    files = " ".join(f"tests/test_{name}.py" for name in _FIRST[module.parent.name])
    return f"{sys.executable} -m pytest -q -x -m 'not slow' -p no:cacheprovider {files}"


def run(chosen: list[MutationSpec], known: set[str]) -> Iterator[dict[str, object]]:
    for one in chosen:
        name = f"{one.module_path}:{one.start_pos[0]} {one.operator_name} {one.occurrence}"
        if name not in known:
            result = mutate_and_test([one], command(Path(one.module_path)), _LIMIT)
            killed = result.test_outcome is not None and result.test_outcome.value == "killed"
            failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", result.output or "", re.MULTILINE)
            yield {
                "mutant": name,
                "killed": killed,
                "by": failed[:1],
                "diff": "" if killed else result.diff,
            }


def in_clone() -> str:
    """The folder of a clone, whose files may be changed, and whose modules are the ones imported."""
    folder = tempfile.mkdtemp(prefix="mutants-")
    subprocess.run(["git", "clone", "-q", ".", folder], check=True)
    cache = Path(tempfile.gettempdir()) / "mutants-compiled"
    os.environ |= {"PYTHONPATH": f"{folder}/src"}
    os.environ |= {
        "JAX_COMPILATION_CACHE_DIR": str(cache),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    os.environ |= {
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--part", type=int, default=0)
    parser.add_argument("--parts", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("mutants.jsonl"))
    options = parser.parse_args()
    out = options.out.resolve()
    known = (
        {json.loads(line)["mutant"] for line in out.read_text().splitlines()}
        if out.exists()
        else set()
    )
    os.chdir(in_clone())
    for package in PACKAGES:  # tests that fail anyway would kill everything
        subprocess.run(shlex.split(command(Path(package) / "none.py")), check=True)
    everything = mutations()
    chosen = random.Random(options.seed).sample(everything, options.count)[
        options.part :: options.parts
    ]
    print(f"{len(chosen)} of {len(everything)} mutants", flush=True)
    for found in run(chosen, known):
        print(
            found["mutant"], "killed" if found["killed"] else "SURVIVED", *found["by"], flush=True
        )
        with out.open("a") as file:
            file.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
