"""The arguments of `fit`, checked."""

import operator
from collections.abc import Sequence
from typing import Any, Literal, get_args

import equinox as eqx
import jax
import numpy as np
from jaxtyping import PRNGKeyArray

from .._core.checks import as_choice, as_keys
from ..results import Fit, Posterior
from ..targets import Target

Kind = Literal["gaussian", "mixture", "sampler"]
"""The answers of `fit`, the cheapest first."""


def as_target(target: Target | Sequence[Target]) -> Target:
    if not isinstance(target, Target):
        raise ValueError(f"target must be a ksivi.Target, got {type(target).__name__}")
    return target


def as_init(init: Fit | Posterior, target: Target) -> Posterior:
    posterior = init.posterior if isinstance(init, Fit) else init
    if not isinstance(posterior, Posterior) or not posterior.family.has_density:
        raise ValueError(
            f"init must be an earlier fit with a density, not stored draws, got {type(init).__name__}"
        )
    if posterior.dim != target.dim:
        raise ValueError(f"init must have the target's dim {target.dim}, got dim {posterior.dim}")
    return posterior


def is_of(init: object, target: Target) -> bool:
    """Whether `init` is a fit to this very target. Many rows are the same only if they are one array."""
    of = init.posterior.target if isinstance(init, Fit) else None
    if of is None:
        return False
    if not target.is_minibatched:
        return bool(eqx.tree_equal(of, target.unwhitened()))
    before, now = jax.tree.leaves(of), jax.tree.leaves(target.unwhitened())
    return len(before) == len(now) and all(map(operator.is_, before, now))


def as_kind(at_least: Kind | None, is_sampler: bool) -> Kind:
    if at_least is None:
        return "sampler" if is_sampler else "gaussian"
    return as_choice(at_least, "at_least", get_args(Kind))


def is_batch(key: PRNGKeyArray) -> bool:
    return bool(np.ndim(key)) if hasattr(key, "dtype") else False


def as_batch(
    key: PRNGKeyArray, target: Target | Sequence[Target], checkpoint: Any
) -> tuple[PRNGKeyArray, list[Target]]:
    """One key and one target for each fit."""
    keys = as_keys(key)
    targets: list[Any] = list(target) if isinstance(target, list | tuple) else [target] * keys.size
    if keys.shape != (len(targets),):
        raise ValueError(
            f"key must have one key per target, got keys of shape {keys.shape} for "
            f"{len(targets)} targets"
        )
    if checkpoint is not None:
        raise ValueError("checkpoint must be None for several targets: give each its own call")
    return keys, targets


def names_given(**arguments: Any) -> tuple[str, ...]:
    """The names of the arguments that were given."""
    return tuple(name for name, value in arguments.items() if value is not None)
