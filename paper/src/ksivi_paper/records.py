"""Records: one JSON file a cell, written when it is finished and never changed; and what training left for it."""

import json
import os
import platform
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from ksivi._core import archive

from .cells import Cell, Runs

_PACKAGES = ("ksivi", "jax", "jaxlib", "equinox", "optax", "numpy", "scipy", "blackjax", "POT")


class Folder:
    """A folder of results: `records/` to keep and `trained/` to throw away."""

    def __init__(self, path: Path):
        self.path = path

    def record(self, cell: Cell) -> dict[str, Any] | None:
        """The finished record of a cell, if its spec is still the same."""
        path = self._path(cell, "records", "json")
        record = _read(path) if path.is_file() else None
        return record if record is not None and record["spec"] == plain(cell.spec) else None

    def runs(self, cell: Cell) -> Runs | None:
        """What an earlier training left, if it was the same training."""
        path = self._path(cell, "trained", "safetensors")
        note = path.with_suffix(".json")
        try:
            same = json.loads(note.read_text()) == plain(cell.training_spec)
            return archive.read(path) if same else None
        except (OSError, ValueError):  # not there, or damaged: it is trained again
            return None

    def keep(self, cell: Cell, runs: Runs) -> None:
        """Stores what training left. The note comes last, so that a file without one is not finished."""
        path = self._path(cell, "trained", "safetensors")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.with_suffix(".json").unlink(missing_ok=True)
        _replace(path, archive.pack(runs))
        _write(path.with_suffix(".json"), plain(cell.training_spec))

    def finish(self, cell: Cell, record: dict[str, Any]) -> None:
        """Writes the record."""
        _write(self._path(cell, "records", "json"), record)

    def records(self) -> list[dict[str, Any]]:
        """All finished records, in the order of their names."""
        return [_read(path) for path in sorted(self.path.glob("records/*/*.json"))]

    def _path(self, cell: Cell, kind: str, suffix: str) -> Path:
        return self.path / kind / cell.experiment / f"{cell.name}.{suffix}"


def make_record(cell: Cell, runs: Runs, numbers: dict[str, Any], measuring: float) -> dict[str, Any]:
    """The record of a cell that was measured in this process, whose packages it names."""
    return {
        "experiment": cell.experiment,
        "cell": cell.name,
        "spec": cell.spec,
        "numbers": numbers,
        "status": list(runs.status),
        "notes": json.loads(runs.notes),
        "seconds": {
            "training": round(runs.seconds, 2),
            "a_step": float(f"{runs.seconds_a_step:.4g}"),
            "measuring": round(measuring, 2),
        },
        "device": runs.device,
        "versions": versions(),
        "finished": time.strftime("%Y-%m-%d", time.gmtime()),
    }


def versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def _read(path: Path) -> dict[str, Any]:
    try:
        record = json.loads(path.read_text())
        missing = {"experiment", "cell", "spec", "numbers", "status", "seconds"} - set(record)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path} is damaged: {error}; remove it to run its cell again") from error
    if missing:
        raise ValueError(f"{path} is not a record: it has no {', '.join(sorted(missing))}")
    return record


def plain(value: Any) -> Any:
    """As it comes back from JSON."""
    return json.loads(json.dumps(value))


def _write(path: Path, value: Any) -> None:
    """A line a key, short lists on one line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(f" {json.dumps(key)}: {json.dumps(part)}" for key, part in value.items())
    _replace(path, ("{\n" + lines + "\n}\n").encode())


def _replace(path: Path, content: bytes) -> None:
    """Writes a file whole or not at all."""
    draft = path.with_suffix(f".{os.getpid()}.tmp")
    draft.write_bytes(content)
    os.replace(draft, path)
