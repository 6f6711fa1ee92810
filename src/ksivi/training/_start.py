"""The start of a run: its parameters or earlier state, and whether the target is finite there."""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PRNGKeyArray, PyTree

from .._core.checks import attributing_errors_to
from .._core.compile import jit
from .._core.sharding import has_axis, has_mesh, on_every_device, shard_rows
from ..families import SemiImplicit
from ..targets import Target, require_all_rows, with_data
from ._step import Setup, TrainState, split_family

Initializer = Callable[[PRNGKeyArray], SemiImplicit]

_CHECKED = 100


def with_sharded_rows(target: Target) -> Target:
    """The target with its rows divided over the mesh axis `data`, if the mesh has it."""
    if not has_axis("data"):
        return target
    require_all_rows(target, "a mesh with an axis named data")
    return with_data(target, shard_rows)


def on_devices(target: Target) -> Target:
    """The target with its arrays on the devices of the mesh. Rows of the host are read later."""
    if not has_mesh():
        return target
    divided = with_sharded_rows(target) if target.host_rows is None else target
    return jax.tree.map(on_every_device, divided)


def split_shared(parts: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Splits arguments into what the runs share, and what came as a list with one per run.

    The arrays of a list are stacked. Its shared part is its first entry: the code, shapes and
    static fields are the same.
    """
    shared = {name: part[0] if isinstance(part, list) else part for name, part in parts.items()}
    return shared, {
        name: stack(part, name) for name, part in parts.items() if isinstance(part, list)
    }


def stack(parts: list, name: str) -> Any:
    """One module whose arrays are stacked. The modules must have the same structure."""
    arrays, rest = zip(*(eqx.partition(part, eqx.is_array) for part in parts), strict=True)
    same_structure = all(bool(eqx.tree_equal(rest[0], other)) for other in rest)
    if not same_structure or any(_form(other, 0) != _form(arrays[0], 0) for other in arrays):
        plural = {"family": "families"}.get(name, f"{name}s")
        raise ValueError(
            f"all {plural} must have the same structure: only numbers in arrays may differ"
        )
    return eqx.combine(jax.tree.map(lambda *leaves: jnp.stack(leaves), *arrays), rest[0])


def start(
    family: SemiImplicit | Initializer | list[SemiImplicit], key: PRNGKeyArray
) -> tuple[PyTree, PyTree]:
    """The trained parameters (stacked for a batch of keys) and the rest of the family."""
    if isinstance(family, list):
        params, frozen = zip(*(split_family(one) for one in family), strict=True)
        if not all(bool(eqx.tree_equal(frozen[0], other)) for other in frozen):
            raise ValueError(
                "all families must have the same structure: only trained parameters may differ"
            )
        return stack(list(params), "family"), frozen[0]
    first = key if key.ndim == 0 else key[0]
    with attributing_errors_to("family"):
        example = (
            family
            if isinstance(family, SemiImplicit)
            else family(first)
            if callable(family)
            else None
        )
    if not isinstance(example, SemiImplicit):
        raise ValueError(
            "family must be a ksivi.SemiImplicit, or a function of a key that returns one, "
            f"got {family!r}"
        )
    params, frozen = split_family(example)
    if key.ndim == 0:
        return params, frozen
    if isinstance(family, SemiImplicit):
        return jax.tree.map(lambda a: jnp.broadcast_to(a, (len(key), *a.shape)), params), frozen
    return eqx.filter_vmap(lambda k: split_family(family(k))[0])(key), frozen


def as_state(
    resume: TrainState | Sequence[TrainState], fresh: TrainState, num_runs: int, batched: bool
) -> TrainState:
    """The state to resume from. It must match `fresh`, the start of this run."""
    states = list(resume) if isinstance(resume, Sequence) else [resume]
    if not all(isinstance(state, TrainState) for state in states):
        raise ValueError(f"resume must be the state of a Fit (or a list of them), got {resume!r}")
    if len(states) != num_runs or batched != isinstance(resume, Sequence):
        raise ValueError(
            f"resume must have one state per key, got {len(states)} states for {num_runs} keys"
        )
    steps = {int(state.step) for state in states}
    if len(steps) > 1:
        raise ValueError(f"resume must have states of the same step, got steps {sorted(steps)}")
    arguments = {
        "params": "family",
        "optimizer": "optimizer",
        "objective": "objective",
        "average": "ema",
    }
    for part, argument in arguments.items():
        expected = _form(getattr(fresh, part), int(batched))
        if any(_form(getattr(state, part), 0) != expected for state in states):
            raise ValueError(
                "resume must come from a run with the same arguments, "
                f"but its {argument} does not match"
            )
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *states) if batched else states[0]


def _form(tree: PyTree, batch_axes: int) -> tuple:
    leaves, structure = jax.tree.flatten(tree)
    return structure, [(leaf.shape[batch_axes:], leaf.dtype) for leaf in leaves]


def require_finite_start(num_bad: Int[Array, " r"]) -> None:
    """Raises `ValueError` if the target is NaN or infinite at draws of an untrained family."""
    bad = int(jnp.max(num_bad))
    if bad > 0:
        raise ValueError(
            "target must be finite where the family starts: its log density or score is NaN or "
            f"infinite at {bad} of {_CHECKED} draws of the untrained family; start closer "
            "(log_var, loc) or check the log density"
        )


@jit
def count_bad(key: PRNGKeyArray, setup: Setup, params: PyTree) -> Int[Array, ""]:
    """The number of draws of the untrained family at which the target is NaN or infinite."""
    sample_key, rows_key = jax.random.split(key)
    x = setup.family(params).sample(sample_key, _CHECKED)
    target = setup.target.minibatch(rows_key)
    bad = ~jnp.all(jnp.isfinite(jax.vmap(target.score)(x)), axis=1)
    if target.has_log_density:
        bad = bad | ~jnp.isfinite(jax.vmap(target.log_density)(x))
    return jnp.sum(bad)
