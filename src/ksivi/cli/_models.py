"""The target of FILE.py:NAME and a data file."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .._core.checks import as_count, brief, describe
from ..calibration import Simulate, simulate_numpyro
from ..problems import from_module
from ..targets import Target, from_numpyro, from_pymc
from ._data import Data, NotNumbers, numbers_of, read_data
from ._shared import notes


def target_of(where: str, dim: int | None, data: Path | None) -> Target:
    """The target of a log density (with `dim`), a NumPyro or PyMC model, or a Target."""
    found = from_module(where)
    given = {} if data is None else read_data(data)
    if dim is not None:
        return _of_log_density(_log_density(where, found, given), as_count(dim, "--dim"))
    failed: Exception | None = None
    if callable(found) and not isinstance(found, Target):
        given = _arguments(where, found, given)
        made, failed = _made(found, given)
        found = found if made is None else made
    elif given:
        raise ValueError(
            f"--data is for a function that takes it, but {where} is a {type(found).__name__}"
        )
    if isinstance(found, Target):
        return found
    if _is_pymc(found):
        return from_pymc(found)
    if not callable(found):
        raise ValueError(
            f"{where} must be a log density, a model or a ksivi.Target, got {type(found).__name__}"
        )
    return _of_numpyro(where, found, given, failed)


def simulate_of(where: str, data: Path | None) -> tuple[Simulate, Target]:
    """A simulator of parameters and data from the prior of a NumPyro model, and its target."""
    model = from_module(where)
    if not callable(model) or isinstance(model, Target):
        raise ValueError(f"{where} must be a NumPyro model, got {type(model).__name__}")
    given = _arguments(where, model, {} if data is None else read_data(data))
    target = _of_numpyro(where, model, given)
    return simulate_numpyro(model, **given), target


def _log_density(where: str, found: Any, given: Data) -> Callable:
    if not callable(found) or isinstance(found, Target):
        raise ValueError(f"--dim is for a log density, but {where} is a {type(found).__name__}")
    given = _arguments(where, found, given, "the point, its first argument")
    return (lambda x: found(x, **given)) if given else found


def _of_log_density(log_density: Callable, dim: int) -> Target:
    try:
        return Target(log_density, dim)
    except ValueError as error:
        if error.__cause__ is None:
            raise
        raise ValueError(f"{error}; if it is a model, leave out --dim") from error


def _arguments(where: str, function: Callable, given: Data, *first: str) -> Data:
    """The data that the function takes after its first arguments.

    Reports data that are unused or missing.
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError as error:
        raise ValueError(
            f"{where} must be a function whose arguments have names, got {describe(function)}"
        ) from error
    takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
    names = [parameter.name for parameter in parameters][len(first) :]
    taken = {
        name: value
        for name, value in given.items()
        if name in names or (takes_all and not isinstance(value, NotNumbers))
    }
    if left := [name for name in given if name not in taken]:
        notes.print(
            f"{where} does not take {', '.join(left)}: not used", highlight=False, markup=False
        )
    try:
        inspect.signature(function).bind(*first, **taken)
    except TypeError as error:
        hint = "" if given or first else "; a log density needs --dim, and a model needs --data"
        named = ", ".join(given) or "nothing"
        raise ValueError(
            f"--data must contain what {where} takes ({error}), but it has {named}{hint}"
        ) from error
    return numbers_of(taken)


def _made(function: Callable, given: Data) -> tuple[Any, Exception | None]:
    """The PyMC model or target that a function returns, or None, and the error that it raises.

    A NumPyro model returns neither, and fails where it is simply called.
    """
    try:
        made = function(**given)
    except Exception as error:
        return None, error
    return (made, None) if isinstance(made, Target) or _is_pymc(made) else (None, None)


def _is_pymc(found: Any) -> bool:
    return any(
        base.__module__.startswith("pymc.") and base.__name__ == "Model"
        for base in type(found).__mro__
    )


def _of_numpyro(
    where: str, model: Callable, given: Data, failed: Exception | None = None
) -> Target:
    """The target of a NumPyro model; `failed` is the error of a call that was not traced."""
    try:
        return from_numpyro(model, **given)
    except ImportError:
        raise
    except Exception as error:
        if failed is not None and repr(error.__cause__) == repr(failed):
            raise ValueError(f"{where} failed: {brief(failed)}") from failed
        hint = "; a log density needs --dim" if str(error).startswith("model ") else ""
        raise ValueError(
            f"{where} cannot be used as a NumPyro model of {', '.join(given) or 'no data'}: "
            f"{error}{hint}"
        ) from error
