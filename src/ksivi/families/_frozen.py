"""Which arrays of a family are trained."""

import equinox as eqx
import jax
from jaxtyping import Array, PyTree

from .._core.registry import register


class AbstractFrozen(eqx.Module):
    """A part of a family whose arrays are not trained."""


@register
class Frozen(AbstractFrozen):
    """An array that belongs to a family but is not trained."""

    value: Array


def trainable(family: PyTree) -> PyTree:
    """A filter for `eqx.partition`: all floating arrays except those of frozen parts.

    Frozen parts are the mixing distribution and every `Frozen`.
    """

    def fixed(leaf: object) -> bool:
        return isinstance(leaf, AbstractFrozen)

    return jax.tree.map(
        lambda leaf: not fixed(leaf) and eqx.is_inexact_array(leaf), family, is_leaf=fixed
    )


def groups(params: PyTree) -> PyTree:
    """Labels the trained arrays "mean" or "scale", for one learning rate per group.

    ```python
    import optax

    optimizers = {"mean": optax.adam(1e-2), "scale": optax.adam(1e-3)}
    optimizer = optax.partition(optimizers, ksivi.families.groups)
    ```
    """

    def label(path: tuple, leaf: object) -> str:
        return "scale" if "log_var" in [getattr(entry, "name", None) for entry in path] else "mean"

    return jax.tree_util.tree_map_with_path(label, params)
