"""Records: one JSON file per cell, written when the cell is finished and never changed; and trained
runs."""

import dataclasses
import json
import os
import platform
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from ksivi.comparison import TrainingPlan
from ksivi.results import archive

from .cells import Cell, TrainedRuns

_PACKAGES = ("ksivi", "jax", "jaxlib", "equinox", "optax", "numpy", "scipy", "blackjax", "POT")
_DEFAULTS = {
    field.name: json.loads(json.dumps(field.default))
    for field in dataclasses.fields(TrainingPlan)
    if field.default is not dataclasses.MISSING
}


class Folder:
    """A folder of results: `records/` to keep, and `trained/`, which can be deleted."""

    def __init__(self, path: Path):
        self.path = path

    def record(self, cell: Cell) -> dict[str, Any] | None:
        """The record of a cell, or None if there is none with the same spec."""
        path = self._path(cell, "records", "json")
        record = _read(path) if path.is_file() else None
        return record if record is not None and agree(record["spec"], cell.spec) else None

    def runs(self, cell: Cell) -> TrainedRuns | None:
        """The trained runs of a cell, or None if there are none with the same spec."""
        path = self._path(cell, "trained", "safetensors")
        spec = path.with_suffix(".json")
        try:
            same = agree(json.loads(spec.read_text()), cell.training_spec)
            return archive.read(path) if same else None
        except (OSError, ValueError):  # missing or damaged: train again
            return None

    def keep(self, cell: Cell, runs: TrainedRuns) -> None:
        """Saves trained runs.

        The spec is written last, so a file without a spec is not complete.
        """
        path = self._path(cell, "trained", "safetensors")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.with_suffix(".json").unlink(missing_ok=True)
        _replace(path, archive.pack(runs))
        _write(path.with_suffix(".json"), plain(cell.training_spec))

    def finish(self, cell: Cell, record: dict[str, Any]) -> None:
        """Writes the record."""
        _write(self._path(cell, "records", "json"), record)

    def records(self) -> list[dict[str, Any]]:
        """All records, sorted by name."""
        return [_read(path) for path in sorted(self.path.glob("records/*/*.json"))]

    def _path(self, cell: Cell, kind: str, suffix: str) -> Path:
        return self.path / kind / cell.experiment / f"{cell.name}.{suffix}"


def make_record(
    cell: Cell, runs: TrainedRuns, numbers: dict[str, Any], measuring: float
) -> dict[str, Any]:
    """The record of a cell that was measured in this process, with the versions of its packages."""
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


def agree(stored: dict[str, Any], spec: dict[str, Any]) -> bool:
    """Whether both are the spec of the same cell."""
    return _with_defaults(stored) == _with_defaults(plain(spec))


def _with_defaults(spec: dict[str, Any]) -> dict[str, Any]:
    """The spec with all fields of its plan: one from before a field was there has its default."""
    plan = spec.get("plan", {})
    return spec | {"plan": _DEFAULTS | plan} if "method" in plan else spec


def plain(value: Any) -> Any:
    """The value after a round trip through JSON."""
    return json.loads(json.dumps(value))


def _write(path: Path, value: Any) -> None:
    """Writes one line per key."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(f" {json.dumps(key)}: {json.dumps(part)}" for key, part in value.items())
    _replace(path, ("{\n" + lines + "\n}\n").encode())


def _replace(path: Path, content: bytes) -> None:
    """Writes a file completely or not at all."""
    draft = path.with_suffix(f".{os.getpid()}.tmp")
    draft.write_bytes(content)
    os.replace(draft, path)
