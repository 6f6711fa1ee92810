"""Reference draws by NUTS, for targets without an exact sampler: checked, and kept on disk."""

import hashlib
import importlib.metadata
import json
import os
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from .._core import archive
from .._core.cache import cache_folder
from .._core.checks import as_single_key, attributing_errors_to, describe, require_callable
from .._core.compile import jit
from .._core.files import save
from ..families import Empirical
from ..targets import Target
from ._method import require_values
from ._nuts import NUTS
from ._run import run

Point = Float[Array, " d"]

_RECIPE = 1
"""Counts up when a change here would draw other references."""

_CHECKED = 16


@archive.register
class Stored(eqx.Module):
    """Draws on disk, and the log density at the first of them, by which the target is known again."""

    points: Float[Array, "n d"]
    log_densities: Float[Array, " k"]


def reference_draws(
    key: PRNGKeyArray,
    target: Target,
    *,
    method: NUTS | None = None,
    transform: Callable[[Point], Point] | None = None,
    cache: str | os.PathLike | None = None,
    progress: bool | None = None,
) -> Float[Array, "n d"]:
    r"""Draws to measure other methods by, or an error.

    Refused (`RuntimeError`) at R-hat ≥ 1.01, an effective sample size under 400, or any divergence. The draws are kept
    on disk under a hash of what defines them: the target's computation and data, the transform, the method, the key
    and the versions. The same call in another process reads them back, once they have the log density they had.

    **Arguments:**

    - `target`: its log density must be known. Data minibatches are not used: all rows are.
    - `method`: `NUTS` with four chains of 2,500 draws unless given.
    - `transform`: x = T(u), from coordinates in which the target is easy, such as non-centred ones of a funnel, to its
        own, one-to-one and onto. NUTS draws u from p(T(u)) |det ∂T/∂u|, and x is returned.
    - `cache`: the folder; `$KSIVI_CACHE`, or `~/.cache/ksivi`, unless given.
    - `progress`: whether to draw a progress bar; when unset, if stderr is a terminal.

    ```python
    funnel = ksivi.Target(lambda x: -x[0] ** 2 / 18 - 0.5 * x[1] ** 2 * jnp.exp(-x[0]) - 0.5 * x[0], dim=2)
    noncentred = lambda u: jnp.stack([3 * u[0], jnp.exp(1.5 * u[0]) * u[1]])
    draws = ksivi.reference_draws(jax.random.key(0), funnel, transform=noncentred)
    ```
    """
    key = as_single_key(key)
    if not isinstance(target, Target):
        raise ValueError(f"target must be a ksivi.Target, got {type(target).__name__}")
    require_values(target, "reference_draws")
    method = NUTS(num_draws=2_500, target_acceptance=0.9) if method is None else method
    if not isinstance(method, NUTS):
        raise ValueError(f"method must be a ksivi.NUTS, got {method!r}")
    eased = target if transform is None else _pulled_back(target, transform)
    if not isinstance(cache, str | os.PathLike | None):
        raise ValueError(f"cache must name a folder, got {describe(cache)}")
    folder = cache_folder() / "reference" if cache is None else Path(cache)
    path = folder / f"{fingerprint(eased.log_density, eased.dim, (method, key))}.safetensors"
    points = _read(path, eased)
    if points is None:
        points = _sample(key, eased, method, progress)
        _write(path, Stored(points, _log_densities(eased, points)))
    in_target = points if transform is None else jax.vmap(transform)(points)
    return in_target if target.coordinates is None else jax.vmap(target.coordinates)(in_target)


def _sample(key: PRNGKeyArray, target: Target, method: NUTS, progress: bool | None) -> Float[Array, "n d"]:
    fit = run(key, target, method, progress=progress)
    if fit.status.kind == "interrupted":
        raise KeyboardInterrupt
    if not fit.trusted:
        raise RuntimeError(
            f"NUTS gives no reference for this target: {fit.status}. Longer chains, a higher target_acceptance, or a "
            "transform to easier coordinates may help"
        )
    assert isinstance(fit.posterior.family, Empirical)
    return fit.posterior.family.points


def _pulled_back(target: Target, transform: Callable[[Point], Point]) -> Target:
    """The target in coordinates u, x = T(u)."""
    require_callable(transform, "transform")
    with attributing_errors_to("transform"):
        shape = getattr(eqx.filter_eval_shape(transform, jnp.zeros(target.dim)), "shape", None)
    if shape != (target.dim,):
        raise ValueError(f"transform must map ({target.dim},) to ({target.dim},), got shape {shape}")

    def log_density(u: Point) -> Array:
        return target.log_density(transform(u)) + jnp.linalg.slogdet(jax.jacfwd(transform)(u))[1]

    return Target(log_density, target.dim)


def fingerprint(function: Callable[[Point], Array], dim: int, settings: Any) -> str:
    """A hash of what the function computes, the arrays it holds, and the settings."""
    # Arrays are hashed apart from the program, whose text need not spell them out.
    arrays, static = eqx.partition((function, settings), eqx.is_array)
    versions = [_RECIPE, jax.__version__, importlib.metadata.version("blackjax")]
    digest = hashlib.sha256(json.dumps(versions).encode())
    jaxpr = jax.make_jaxpr(lambda a, x: eqx.combine(a, static)[0](x))(arrays, jnp.zeros(dim))
    # Addresses of functions, in the parameters of custom derivatives, change from process to process.
    digest.update(re.sub(r" at 0x[0-9a-f]+", "", str(jaxpr)).encode())
    digest.update(re.sub(r" at 0x[0-9a-f]+", "", repr(static[1])).encode())
    for array in (*jax.tree.leaves(arrays), *_constants(jaxpr)):
        is_key = jnp.issubdtype(array.dtype, jax.dtypes.prng_key)
        array = np.asarray(jax.random.key_data(array) if is_key else array)
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _constants(program: Any) -> list[Any]:
    """The arrays that a program closes over, those of its inner programs, open or closed, included."""
    found = list(getattr(program, "consts", ()))
    for equation in getattr(program, "jaxpr", program).eqns:
        is_program = lambda p: hasattr(p, "eqns") or hasattr(p, "jaxpr")  # noqa: E731
        for inner in filter(is_program, jax.tree.leaves(equation.params, is_leaf=is_program)):
            found += _constants(inner)
    return found


@jit
def _log_densities(target: Target, points: Float[Array, "n d"]) -> Float[Array, " k"]:
    return jax.vmap(target.log_density)(points[:_CHECKED])


def _read(path: Path, target: Target) -> Float[Array, "n d"] | None:
    """The draws in a file; None where there is no sound one of this target, to draw them again."""
    try:
        stored = archive.read(path) if path.is_file() else None
    except ValueError:
        return None
    if not isinstance(stored, Stored) or stored.points.shape[1:] != (target.dim,):
        return None
    # Two programs may read alike and differ in what a callback of theirs does.
    same = np.allclose(_log_densities(target, stored.points), stored.log_densities, rtol=1e-5, atol=1e-4)
    return stored.points if same else None


def _write(path: Path, stored: Stored) -> None:
    """Keeps the draws, in one rename so that a reader never sees half a file; a folder that refuses costs no draws."""
    part = path.with_suffix(f".{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        save(part, archive.pack(stored))
        part.replace(path)
    except (OSError, ValueError) as error:
        warnings.warn(f"reference draws could not be kept in {path.parent}: {error}", stacklevel=3)
