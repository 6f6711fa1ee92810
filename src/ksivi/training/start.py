"""Where a run starts: keys, parameters, an earlier state, and whether the target has a score there."""

from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray, PyTree

from ..families import SemiImplicit
from .loop import Problem, TrainState, split_family

Initializer = Callable[[PRNGKeyArray], SemiImplicit]


def split_three(key: PRNGKeyArray) -> tuple[PRNGKeyArray, PRNGKeyArray, PRNGKeyArray]:
    if key.ndim == 0:
        return tuple(jax.random.split(key, 3))
    keys = jax.vmap(lambda k: jax.random.split(k, 3))(key)
    return keys[:, 0], keys[:, 1], keys[:, 2]


def start(family: SemiImplicit | Initializer, key: PRNGKeyArray) -> tuple[PyTree, PyTree]:
    """Trained parameters (stacked for a batch of keys) and the rest of the family."""
    first = key if key.ndim == 0 else key[0]
    example = family if isinstance(family, SemiImplicit) else family(first) if callable(family) else None
    if not isinstance(example, SemiImplicit):
        raise ValueError(f"family must be a ksivi.SemiImplicit, or a function of a key that gives one, got {family!r}")
    params, frozen = split_family(example)
    if key.ndim == 0:
        return params, frozen
    if isinstance(family, SemiImplicit):
        return jax.tree.map(lambda a: jnp.broadcast_to(a, (len(key), *a.shape)), params), frozen
    return eqx.filter_vmap(lambda k: split_family(family(k))[0])(key), frozen


def as_state(resume: TrainState | Sequence[TrainState], num_runs: int, batched: bool) -> TrainState:
    states = list(resume) if isinstance(resume, Sequence) else [resume]
    if not all(isinstance(state, TrainState) for state in states):
        raise ValueError(f"resume must be the state of a Fit (or a list of them), got {resume!r}")
    if len(states) != num_runs or batched != isinstance(resume, Sequence):
        raise ValueError(f"resume must hold one state a key: {num_runs} keys, {len(states)} states")
    steps = {int(state.step) for state in states}
    if len(steps) > 1:
        raise ValueError(f"resume must hold states at one step, got steps {sorted(steps)}")
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *states) if batched else states[0]


def require_finite_start(problem: Problem, params: PyTree, key: PRNGKeyArray, batched: bool) -> None:
    if batched:
        params, key = jax.tree.map(lambda a: a[0], params), key[0]
    bad, total = _count_bad_scores(problem, params, key)
    if bad:
        raise ValueError(
            f"target must have a finite score where the family starts: it is NaN or infinite at {bad} of {total} draws "
            "of the untrained family; start closer (log_var, loc) or check the log density"
        )


@eqx.filter_jit
def _count_bad_scores(problem: Problem, params: PyTree, key: PRNGKeyArray, total: int = 100) -> tuple[Array, int]:
    sample_key, rows_key = jax.random.split(key)
    x = problem.family(params).sample(sample_key, total)
    score = jax.vmap(problem.target.minibatch(rows_key).score)(x)
    return jnp.sum(~jnp.all(jnp.isfinite(score), axis=1)), total
