"""What is trained and what is not."""

import equinox as eqx
import jax
from jaxtyping import Array, PyTree

from .._core import archive
from ._mixing import AbstractMixing


@archive.register
class Frozen(eqx.Module):
    """An array that belongs to a family but is not trained."""

    value: Array


def trainable(family: PyTree) -> PyTree:
    """A filter for `eqx.partition`: floating arrays, but for those of the mixing distribution or inside `Frozen`."""

    def fixed(leaf: object) -> bool:
        return isinstance(leaf, Frozen | AbstractMixing)

    return jax.tree.map(lambda leaf: not fixed(leaf) and eqx.is_inexact_array(leaf), family, is_leaf=fixed)


def groups(params: PyTree) -> PyTree:
    """Labels the trained arrays "mean" or "scale", for a learning rate a group.

    ```python
    import optax

    optimizer = optax.partition({"mean": optax.adam(1e-2), "scale": optax.adam(1e-3)}, ksivi.families.groups)
    ```
    """

    def label(path: tuple, leaf: object) -> str:
        return "scale" if "log_var" in [getattr(entry, "name", None) for entry in path] else "mean"

    return jax.tree_util.tree_map_with_path(label, params)
