"""From FILE.py:NAME and a file of data to a target."""

import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from .._checks import as_count
from ..problems import from_module
from ..targets import Target, from_numpyro, from_pymc

Data = dict[str, Any]


def target_of(where: str, dim: int | None, data: Path | None) -> Target:
    """A target, a PyMC model, a log density (with `dim`), or a NumPyro model with the data that it takes by name."""
    found = from_module(where)
    given = {} if data is None else read_data(data)
    if dim is not None:
        return Target(_log_density(where, found, given), as_count(dim, "--dim"))
    if callable(found) and not isinstance(found, Target):
        _require_arguments(where, found, given)
        found = _made(found, given) or found
    elif given:
        raise ValueError(f"--data is for a function that takes it, and {where} is a {type(found).__name__}")
    if isinstance(found, Target):
        return found
    if _is_pymc(found):
        return from_pymc(found)
    if not callable(found):
        raise ValueError(f"{where} must be a log density, a model or a ksivi.Target, got {type(found).__name__}")
    return _of_numpyro(where, found, given)


def read_data(path: Path) -> Data:
    """Columns of a CSV file with a header, or the entries of a JSON object or of an npz file, by name."""
    readers = {".csv": _read_csv, ".json": _read_json, ".npz": _read_npz}
    if path.suffix not in readers:
        raise ValueError(f"--data must be a .csv, .json or .npz file, got {path}")
    if not path.is_file():
        raise ValueError(f"--data must be a file that exists, got {path}")
    try:
        return readers[path.suffix](path)
    except (OSError, ValueError) as error:
        raise ValueError(f"--data: {path} cannot be read: {error}") from error


def _read_csv(path: Path) -> Data:
    with path.open(encoding="utf-8-sig") as file:
        header = file.readline()
    names = [name.strip().strip('"') for name in header.split(",")]
    columns = np.loadtxt(path, delimiter=",", skiprows=1, ndmin=2, encoding="utf-8-sig")
    if columns.shape[1] != len(names):
        raise ValueError(f"its header names {len(names)} columns, and its rows have {columns.shape[1]}")
    return {name: _whole(column) for name, column in zip(names, columns.T, strict=True)}


def _read_json(path: Path) -> Data:
    found = json.loads(path.read_text())
    if not isinstance(found, dict):
        raise ValueError("it must hold one object, of numbers and lists by name")
    return {name: np.asarray(value) if isinstance(value, list) else value for name, value in found.items()}


def _read_npz(path: Path) -> Data:
    with np.load(path) as stored:
        return dict(stored)


def _whole(column: np.ndarray) -> np.ndarray:
    """As integers where all are: they may be indices or counts."""
    is_whole = np.isfinite(column).all() and np.all(column == np.round(column))
    return column.astype(int) if is_whole else column


def _log_density(where: str, found: Any, given: Data) -> Callable:
    if not callable(found) or isinstance(found, Target):
        raise ValueError(f"--dim is for a log density, and {where} is a {type(found).__name__}")
    return (lambda x: found(x, **given)) if given else found


def _require_arguments(where: str, function: Callable, given: Data) -> None:
    try:
        inspect.signature(function).bind(**given)
    except TypeError as error:
        named = ", ".join(given) or "none"
        raise ValueError(f"--data must hold what {where} takes ({error}); it has {named}") from error


def _made(function: Callable, given: Data) -> Any:
    """The model or target that a function makes and returns, or None: a NumPyro model cannot be called by itself."""
    try:
        made = function(**given)
    except Exception:
        return None
    return made if isinstance(made, Target) or _is_pymc(made) else None


def _is_pymc(found: Any) -> bool:
    return any(base.__module__.startswith("pymc.") and base.__name__ == "Model" for base in type(found).__mro__)


def _of_numpyro(where: str, model: Callable, given: Data) -> Target:
    try:
        return from_numpyro(model, **given)
    except ImportError:
        raise
    except Exception as error:
        hint = "a log density needs --dim, and a model its data"
        raise ValueError(f"{where} is no NumPyro model that can be traced ({error}); {hint}") from error
