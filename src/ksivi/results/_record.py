"""The record of a finished run: a folder with the posterior, the facts and the history.

Reading it needs neither the model nor the data.
"""

import dataclasses
import datetime
import hashlib
import io
import json
import os
import platform
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from .._core import archive
from .._core.files import UNREADABLE, open_regular, read_json, read_npz
from .._core.schema import conform
from .._core.version import __version__
from ._diagnostics import Diagnostics
from ._facts import require_facts, require_history
from ._fit import Fit
from ._json import diagnostics_from_json, diagnostics_to_json
from ._legacy import upgraded
from ._names import require_names
from ._npz import write_npz
from ._posterior import Posterior, load
from ._record_files import FACTS, HISTORY, POSTERIOR, path_of, replace_record, stamps
from ._status import Status, status_from_json, status_to_json
from ._table import Table
from ._verdicts import explained, table_of

FORMAT = 2
"""In format 1, of version 0.1.0, diagnostics are display strings."""
_MOST_READS = 100
"""Maximum number of reads of a record that others replace meanwhile."""


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

    @property
    def status(self) -> Status:
        """How the run ended. Records of earlier versions have no single doubts."""
        return status_from_json(self.facts["status"])

    def table(self) -> Table:
        """The same table as `Fit.table` gave."""
        trusted = self.facts["trusted"]
        return table_of(self.posterior, self.status, trusted, self.diagnostics)

    def explain(self) -> str:
        """The same text as `Fit.explain` gave."""
        return explained(self.posterior, self.status, self.diagnostics)

    def write(self, folder: str | os.PathLike) -> None:
        """Writes the record into the folder.

        At every moment the folder holds the older record or the new one, also if the disk is full
        or another process writes there. If the new one cannot be written, an `OSError` is raised.
        A `ValueError` names an entry that could not be read again.
        """
        require_names([name for name, _ in self.posterior.layout], "the layout")
        history, posterior = _npz(self.history), archive.pack(self.posterior)
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        sha256 = _digest(self.facts, [history, posterior])
        sealed = {**self.facts, "sha256": sha256}
        text = json.dumps(sealed, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
        # File names can have bytes that are no text; Python's escape for them is JSON's escape too.
        facts = text.encode(errors="backslashreplace")
        replace_record(folder, facts, {HISTORY: history, POSTERIOR: posterior}, sha256)


def read_record(folder: str | os.PathLike) -> Record:
    """Reads what `Record.write` wrote, in this version or in an earlier one.

    Raises a `ValueError` with the reason if the folder has no complete record.
    """
    if not isinstance(folder, str | os.PathLike) or not (Path(folder) / FACTS).is_file():
        raise ValueError(
            f"folder must be the folder of a finished `ksivi fit`: there is no {FACTS} in {folder}"
        )
    for _ in range(_MOST_READS):
        before = stamps(Path(folder))
        try:
            found = _read(Path(folder))
        except ValueError:
            if stamps(Path(folder)) == before:
                raise
            continue
        if stamps(Path(folder)) == before:
            return found
    raise ValueError(f"{folder} cannot be read: other processes write into it all the time")


def _read(folder: Path) -> Record:
    try:
        facts = conform(read_json(folder / FACTS), dict[str, Any], FACTS)
        if facts.get("format") in (1, FORMAT):
            return _checked(folder, facts)
    except UNREADABLE as error:
        raise ValueError(f"{folder} holds a damaged record: {error}") from error
    raise ValueError(
        f"{folder / FACTS} must be a record of format 1 or {FORMAT}, which this version of ksivi reads"
    )


def _checked(folder: Path, facts: dict[str, Any]) -> Record:
    """The record with these facts. Raises an error if anything is damaged or of another type."""
    stated = facts.pop("sha256", None)
    paths = [path_of(folder, name, stated) for name in (HISTORY, POSTERIOR)]
    if stated != _digest(facts, paths):
        raise ValueError(f"its files do not match the SHA-256 in {FACTS}")
    history, posterior = read_npz(paths[0]), load(paths[1])
    if facts["format"] == 1:
        facts |= {"format": FORMAT, "diagnostics": upgraded(facts.get("diagnostics"))}
    require_facts(facts, posterior)
    require_history(history)
    return Record(posterior, facts, history)


def _npz(arrays: dict[str, Any]) -> bytes:
    content = io.BytesIO()
    write_npz(content, arrays, "the history", compress=True)
    return content.getvalue()


def _digest(facts: Any, files: Iterable[bytes | Path]) -> str:
    """The SHA-256 of everything in a record: it shows that the files belong together."""
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
    for one in files:
        with io.BytesIO(one) if isinstance(one, bytes) else open_regular(one) as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())  # type: ignore[arg-type]
    return digest.hexdigest()


def _facts(fit: Fit) -> dict[str, Any]:
    device = jax.devices()[0]
    return {
        "format": FORMAT,
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "status": status_to_json(fit.status),
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
