"""A user's own log density, from a Python file."""

import importlib.util
import sys
from pathlib import Path
from typing import Any

import equinox as eqx

from .._core.checks import as_count
from ..targets import Target
from ._problem import AbstractProblem, long_run, near_origin


class Own(AbstractProblem):
    """A log density whose truth is what NUTS says."""

    name: str = eqx.field(static=True)
    target: Target

    def reference(self, key, n):
        return long_run(key, n, self, None)

    def start(self, key, n):
        return near_origin(key, n, self.target.dim)


def from_file(where: str, dim: int) -> Own:
    """The problem of a function in a file, which is executed.

    **Arguments:**

    - `where`: "path/to/model.py:log_density".
    - `dim`: the number of coordinates of its argument.
    """
    function = from_module(where)
    if not callable(function):
        raise ValueError(f"{where} must be a function, got {type(function).__name__}")
    return Own(where, Target(function, as_count(dim, "dim")))


def from_module(where: str) -> Any:
    """What a Python file, which is executed, defines by this name: "path/to/model.py:name"."""
    path, _, name = where.rpartition(":")
    file = Path(path)
    if not path or not name or not file.is_file():
        raise ValueError(f"a problem of your own is FILE.py:NAME with a file that exists, got {where!r}")
    module = _execute(file.resolve())
    if not hasattr(module, name):
        raise ValueError(f"{path} must define {name}, and it does not")
    return getattr(module, name)


def _execute(file: Path):
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise ValueError(f"{file} must be a Python file")
    module = importlib.util.module_from_spec(spec)
    # As when the file is run as a script: it may import its neighbours, now or later, and find itself by name.
    sys.path.insert(0, str(file.parent))
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise ValueError(f"{file} could not be imported: {error!r}") from error
    return module
