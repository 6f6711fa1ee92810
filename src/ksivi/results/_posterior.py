"""The posterior: a trained sampler or stored draws."""

import dataclasses
import os
from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array, Float, PRNGKeyArray

from .._core import archive
from .._core.checks import as_count, as_samples, as_single_key, describe
from .._core.compile import jit, one_shot
from ..families import Empirical, SemiImplicit, round_up
from ..targets import Affine, Layout, Support, Target, split
from . import _arviz


@archive.register
class Posterior(eqx.Module):
    """A trained sampler or a set of stored draws, in the target's own unconstrained coordinates.

    ```python
    draws = fit.posterior.sample(jax.random.key(1), 4_000)
    fit.posterior.save("post.safetensors")
    ```
    """

    family: SemiImplicit | Empirical
    coordinates: Affine | None
    layout: Layout = eqx.field(static=True)
    supports: tuple[Support, ...] | None = None
    target: Target | None = eqx.field(default=None, metadata={"saved": False})

    @classmethod
    def of(cls, family: SemiImplicit | Empirical, target: Target) -> "Posterior":
        """A family in the coordinates of a target, under its names."""
        if not isinstance(family, SemiImplicit | Empirical):
            raise ValueError(f"family must be a ksivi.SemiImplicit or stored draws, got {describe(family)}")
        if not isinstance(target, Target):
            raise ValueError(f"target must be a ksivi.Target, got {describe(target)}")
        return cls(family, target.coordinates, target.layout, target.supports, target.unwhitened())

    def view(self, target: Target) -> Target:
        """The target in the coordinates that the family draws in."""
        target = target.unwhitened()
        return target if self.coordinates is None else target.whitened(self.coordinates.loc, self.coordinates.scale)

    @property
    def dim(self) -> int:
        return self.family.dim

    def sample(self, key: PRNGKeyArray, n: int) -> Float[Array, "n d"]:
        """n draws: independent ones of the trained sampler, or n of the stored draws (all of them before any twice)."""
        n = as_count(n, "n")
        size = round_up(n) if isinstance(self.family, SemiImplicit) else n
        return _sample(self.alone(), as_single_key(key), size)[:n]

    def log_prob(self, key: PRNGKeyArray, x: Float[Array, "n d"], num_mixing: int = 1_000) -> Float[Array, " n"]:
        r"""An estimate of log q(x): log 1/K Σₖ q(x|zₖ) over K = `num_mixing` draws of z.

        It is too low on average, the more so the fewer z lie near x: at points whose own z is not known do not divide
        by it. For importance weights and the evidence use `ksivi.diagnostics.importance`, which keeps each draw's z.
        Stored draws have no density and refuse (`ValueError`).
        """
        key, x = as_single_key(key), as_samples(x, "x", self.dim)
        return _log_prob(self.alone(), key, x, as_count(num_mixing, "num_mixing"))

    def draws(self, key: PRNGKeyArray, n: int) -> dict[str, Float[Array, "n ..."]]:
        """n draws as a dict, by the target's names; those of a model on its own scale, not the unconstrained one."""
        return self.constrain(self.sample(key, n))

    def constrain(self, x: Float[Array, "n d"]) -> dict[str, Float[Array, "n ..."]]:
        """Points by the target's names, where its parameters live."""
        names, shapes = zip(*self.layout, strict=True)
        sites = dict(zip(names, split(x, shapes), strict=True))
        if self.supports is None:
            return sites
        return {name: jax.vmap(to)(u) for (name, u), to in zip(sites.items(), self.supports, strict=True)}

    def save(self, path: str | os.PathLike) -> None:
        """Writes one safetensors file that `ksivi.load` reads without the model or the data.

        Refuses (`ValueError`) a family that holds user code, such as a custom mixing sampler or activation.
        """
        archive.write(path, self)

    def alone(self) -> "Posterior":
        """The same sampler without its target: all that drawing needs."""
        return self if self.target is None else dataclasses.replace(self, target=None)

    def to_arviz(self, key: PRNGKeyArray, n: int, target: Target | None = None) -> Any:
        """The n draws that `draws` gives for this key, for ArviZ, with all that is known of them.

        `posterior` has the parameters, and a model's deterministic sites; `sample_stats` the log density `lp`, the
        estimate `log_q` of the sampler's own and their difference `log_weight`; `log_likelihood` and `observed_data`
        what a model knows, so that `arviz.loo` works. The draws are independent: with ArviZ 1 they have one dimension,
        `sample`, but for `log_likelihood`, which `arviz.loo(data, reff=1.0)` wants as one chain; with earlier versions,
        whose functions all want chains, they are one chain.

        **Arguments:**

        - `target`: for a posterior that was loaded, which does not hold its own.

        ```python
        data = fit.posterior.to_arviz(jax.random.key(1), 1_000)
        ```
        """
        key, x = as_single_key(key), self.sample(key, n)
        target = self.target if target is None else target.unwhitened()
        stats = _arviz.densities(key, x, self.family, self.coordinates, target)
        return _arviz.to_arviz(self.constrain(x), stats, target)

    def predictive(self, key: PRNGKeyArray, n: int, *args: Any, **kwargs: Any) -> dict[str, Float[Array, "n ..."]]:
        """New data of the model behind the target, one set for each of n draws.

        **Arguments:**

        - `args`, `kwargs`: those of the model, with None for what is to be predicted; its own unless given.
        """
        if self.target is None or self.target.model is None:
            raise ValueError(
                "predictive needs the model: a posterior of a target that was made from one, and not loaded"
            )
        draw_key, data_key = jax.random.split(as_single_key(key))
        return self.target.model.predictive(data_key, self.draws(draw_key, n), *args, **kwargs)


def load(path: str | os.PathLike) -> Posterior:
    """Reads a posterior written by `Posterior.save`; it draws the same numbers for the same key.

    A damaged, foreign or newer file is refused (`ValueError`) with the reason. Nothing in the file is executed.

    ```python
    posterior = ksivi.load("post.safetensors")
    ```
    """
    posterior = archive.read(path)
    if not isinstance(posterior, Posterior):
        raise ValueError(f"{path} holds a {type(posterior).__name__}, not a posterior")
    try:
        eqx.filter_eval_shape(_sample, posterior, jax.random.key(0), 2)
    except Exception as error:
        raise ValueError(f"{path} is damaged: its parts do not fit together: {error}") from error
    return posterior


@one_shot
def _sample(posterior: Posterior, key: PRNGKeyArray, n: int) -> Float[Array, "n d"]:
    x = posterior.family.sample(key, n)
    return x if posterior.coordinates is None else jax.vmap(posterior.coordinates)(x)


@jit
def _log_prob(posterior: Posterior, key: PRNGKeyArray, x: Float[Array, "n d"], num_mixing: int) -> Float[Array, " n"]:
    if posterior.coordinates is None:
        return posterior.family.log_prob(key, x, num_mixing)
    u = jax.vmap(posterior.coordinates.inverse)(x)
    return posterior.family.log_prob(key, u, num_mixing) - posterior.coordinates.log_det()
