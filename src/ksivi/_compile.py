"""Programs that run once, and briefly."""

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx
import jax

Function = TypeVar("Function", bound=Callable)

_LITTLE = {"xla_backend_optimization_level": 1}


def one_shot(function: Function) -> Function:
    """`eqx.filter_jit` for what runs for seconds: on a CPU, compiled with little optimisation, in half the time.

    Matrix products are libraries' in any case; what suffers, by a quarter or so, are large loops over elements.
    """
    quick = eqx.filter_jit(function, compiler_options=_LITTLE)  # type: ignore[call-overload]
    full = eqx.filter_jit(function)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return (quick if jax.default_backend() == "cpu" else full)(*args, **kwargs)

    return call  # type: ignore[return-value]
