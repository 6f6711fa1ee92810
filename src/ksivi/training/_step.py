"""A compiled chunk of training steps."""

import dataclasses
from collections.abc import Callable
from typing import Any, TypeAlias, Union

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree, Scalar

from .._core.closures import Structural
from .._core.compile import jit, on_cores, one_shot
from .._core.normals import fastest_normal
from .._core.sharding import has_mesh, platform, platform_of, shard
from ..families import SemiImplicit, trainable
from ..objectives import AbstractObjective
from ..targets import Target, at_step
from ._chunk_result import ChunkResult

Optimizer: TypeAlias = Union[  # noqa: UP007
    optax.GradientTransformation, Callable[[Scalar], optax.GradientTransformation]
]
Records = dict[str, Float[Array, " t"]]

_DRAWN_AHEAD = 2**23
"""Bytes of random numbers drawn together: they keep the device busy and fit in the cache."""


class TrainState(eqx.Module):
    """The parameters, their average if any, and the states of optimiser and objective.

    `early_ratio` is the Stein ratio of the first steps. Later ratios are compared with it to find
    trouble. Before the first step it is 0 and means nothing: NaN would stop a user who looks for
    NaN with `jax_debug_nans`.
    """

    step: Int[Array, ""]
    params: PyTree
    optimizer: PyTree
    objective: PyTree
    average: PyTree
    early_ratio: Scalar


class Setup(eqx.Module):
    """What does not change from step to step.

    With `skip_nonfinite`, a step whose loss or gradient is not finite changes nothing.
    """

    target: Target
    objective: AbstractObjective
    frozen: PyTree
    decay: Scalar | None
    learning_rate: Scalar | None
    optimizer: Structural[Optimizer] = eqx.field(static=True)
    skip_nonfinite: bool = eqx.field(static=True, default=False)

    def family(self, params: PyTree) -> SemiImplicit:
        return eqx.combine(params, self.frozen)

    def transformation(self) -> optax.GradientTransformation:
        optimizer: Any = self.optimizer.value
        return (
            optimizer
            if isinstance(optimizer, optax.GradientTransformation)
            else optimizer(self.learning_rate)
        )

    def draw(self, key: PRNGKeyArray, target: Target, family: SemiImplicit) -> PyTree:
        """The random numbers of the step with this key."""
        return self.objective.draw(key, target, family.with_normals(fastest_normal(platform())))

    def for_run(self, per_run: dict[str, Any]) -> "Setup":
        """The setup of one run of a batch, given what differs between the runs."""
        return dataclasses.replace(self, **per_run)


def initial_state(key: PRNGKeyArray, setup: Setup, params: PyTree) -> TrainState:
    inner = setup.objective.init(key, setup.target, setup.family(params))
    average = None if setup.decay is None else params
    step, ratio = jnp.zeros((), jnp.int32), jnp.zeros((), jnp.result_type(float))
    return TrainState(step, params, setup.transformation().init(params), inner, average, ratio)


def all_finite(params: PyTree) -> Bool[Array, ""]:
    return jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(params)]))


def split_family(family: SemiImplicit) -> tuple[PyTree, PyTree]:
    """The trained parameters, and the rest of the family."""
    return eqx.partition(family, trainable(family))


def run_chunk(
    state: TrainState,
    key: PRNGKeyArray,
    limit: Int[Array, ""],
    setup: Setup,
    shape: tuple[int, int],
) -> ChunkResult:
    """Runs a chunk of steps. Steps from `limit` on change nothing.

    The random numbers of step t come from `fold_in(key, t)`, so the run does not depend on the
    shape of its chunks.

    **Arguments:**

    - `shape`: the number of blocks in the chunk, and of steps in a block. The random numbers of a
        block are drawn together.
    """

    def step(state: TrainState, draws: PyTree) -> tuple[TrainState, Records]:
        new, records = train_step(state, draws, setup)
        if setup.skip_nonfinite:
            good = jnp.isfinite(records["loss"]) & all_finite(new.params)
            records = jax.tree.map(lambda value: jnp.where(good, value, jnp.nan), records)
            kept = dataclasses.replace(state, step=new.step)
            new = jax.tree.map(lambda a, b: jnp.where(good, a, b), new, kept)
        active = state.step < limit
        return jax.tree.map(lambda a, b: jnp.where(active, a, b), new, state), records

    begin = state.step

    def block(state: TrainState, first: Int[Array, ""]) -> tuple[TrainState, Records]:
        family = setup.family(state.params)

        def draw(t: Int[Array, ""]) -> PyTree:
            target = at_step(setup.target, t - begin)
            return setup.draw(jax.random.fold_in(key, t), target, family)

        return lax.scan(step, state, jax.vmap(draw)(first + jnp.arange(shape[1])), unroll=_unroll())

    state, records = lax.scan(block, state, state.step + shape[1] * jnp.arange(shape[0]))
    return ChunkResult(state, jax.tree.map(jnp.ravel, records), all_finite(state.params))


