"""Reference draws by NUTS, for targets without an exact sampler: checked, and kept on disk."""

import hashlib
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from .. import _archive
from .._checks import as_single_key
from ..families import Empirical
from ..methods import run
from ..targets import Target
from .nuts import NUTS

Point = Float[Array, " d"]


def reference_draws(
    key: PRNGKeyArray,
    target: Target,
    *,
    method: NUTS | None = None,
    transform: Callable[[Point], Point] | None = None,
    cache: str | os.PathLike | None = None,
    progress: bool | None = None,
) -> Float[Array, "n d"]:
    r"""Draws to measure other methods by, or an error: refused (`RuntimeError`) at R-hat ≥ 1.01 or any divergence.

    They are kept on disk under a hash of what defines them: the target's computation and data, the transform, the
    method and the key. The same call in another process reads them back.

    **Arguments:**

    - `target`: its log density must be known. Data minibatches are not used: all rows are.
    - `method`: `NUTS` with four chains of 2,500 draws unless given.
    - `transform`: x = T(u), from coordinates in which the target is easy, such as non-centred ones of a funnel, to its
        own. NUTS draws u from p(T(u)) |det ∂T/∂u|, and x is returned.
    - `cache`: the folder; `$KSIVI_CACHE`, or `~/.cache/ksivi`, unless given.
    - `progress`: whether to draw a progress bar; when unset, if stderr is a terminal.

    ```python
    draws = ksivi.reference_draws(jax.random.key(0), target)

    funnel = ksivi.Target(lambda x: -x[0] ** 2 / 18 - 0.5 * x[1] ** 2 * jnp.exp(-x[0]) - 0.5 * x[0], dim=2)
    noncentred = lambda u: jnp.stack([3 * u[0], jnp.exp(1.5 * u[0]) * u[1]])
    draws = ksivi.reference_draws(jax.random.key(0), funnel, transform=noncentred)
    ```
    """
    key = as_single_key(key)
    if not isinstance(target, Target):
        raise ValueError(f"target must be a ksivi.Target, got {type(target).__name__}")
    method = NUTS(num_draws=2_500, target_acceptance=0.9) if method is None else method
    if not isinstance(method, NUTS):
        raise ValueError(f"method must be a ksivi.NUTS, got {method!r}")
    eased = target if transform is None else _pulled_back(target, transform)
    definition = fingerprint(eased.log_density, eased.dim, (method, jax.random.key_data(key), transform is None))
    path = _cache_folder(cache) / f"{definition}.safetensors"
    points = _read(path, target.dim)
    if points is None:
        points = _sample(key, eased, method, progress)
        _write(path, points)
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
    shape = eqx.filter_eval_shape(transform, jnp.zeros(target.dim)).shape
    if shape != (target.dim,):
        raise ValueError(f"transform must map ({target.dim},) to ({target.dim},), got shape {shape}")

    def log_density(u: Point) -> Array:
        return target.log_density(transform(u)) + jnp.linalg.slogdet(jax.jacfwd(transform)(u))[1]

    return Target(log_density, target.dim)


def fingerprint(function: Callable[[Point], Array], dim: int, settings: Any) -> str:
    """A hash of what the function computes, the arrays it holds, and the settings."""
    # Arrays are hashed apart from the program, whose text need not spell them out.
    arrays, static = eqx.partition((function, settings), eqx.is_array)
    digest = hashlib.sha256()
    jaxpr = jax.make_jaxpr(lambda a, x: eqx.combine(a, static)[0](x))(arrays, jnp.zeros(dim))
    # Addresses of functions, in the parameters of custom derivatives, change from process to process.
    digest.update(re.sub(r" at 0x[0-9a-f]+", "", str(jaxpr)).encode())
    digest.update(re.sub(r" at 0x[0-9a-f]+", "", repr(static[1])).encode())
    for array in (*jax.tree.leaves(arrays), *_constants(jaxpr)):
        array = np.asarray(array)
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _constants(closed: Any) -> list[Any]:
    """The arrays that a program closes over, those of its inner programs included."""
    found = list(closed.consts)
    for equation in closed.jaxpr.eqns:
        for parameter in jax.tree.leaves(equation.params, is_leaf=lambda p: hasattr(p, "jaxpr")):
            if hasattr(parameter, "consts"):
                found += _constants(parameter)
    return found


def _cache_folder(cache: str | os.PathLike | None) -> Path:
    if cache is not None:
        return Path(cache)
    return Path(os.environ.get("KSIVI_CACHE") or Path.home() / ".cache" / "ksivi") / "reference"


def _read(path: Path, dim: int) -> Float[Array, "n d"] | None:
    """The draws in a file; None where there is no sound one, to draw them again."""
    try:
        stored = _archive.read(path) if path.is_file() else None
    except ValueError:
        return None
    if not isinstance(stored, Empirical) or stored.points.ndim != 2 or stored.dim != dim:
        return None
    return stored.points


def _write(path: Path, points: Float[Array, "n d"]) -> None:
    """Keeps the draws, in one rename so that a reader never sees half a file; a folder that refuses costs no draws."""
    part = path.with_suffix(f".{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _archive.write(part, Empirical(points))
        part.replace(path)
    except OSError as error:
        import warnings

        warnings.warn(f"reference draws could not be kept in {path.parent}: {error}", stacklevel=3)
