"""A problem from the user's own Python file."""

import importlib.util
import sys
from pathlib import Path
from typing import Any

import equinox as eqx

from .._core.checks import as_count
from ..targets import Target
from ._problem import AbstractProblem, near_origin, resample_truth


class UserProblem(AbstractProblem):
    """A log density of the user. NUTS gives its truth."""

    name: str = eqx.field(static=True)
    target: Target

    def reference(self, key, n):
        return resample_truth(key, n, self, None)

    def start(self, key, n):
        return near_origin(key, n, self.target.dim)


def from_file(where: str, dim: int) -> UserProblem:
    """A problem from a log density in a Python file. The file is executed.

    **Arguments:**

    - `where`: "path/to/model.py:log_density".
    - `dim`: the dimension of its argument.
    """
    function = from_module(where)
    if not callable(function):
        raise ValueError(f"{where} must be a function, got {type(function).__name__}")
    return UserProblem(where, Target(function, as_count(dim, "dim")))


def from_module(where: str) -> Any:
    """The object that "path/to/model.py:name" names. The file is executed."""
    path, _, name = where.rpartition(":")
    file = Path(path)
    if not path or not name or not file.is_file():
        raise ValueError(
            f"your own problem must be FILE.py:NAME with a file that exists, got {where!r}"
        )
    module = _execute(file.resolve())
    if not hasattr(module, name):
        raise ValueError(f"{path} does not define {name}")
    return getattr(module, name)


def _execute(file: Path):
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise ValueError(f"{file} must be a Python file")
    module = importlib.util.module_from_spec(spec)
    # Like a script, the file can import its neighbours, now or later, and is in `sys.modules`.
    sys.path.insert(0, str(file.parent))
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise ValueError(f"{file} could not be imported: {error!r}") from error
    return module
