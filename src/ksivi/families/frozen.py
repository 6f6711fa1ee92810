"""What is trained and what is not."""

import equinox as eqx
import jax
from jaxtyping import Array, PyTree

from .. import _archive


@_archive.register
class Frozen(eqx.Module):
    """An array that belongs to a family but is not trained."""

    value: Array


def trainable(family: PyTree) -> PyTree:
    """A filter for `eqx.partition`: floating arrays, but for those inside `Frozen`."""

    def spec(leaf: object) -> bool:
        return not isinstance(leaf, Frozen) and eqx.is_inexact_array(leaf)

    return jax.tree.map(spec, family, is_leaf=lambda leaf: isinstance(leaf, Frozen))


def groups(params: PyTree) -> PyTree:
    """Labels the trained arrays "mean", "scale" or "mixing", for a learning rate a group.

    ```python
    import optax

    optimizer = optax.partition({"mean": optax.adam(1e-2), "scale": optax.adam(1e-3)}, ksivi.families.groups)
    ```
    """

    def label(path: tuple, leaf: object) -> str:
        names = [getattr(entry, "name", None) for entry in path]
        return "mixing" if "mixing" in names else "scale" if "log_var" in names else "mean"

    return jax.tree_util.tree_map_with_path(label, params)
