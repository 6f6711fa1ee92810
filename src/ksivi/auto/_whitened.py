"""Coordinates in which a target is about standard normal, for methods that have no search."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from .._core.checks import as_single_key, describe
from .._core.numerics import generator
from ..diagnostics import chains
from ..targets import Evaluator, Target
from ._answers import view_of
from ._large import find_large
from ._measured import LARGE_DIM
from ._recipe import Recipe
from ._scores import along_lines
from ._start import find_start

_FEWEST_CHAINS, _CHAINS_PER_DIM = 1_000, 10


def whitened(key: PRNGKeyArray, target: Target) -> Target:
    """The target in coordinates in which it has about mean 0 and covariance I.

    They come from the search of `ksivi.fit`: from its rough draws after some transitions of
    Hamiltonian Monte Carlo, or from its best Gaussian. Posteriors that are trained on it still draw
    the target's own x.

    ```python
    easier = ksivi.auto.whitened(jax.random.key(0), target)
    ```
    """
    rng = generator(as_single_key(key))
    if not isinstance(target, Target):
        raise ValueError(f"target must be a ksivi.Target, got {describe(target)}")
    known = target if target.has_log_density else along_lines(target, np.zeros(target.dim))
    evaluate = Evaluator(known)
    if evaluate.dim > LARGE_DIM:
        loc, root = find_large(rng, evaluate, None).gaussian.linear()
        coordinates = loc, root.dense().matrix
    else:
        recipe, dim = Recipe(), evaluate.dim
        start = find_start(rng, evaluate, recipe.num_starts(dim), recipe.scans(dim))
        affine = view_of(evaluate, start, _settled(rng, evaluate, start.draws)).target.coordinates
        assert affine is not None
        coordinates = affine.loc, affine.scale
    dtype = jnp.result_type(float)
    return target.unwhitened().whitened(*(jnp.asarray(part, dtype) for part in coordinates))


def _settled(
    rng: np.random.Generator, evaluate: Evaluator, draws: Float[np.ndarray, "n d"] | None
) -> Float[np.ndarray, "m d"] | None:
    """Some of the rough draws, moved by chains: as they are, they lack the tails.

    Twice, because chains move better in coordinates that know the tails.
    """
    if draws is None:
        return None
    count = min(len(draws), max(_FEWEST_CHAINS, _CHAINS_PER_DIM * draws.shape[1]))
    first = chains(rng, evaluate, rng.permutation(draws)[:count])
    return chains(rng, evaluate, first.after).pooled
