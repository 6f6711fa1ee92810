"""Replications, and the file that keeps them: one line of JSON each."""

import dataclasses
import json
import os
from pathlib import Path

from .._core.files import read_bytes, write_atomically
from .._core.schema import conform

RANKED = 99
"""Draws for the rank of a true value."""


@dataclasses.dataclass(frozen=True)
class Replication:
    """One set of true parameters, and where they lie in the posterior of their data.

    **Attributes:**

    - `key`, `index`: the key of the calibration, and the number of this replication.
    - `ranks`: for each parameter, how many of 99 draws are below the true value.
    - `shares`: for each parameter, the share of 1,000 draws below the true value. A central
        interval contains the value if the share lies between the interval's levels.
    - `trusted`, `status`, `seconds`: the verdict and the time of the fit.
    - `fingerprint`: a digest of the model, the data and the settings. Empty without a record.
    """

    key: str
    index: int
    ranks: dict[str, int]
    shares: dict[str, float]
    trusted: bool
    status: str
    seconds: float
    fingerprint: str = ""


def read(path: str | os.PathLike | None, key: str, fingerprint: str) -> list[Replication]:
    """The replications in the record.

    An incomplete last line, left by a crash or a full disk, is removed from the file.
    """
    if path is None:
        return []
    if not Path(path).parent.is_dir():
        raise ValueError(f"record must be a file in an existing folder, got {path}")
    if not Path(path).exists():
        return []
    content = read_bytes(path)
    lines = content.splitlines(keepends=True)
    whole = lines[:-1] if lines and _is_torn(lines[-1]) else lines
    found = [_replication(line, f"line {i} of {path}") for i, line in enumerate(whole, 1)]
    _require_same(found, path, key, fingerprint)
    kept = b"".join(whole)
    if kept and not kept.endswith(b"\n"):
        kept += b"\n"
    if kept != content:
        write_atomically(path, kept)
    return found


def _is_torn(line: bytes) -> bool:
    """Whether only the beginning of a line of the record was written."""
    if line.endswith(b"\n") or not line.startswith(b"{"):
        return False
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return True
    return False


def _require_same(
    found: list[Replication], path: str | os.PathLike, key: str, fingerprint: str
) -> None:
    """Refuses replications of another calibration. Lines of older versions have no fingerprint."""
    advice = "Use another file (another --out), or remove this one"
    if any(one.key != key for one in found):
        raise ValueError(
            f"record must come from the same key, but {path} belongs to a different calibration. "
            f"{advice}"
        )
    if any(
        one.fingerprint != fingerprint or set(one.ranks) != set(found[0].ranks) for one in found
    ):
        raise ValueError(
            f"record must come from the same calibration, but {path} belongs to another model, "
            f"other data or other settings. {advice}"
        )


def _replication(line: bytes, where: str) -> Replication:
    try:
        one = conform(json.loads(line), Replication, "it")
        _require_valid(one)
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"record must contain replications, but {where} is not one: {error}"
        ) from error
    return one


def _require_valid(one: Replication) -> None:
    if not one.ranks:
        raise ValueError("it must have the rank of at least one parameter")
    ranks, shares = one.ranks.values(), one.shares.values()
    if set(one.shares) != set(one.ranks) or not all(0 <= rank <= RANKED for rank in ranks):
        raise ValueError(f"it must have a share and a rank of 0 to {RANKED} for each parameter")
    if not all(0 <= share <= 1 for share in shares):
        raise ValueError("it must have shares from 0 to 1")


def append(path: str | os.PathLike | None, one: Replication) -> None:
    if path is not None:
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(json.dumps(dataclasses.asdict(one)) + "\n")
            file.flush()
            os.fsync(file.fileno())