def bytes_drawn(setup: Setup, params: PyTree) -> int:
    """The size of the random numbers of a step, in bytes."""
    draw = eqx.filter_eval_shape(setup.draw, jax.random.key(0), setup.target, setup.family(params))
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(draw))


def chunk_shape(step_bytes: int, num_steps: int, chunk_size: int) -> tuple[int, int]:
    """Blocks in a chunk and steps in a block: equal chunks with as few idle steps as possible."""
    length, turn = -(-num_steps // -(-num_steps // chunk_size)), _unroll()
    # At least two complete turns of the loop: steps compiled outside the loop may round
    # differently.
    steps = lambda num_blocks: turn * max(2, -(-length // (turn * num_blocks)))  # noqa: E731
    longest_block = max(2 * turn, min(100, _DRAWN_AHEAD // max(1, step_bytes)))
    fewest = -(-length // longest_block)
    num_blocks = min(range(fewest, 2 * fewest + 1), key=lambda n: n * steps(n))
    return num_blocks, steps(num_blocks)


def _unroll() -> int:
    """Steps in a turn of the loop. A turn costs some µs on a GPU.

    Four steps take three times as long to compile and run no faster.
    """
    return 1 if platform() == "cpu" else 2


def differentiate(
    state: TrainState, draws: PyTree, setup: Setup
) -> tuple[PyTree, tuple[tuple[Scalar, dict[str, Scalar]], PyTree]]:
    """The objective's inner state at this step, its loss and records, and the gradient."""
    inner = setup.objective.prepare(
        state.objective, draws, setup.target, setup.family(state.params), state.step
    )

    def loss(params: PyTree) -> tuple[Scalar, dict[str, Scalar]]:
        return setup.objective.loss(setup.family(params), inner, draws, setup.target, state.step)

    return inner, jax.value_and_grad(loss, has_aux=True)(state.params)


def train_step(state: TrainState, draws: PyTree, setup: Setup) -> tuple[TrainState, Records]:
    """One step of the optimiser on the objective's loss."""
    inner, ((value, records), gradient) = differentiate(state, draws, setup)
    optimise = optax.with_extra_args_support(setup.transformation()).update
    updates, optimizer = optimise(gradient, state.optimizer, state.params, value=value)
    params = optax.apply_updates(state.params, updates)
    average = state.average
    if setup.decay is not None:
        keep = lambda a, p: setup.decay.astype(a.dtype) * a + (1 - setup.decay).astype(a.dtype) * p  # noqa: E731
        average = jax.tree.map(keep, average, params)
    new = TrainState(state.step + 1, params, optimizer, inner, average, state.early_ratio)
    return new, {"loss": value, **records}


def step_of_key(key: PRNGKeyArray, state: TrainState, setup: Setup) -> tuple[TrainState, Records]:
    """One step whose random numbers come from this key."""
    return train_step(state, setup.draw(key, setup.target, setup.family(state.params)), setup)


def run_chunks(
    state: TrainState,
    key: PRNGKeyArray,
    limit: Int[Array, " r"],
    setup: Setup,
    per_run: dict,
    shape: tuple[int, int],
) -> ChunkResult:
    """`run_chunk` for a batch of runs, which share the setup except for `per_run`."""

    def run(
        state: TrainState, key: PRNGKeyArray, limit: Int[Array, ""], per_run: dict
    ) -> ChunkResult:
        return run_chunk(state, key, limit, setup.for_run(per_run), shape)

    def by_seeds(tree: Any) -> Any:
        return jax.tree.map(lambda a: shard(a, "seeds") if eqx.is_array(a) else a, tree)

    return by_seeds(eqx.filter_vmap(run)(*by_seeds((state, key, limit, per_run))))


def run_chunk_of(
    i: Int[Array, ""],
    state: TrainState,
    key: PRNGKeyArray,
    limit: Int[Array, " r"],
    setup: Setup,
    per_run: dict,
    shape: tuple[int, int],
) -> ChunkResult:
    """`run_chunk` for run i of a batch."""
    state, key, limit, per_run = jax.tree.map(
        lambda a: a[i] if eqx.is_array(a) else a, (state, key, limit, per_run)
    )
    return run_chunk(state, key, limit, setup.for_run(per_run), shape)


run_one, run_together, run_together_fast_compile = (
    jit(run_chunk),
    jit(run_chunks),
    one_shot(run_chunks),
)
_run_on_cores = on_cores(run_chunk_of)


def run_many(
    state: TrainState,
    key: PRNGKeyArray,
    limit: Int[Array, " r"],
    setup: Setup,
    per_run: dict,
    shape: tuple[int, int],
) -> ChunkResult:
    """`run_chunks`, or on a CPU one thread per run, which is faster."""
    args = (state, key, limit, setup, per_run, shape)
    on_cpu = platform_of(jax.tree.leaves((state, key))) == "cpu"
    chunks = _run_on_cores(len(key), *args) if on_cpu and not has_mesh() else None
    return run_together(*args) if chunks is None else _stack(chunks)


@one_shot
def _stack(chunks: list[ChunkResult]) -> ChunkResult:
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *chunks)
