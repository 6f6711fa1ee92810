"""Arrays as an npz file that any reader opens without pickles."""

import os
import zipfile
from collections.abc import Mapping
from typing import IO, Any

import numpy as np

from ._names import require_names


def write_npz(
    file: str | os.PathLike | IO[bytes], arrays: Mapping[str, Any], where: str, *, compress: bool
) -> None:
    """Writes arrays under any names. `np.savez` takes the name `file` as its own argument.

    Raises a `ValueError` that names the entry, before it writes, if an array holds objects.

    **Arguments:**

    - `where`: what the arrays are, for the message.
    """
    require_names(arrays, where)
    stored = {name: _plain(name, values, where) for name, values in arrays.items()}
    method = zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, values in stored.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, values, allow_pickle=False)


def _plain(name: str, values: Any, where: str) -> np.ndarray:
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise ValueError(f"{name!r} in {where} must be an array: {error}") from error
    if array.dtype.hasobject:
        raise ValueError(f"{name!r} in {where} must be numbers or text, got objects")
    return array
