"""What a run leaves behind: a folder with its posterior, its facts and its history, read without the model."""

import dataclasses
import hashlib
import io
import json
import math
import os
import platform
from pathlib import Path
from typing import Any

import jax
import numpy as np

from .._core.files import UNREADABLE, read_npz, write_atomically
from ._posterior import Fit, Posterior, load

_POSTERIOR, _FACTS, _HISTORY = "posterior.safetensors", "fit.json", "history.npz"
FORMAT = 1


@dataclasses.dataclass(frozen=True)
class Record:
    """A finished run.

    **Attributes:**

    - `posterior`: the sampler.
    - `facts`: what was run, how it ended, diagnostics, cost and versions, as JSON has them.
    - `history`: arrays over the steps.
    """

    posterior: Posterior
    facts: dict[str, Any]
    history: dict[str, np.ndarray]

    @classmethod
    def of(cls, fit: Fit, **about: Any) -> "Record":
        """The record of a fit, with what else there is to say about it, such as the model's name."""
        return cls(fit.posterior, {**about, **_facts(fit)}, fit.history)

    def write(self, folder: str | os.PathLike) -> None:
        """Into the folder, which is made if it is not there; the facts last, so that they tell of a whole record."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        # Whatever may be refused is tried first: only then may an older record go.
        json.dumps(self.facts, allow_nan=False)
        written = folder / f".{_POSTERIOR}"
        self.posterior.save(written)
        (folder / _FACTS).unlink(missing_ok=True)
        os.replace(written, folder / _POSTERIOR)
        arrays: dict[str, Any] = {name: np.asarray(values) for name, values in self.history.items()}
        content = io.BytesIO()
        np.savez_compressed(content, **arrays)
        write_atomically(folder / _HISTORY, content.getvalue())
        sealed = {**self.facts, "sha256": _digest(self.facts, folder)}
        write_atomically(folder / _FACTS, (json.dumps(sealed, indent=2, ensure_ascii=False) + "\n").encode())


def read_record(folder: str | os.PathLike) -> Record:
    """Reads what `Record.write` wrote. A folder without a whole record is refused (`ValueError`) with the reason."""
    if not isinstance(folder, str | os.PathLike) or not (Path(folder) / _FACTS).is_file():
        raise ValueError(f"folder must be the folder of a finished `ksivi fit`: there is no {_FACTS} in {folder}")
    folder = Path(folder)
    try:
        facts = json.loads((folder / _FACTS).read_text(encoding="utf-8"))
        history = read_npz(folder / _HISTORY)
        posterior = load(folder / _POSTERIOR)
        stated = facts.pop("sha256", None) if isinstance(facts, dict) else None
        is_whole = stated == _digest(facts, folder)
    except UNREADABLE as error:
        raise ValueError(f"{folder} holds a damaged record: {error}") from error
    if not isinstance(facts, dict) or facts.get("format") != FORMAT:
        raise ValueError(f"{folder / _FACTS} must be a record of format {FORMAT}, which this version of ksivi writes")
    if not is_whole:
        raise ValueError(f"{folder} holds a damaged record: its files do not match the SHA-256 in {_FACTS}")
    return Record(posterior, facts, history)


def _digest(facts: Any, folder: Path) -> str:
    """Of all that a record holds, so that its files belong together."""
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
    for name in (_HISTORY, _POSTERIOR):
        digest.update(hashlib.sha256((folder / name).read_bytes()).digest())
    return digest.hexdigest()


def _facts(fit: Fit) -> dict[str, Any]:
    from .. import __version__

    device = jax.devices()[0]
    return {
        "format": FORMAT,
        "status": {"kind": fit.status.kind, "reason": fit.status.reason},
        "trusted": fit.trusted,
        "diagnostics": {name: _as_json(value) for name, value in fit.diagnostics.items()},
        "cost": dataclasses.asdict(fit.cost),
        "parameters": {name: list(shape) for name, shape in fit.posterior.layout},
        "device": device.device_kind if device.platform != "cpu" else f"CPU, {os.cpu_count()} cores",
        "versions": {"ksivi": __version__, "jax": jax.__version__, "python": platform.python_version()},
    }


def _as_json(value: Any) -> Any:
    """Numbers as numbers, those that JSON lacks as None, all else in words."""
    if isinstance(value, float | np.floating):
        return float(value) if math.isfinite(value) else None
    return int(value) if isinstance(value, int | np.integer) else str(value)
