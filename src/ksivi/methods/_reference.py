"""Reference draws by NUTS for targets without an exact sampler, checked and cached on disk."""

import hashlib
import json
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

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
from .._core.fingerprints import add_array, program_of, without_addresses
from ..families import Empirical
from ..results import Fit
from ..targets import Target
from ._chains import blackjax
from ._method import require_values
from ._nuts import NUTS
from ._run import run

Point = Float[Array, " d"]

_VERSION = 1
"""Increased when a change here would give other draws."""

_CHECKED = 16


@archive.register
class Stored(eqx.Module):
    """Draws on disk, and the log density at the first ones, to recognise the target."""

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
    r"""Draws by NUTS, to compare other methods with.

    Raises `RuntimeError` if R-hat ≥ 1.01, the effective sample size is below 400, or a transition
    diverged. The draws are cached on disk, under a hash of the target's computation and data, the
    transform, the method, the key and the versions. The same call in another process reads them
    again, if the target's log density at the first draws is unchanged.

    **Arguments:**

    - `target`: a target with log-density values. All rows of its data are used, not minibatches.
    - `method`: default: `NUTS` with four chains of 2,500 draws.
    - `transform`: a bijection x = T(u) from coordinates in which the target is easy, such as the
        non-centred ones of a funnel. NUTS draws u from p(T(u)) |det ∂T/∂u|, and x is returned.
    - `cache`: the cache folder. Default: `$KSIVI_CACHE`, or `~/.cache/ksivi`.
    - `progress`: whether to show a progress bar. Default: only if stderr is a terminal.

    ```python
    log_density = lambda x: -x[0] ** 2 / 18 - 0.5 * x[1] ** 2 * jnp.exp(-x[0]) - 0.5 * x[0]
    funnel = ksivi.Target(log_density, dim=2)
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
    sampled_target = target if transform is None else _pulled_back(target, transform)
    if not isinstance(cache, str | os.PathLike | None):
        raise ValueError(f"cache must name a folder, got {describe(cache)}")
    folder = cache_folder() / "reference" if cache is None else Path(cache)
    name = fingerprint(sampled_target.log_density, target.dim, (method, key))
    path = folder / f"{name}.safetensors"
    points = _read(path, sampled_target)
    if points is None:
        points = _sample(key, sampled_target, method, progress)
        _write(path, Stored(points, _log_densities(sampled_target, points)))
    in_target = points if transform is None else jax.vmap(transform)(points)
    return in_target if target.coordinates is None else jax.vmap(target.coordinates)(in_target)


def _sample(
    key: PRNGKeyArray, target: Target, method: NUTS, progress: bool | None
) -> Float[Array, "n d"]:
    fit = cast(Fit, run(key, target, method, progress=progress))
    if fit.status.kind == "interrupted":
        raise KeyboardInterrupt
    if not fit.trusted:
        raise RuntimeError(
            f"NUTS gives no reference for this target: {fit.status}. Try longer chains with smaller "
            f"steps, method=ksivi.NUTS({_longer(method)}), or a transform to easier coordinates"
        )
    assert isinstance(fit.posterior.family, Empirical)
    return fit.posterior.family.points


def _longer(method: NUTS) -> str:
    """Arguments of a run twice as long, with smaller steps."""
    acceptance = max(0.99, float(method.target_acceptance))
    warmup, draws = 2 * method.num_warmup, 2 * method.num_draws
    return f"num_warmup={warmup}, num_draws={draws}, target_acceptance={acceptance:g}"


def _pulled_back(target: Target, transform: Callable[[Point], Point]) -> Target:
    """The target in the coordinates u of x = T(u)."""
    require_callable(transform, "transform")
    with attributing_errors_to("transform"):
        shape = getattr(eqx.filter_eval_shape(transform, jnp.zeros(target.dim)), "shape", None)
    if shape != (target.dim,):
        raise ValueError(
            f"transform must map ({target.dim},) to ({target.dim},), got shape {shape}"
        )

    def log_density(u: Point) -> Array:
        return target.log_density(transform(u)) + jnp.linalg.slogdet(jax.jacfwd(transform)(u))[1]

    return Target(log_density, target.dim)


def fingerprint(function: Callable[[Point], Array], dim: int, settings: Any) -> str:
    """A hash of the function's computation, its arrays, and the settings."""
    program = program_of(lambda parts, x: parts[0](x), (function, settings), jnp.zeros(dim))
    versions = [_VERSION, jax.__version__, blackjax().__version__]
    digest = hashlib.sha256(json.dumps(versions).encode())
    digest.update(program.text.encode())
    static = eqx.filter(settings, eqx.is_array, inverse=True)
    digest.update(without_addresses(repr(static)).encode())
    for array in (*program.arrays, *program.constants):
        add_array(digest, array)
    return digest.hexdigest()


@jit
def _log_densities(target: Target, points: Float[Array, "n d"]) -> Float[Array, " k"]:
    return jax.vmap(target.log_density)(points[:_CHECKED])


def _read(path: Path, target: Target) -> Float[Array, "n d"] | None:
    """The draws in a file, or None if there is no valid file for this target."""
    try:
        stored = archive.read(path) if path.is_file() else None
    except ValueError:
        return None
    if not isinstance(stored, Stored) or not all(
        eqx.is_array(one) for one in (stored.points, stored.log_densities)
    ):
        return None
    count = min(len(stored.points), _CHECKED) if stored.points.ndim else 0
    if stored.points.shape[1:] != (target.dim,) or stored.log_densities.shape != (count,):
        return None
    # Programs with equal text may still differ in what their callbacks do.
    same = np.allclose(
        _log_densities(target, stored.points), stored.log_densities, rtol=1e-5, atol=1e-4
    )
    return stored.points if same else None


def _write(path: Path, stored: Stored) -> None:
    """Saves the draws by a rename, so that no reader sees half a file. It warns if it cannot."""
    part = path.with_suffix(f".{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        save(part, archive.pack(stored))
        part.replace(path)
    except (OSError, ValueError) as error:
        warnings.warn(f"reference draws could not be saved in {path.parent}: {error}", stacklevel=3)
