"""One step of training at a time, for the loops of other tools."""

import equinox as eqx
import jax
import optax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from .._core.closures import Structural
from ..families import SemiImplicit
from ..objectives import AbstractObjective
from ..targets import Target
from ._start import Initializer, start
from ._step import Records, Setup, TrainState, initial_state, step_of_key
from ._training import require_dim


class SingleRun(eqx.Module):
    """A run between two steps. Its leaves are arrays, so that `jax.jit` and `lax.scan` take it.

    **Attributes:**

    - `state`: what changes from step to step.
    - `arrays`, `rest`: the arrays and everything else of what does not change.
    """

    state: TrainState
    arrays: PyTree
    rest: tuple = eqx.field(static=True)

    def step(self, key: PRNGKeyArray) -> tuple["SingleRun", Records]:
        """The run after one more step, and what the step recorded."""
        state, records = step_of_key(key, self.state, self._setup)
        return SingleRun(state, self.arrays, self.rest), records

    def sample(self, key: PRNGKeyArray, n: int) -> Float[Array, "n d"]:
        """n draws, in the coordinates of the log density."""
        setup = self._setup
        family = setup.objective.sampler(setup.family(self.state.params), self.state.objective)
        return jax.vmap(setup.target.to_original)(family.sample(key, n))

    @property
    def _setup(self) -> Setup:
        leaves, structure = self.rest
        return eqx.combine(self.arrays, jax.tree.unflatten(structure, leaves))


def single_run(
    key: PRNGKeyArray,
    target: Target,
    family: SemiImplicit | Initializer,
    objective: AbstractObjective,
    optimizer: optax.GradientTransformation,
) -> SingleRun:
    """A run before its first step. It can be traced: the start is not checked to be finite."""
    init_key, inner_key = jax.random.split(key)
    params, frozen = start(family, init_key)
    setup = Setup(target, objective, frozen, None, None, Structural(optimizer))
    require_dim(setup, params)
    arrays, rest = eqx.partition(setup, eqx.is_array)
    leaves, structure = jax.tree.flatten(rest)
    return SingleRun(initial_state(inner_key, setup, params), arrays, (tuple(leaves), structure))
