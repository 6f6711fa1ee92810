"""The record of a finished run: a folder with the posterior, the facts and the history.

Reading it needs neither the model nor the data.
"""

import dataclasses
import hashlib
import io
import json
import os
import platform
from pathlib import Path
from typing import Any

import jax
import numpy as np

from .._core.files import UNREADABLE, read_npz, write_atomically
from .._core.version import __version__
from ._diagnostics import Diagnostics
from ._fit import Fit
from ._json import diagnostics_from_json, diagnostics_to_json
from ._legacy import upgraded
from ._posterior import Posterior, load

_POSTERIOR, _FACTS, _HISTORY = "posterior.safetensors", "fit.json", "history.npz"
FORMAT = 2
"""In format 1, of version 0.1.0, diagnostics are display strings."""


@dataclasses.dataclass(frozen=True)
class Record:
    """A finished run.

    **Attributes:**

    - `posterior`: the sampler.
    - `facts`: what was run, how it ended, diagnostics, cost and versions, as JSON holds them.
    - `history`: arrays over the steps.
    """

    posterior: Posterior
    facts: dict[str, Any]
    history: dict[str, np.ndarray]

    @classmethod
    def of(cls, fit: Fit, **about: Any) -> "Record":
        """The record of a fit, with more facts about it, such as the model's name."""
        return cls(fit.posterior, {**about, **_facts(fit)}, fit.history)

    @property
    def diagnostics(self) -> Diagnostics | None:
        """The diagnostics as numbers; None if a method outside ksivi wrote them."""
        return diagnostics_from_json(self.facts["diagnostics"])

    def write(self, folder: str | os.PathLike) -> None:
        """Writes the record into the folder.

        The facts come last: a folder with facts is complete.
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        # Everything that can fail comes before an older record is removed.
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
        write_atomically(
            folder / _FACTS, (json.dumps(sealed, indent=2, ensure_ascii=False) + "\n").encode()
        )


def read_record(folder: str | os.PathLike) -> Record:
    """Reads what `Record.write` wrote, in this version or in an earlier one.

    Raises a `ValueError` with the reason if the folder has no complete record.
    """
    if not isinstance(folder, str | os.PathLike) or not (Path(folder) / _FACTS).is_file():
        raise ValueError(
            f"folder must be the folder of a finished `ksivi fit`: there is no {_FACTS} in {folder}"
        )
    folder = Path(folder)
    try:
        facts = json.loads((folder / _FACTS).read_text(encoding="utf-8"))
        history = read_npz(folder / _HISTORY)
        posterior = load(folder / _POSTERIOR)
        stated = facts.pop("sha256", None) if isinstance(facts, dict) else None
        is_whole = stated == _digest(facts, folder)
    except UNREADABLE as error:
        raise ValueError(f"{folder} holds a damaged record: {error}") from error
    if not isinstance(facts, dict) or facts.get("format") not in (1, FORMAT):
        raise ValueError(
            f"{folder / _FACTS} must be a record of format 1 or {FORMAT}, which this version of ksivi reads"
        )
    if not is_whole:
        raise ValueError(
            f"{folder} holds a damaged record: its files do not match the SHA-256 in {_FACTS}"
        )
    if facts["format"] == 1:
        facts |= {"format": FORMAT, "diagnostics": upgraded(facts["diagnostics"])}
    return Record(posterior, facts, history)


def _digest(facts: Any, folder: Path) -> str:
    """The SHA-256 of everything in a record: it shows that the files belong together."""
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
    for name in (_HISTORY, _POSTERIOR):
        digest.update(hashlib.sha256((folder / name).read_bytes()).digest())
    return digest.hexdigest()


def _facts(fit: Fit) -> dict[str, Any]:
    device = jax.devices()[0]
    return {
        "format": FORMAT,
        "status": {"kind": fit.status.kind, "reason": fit.status.reason},
        "trusted": fit.trusted,
        "diagnostics": diagnostics_to_json(fit.diagnostics),
        "cost": dataclasses.asdict(fit.cost),
        "parameters": {name: list(shape) for name, shape in fit.posterior.layout},
        "device": device.device_kind
        if device.platform != "cpu"
        else f"CPU, {os.cpu_count()} cores",
        "versions": {
            "ksivi": __version__,
            "jax": jax.__version__,
            "python": platform.python_version(),
        },
    }
