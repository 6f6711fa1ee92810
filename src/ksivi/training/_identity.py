"""What identifies a run, so that its checkpoints serve no other: digests of its arguments."""

import hashlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, PyTree

from .._core.closures import Structural
from .._core.fingerprints import (
    Digest,
    add_array,
    arrays_within,
    program_of,
    without_addresses,
)
from ..targets import Target


def digest(tree: PyTree) -> str:
    """A digest of an argument: all its arrays, the `repr` of everything else, and its programs.

    Of a target it covers the program of the log density with every array that it closes over, rows
    that stay on the host, and values that are computed there.
    """
    found = hashlib.sha256(_stable_repr(jax.tree.structure(tree)))
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        found.update(jax.tree_util.keystr(path).encode())
        _add_leaf(found, leaf)
    is_target = lambda part: isinstance(part, Target)  # noqa: E731
    for target in filter(is_target, jax.tree.leaves(tree, is_leaf=is_target)):
        _add_target(found, target)
    return found.hexdigest()


def _add_leaf(found: Digest, leaf: Any) -> None:
    if not isinstance(leaf, jax.Array | np.ndarray):
        found.update(_stable_repr(leaf))
        leaf = leaf.value if isinstance(leaf, Structural) else leaf
        for array in arrays_within(leaf):
            add_array(found, array)
    elif getattr(leaf, "is_fully_addressable", True):
        found.update(str(leaf.dtype).encode())  # the generator of a key
        add_array(found, leaf)


def _add_target(found: Digest, target: Target) -> None:
    """Adds the target's functions. Its leaves have been added."""
    values, scores = target.has_log_density, target.density.has_given_score
    for function in [Target.log_density] * values + [Target.score] * (scores or not values):
        program = program_of(function, target, jnp.zeros(target.dim))
        found.update(program.text.encode())
        for array in program.constants:
            add_array(found, array)
    if target.host_rows is not None:
        target.host_rows.add_to(found)
    for array in target.density.host_values(_points(target.dim)):
        found.update(_rounded(array))


def _points(dim: int) -> Float[np.ndarray, "n d"]:
    """Points for functions on the host, whose data cannot be seen."""
    return np.array([[0.0], [0.3], [-0.7]]) * (1 + np.arange(dim) / dim)


def _rounded(array: np.ndarray) -> bytes:
    """Values to six digits of the largest: the last bits can differ between processes."""
    finite = np.nan_to_num(array)
    scale = float(np.max(np.abs(finite), initial=0.0)) or 1.0
    return f"{scale:.6e}".encode() + (np.round(finite / scale, 6) + 0.0).tobytes()


def _stable_repr(value: Any) -> bytes:
    """A `repr` that is equal in every process."""
    return without_addresses(repr(value)).encode()
