"""The posterior: a sampler or stored draws."""

import dataclasses
import math
import os
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from .._core import archive
from .._core.checks import as_count, as_samples, as_single_key, describe
from .._core.compile import jit, one_shot
from .._core.files import save
from .._core.mixtures import Mixture
from .._core.numerics import new_key
from .._core.schema import conform
from .._core.warped import Warped
from ..families import Empirical, GaussianMixture, SemiImplicit, WarpedGaussian
from ..targets import Affine, Layout, Support, Target, split
from ._about import About, Attributes, library_attributes
from ._host import Family, on_host
from ._names import require_names


@archive.register
class Posterior(eqx.Module):
    """A sampler or a set of stored draws, in the target's unconstrained coordinates.

    ```python
    draws = fit.posterior.sample(jax.random.key(1), 4_000)
    fit.posterior.save("post.safetensors")
    ```
    """

    family: Family
    coordinates: Affine | None
    layout: Layout = eqx.field(static=True)
    supports: tuple[Support, ...] | None = None
    target: Target | None = eqx.field(default=None, metadata={"saved": False})
    about: About | None = eqx.field(default=None, repr=False, metadata={"saved": False})

    @classmethod
    def of(cls, family: Family, target: Target) -> "Posterior":
        """The posterior of a family that was trained on this target.

        Names and coordinates are the target's.
        """
        if not isinstance(family, SemiImplicit | GaussianMixture | WarpedGaussian | Empirical):
            raise ValueError(
                "family must be a ksivi.SemiImplicit, a mixture of Gaussians, a warped Gaussian or "
                "stored draws, "
                f"got {describe(family)}"
            )
        if not isinstance(target, Target):
            raise ValueError(f"target must be a ksivi.Target, got {describe(target)}")
        if isinstance(family, WarpedGaussian) and target.coordinates is not None:
            raise ValueError(
                "target must be in its own coordinates for a warped Gaussian, got a whitened "
                "target: use target.unwhitened()"
            )
        return cls(family, target.coordinates, target.layout, target.supports, target.unwhitened())

    def view(self, target: Target) -> Target:
        """The target in the coordinates of the family."""
        target = target.unwhitened()
        return (
            target
            if self.coordinates is None
            else target.whitened(self.coordinates.loc, self.coordinates.scale)
        )

    @property
    def dim(self) -> int:
        return self.family.dim

    def sample(self, key: PRNGKeyArray, n: int) -> Float[Array, "n d"]:
        """n draws. A sampler draws independently.

        Of stored draws, n are chosen, and none is chosen twice before all are chosen once.
        """
        n = as_count(n, "n")
        return _sample(self.alone(), as_single_key(key), self.family.draw_size(n))[:n]

    def host_draws(self, rng: np.random.Generator, n: int) -> Float[np.ndarray, "n d"]:
        """n draws in NumPy, for checks on the host. For a mixture nothing is compiled."""
        mixture = self.on_host()
        if mixture is not None:
            return mixture.draws(rng, n)[0]
        draws = _sample(self.alone(), new_key(rng), self.family.draw_size(n))
        return np.asarray(draws, np.float64)[:n]

    def on_host(self) -> Mixture | Warped | None:
        """The same sampler in NumPy, if it is a mixture or a warped Gaussian; otherwise None."""
        return on_host(self.family, self.coordinates)

    def log_prob(
        self, key: PRNGKeyArray, x: Float[Array, "n d"], num_mixing: int = 1_000
    ) -> Float[Array, " n"]:
        r"""An estimate of log q(x): log 1/K Σₖ q(x|zₖ) over K = `num_mixing` draws of z.

        For a mixture of Gaussians it is exact. Otherwise it is too low on average, most of all if
        few z lie near x. Do not divide by it. For importance weights and the evidence use
        `ksivi.diagnostics.importance`, which keeps the z of each draw. Stored draws have no
        density: a `ValueError` is raised.
        """
        key, x = as_single_key(key), as_samples(x, "x", self.dim)
        return _log_prob(self.alone(), key, x, as_count(num_mixing, "num_mixing"))

    def draws(self, key: PRNGKeyArray, n: int) -> dict[str, Float[Array, "n ..."]]:
        """n draws as a dictionary from names to arrays, on the model's own (constrained) scale."""
        return self.constrain(self.sample(key, n))

    def constrain(self, x: Float[Array, "n d"]) -> dict[str, Float[Array, "n ..."]]:
        """Unconstrained points as a dictionary from names to arrays, on the model's own scale."""
        sites = self._by_name(x)
        if self.supports is None:
            return sites
        return {
            name: jax.vmap(to)(u)
            for (name, u), to in zip(sites.items(), self.supports, strict=True)
        }

    def _by_name(self, x: Float[Array, "n d"]) -> dict[str, Float[Array, "n ..."]]:
        names, shapes = zip(*self.layout, strict=True)
        return dict(zip(names, split(x, shapes), strict=True))

    def save(self, path: str | os.PathLike) -> None:
        """Writes one safetensors file. `ksivi.load` reads it without the model and the data.

        A family with user code, such as a custom mixing sampler or activation, raises a
        `ValueError`.
        """
        save(path, archive.pack(self))

    def alone(self) -> "Posterior":
        """The same sampler without its target, which drawing does not need."""
        if self.target is None and self.about is None:
            return self
        return dataclasses.replace(self, target=None, about=None)

    @property
    def attributes(self) -> Attributes:
        """This library, and what is known about the run: attributes of ArviZ data."""
        return library_attributes() | ({} if self.about is None else self.about.attributes)

    def attributes_of(self, n: int) -> Attributes:
        """The attributes of n draws: `effective_sample_size` is then theirs, if it is known."""
        size = self.effective_size(n)
        return self.attributes | ({} if math.isnan(size) else {"effective_sample_size": size})

    def effective_size(self, n: int) -> float:
        """How many independent draws n draws of `sample` are worth; NaN if that is not known.

        A sampler draws independently. N stored draws are worth E, and a random part of them more
        than its share: the variance of a mean is that of all, 1/E, and that of the choice, 1/n − 1/N.
        """
        if not isinstance(self.family, Empirical):
            return float(n)
        stored = float(self.attributes.get("effective_sample_size", math.nan))
        return 1 / (1 / stored + max(0.0, 1 / n - 1 / len(self.family.points)))

    def to_arviz(
        self,
        key: PRNGKeyArray,
        n: int,
        target: Target | None = None,
        *,
        posterior_predictive: bool = False,
        prior: bool = False,
        prior_predictive: bool = False,
        unconstrained: bool = False,
    ) -> Any:
        """The same n draws as `draws` gives for this key, as ArviZ data.

        `posterior` holds the parameters and a model's deterministic sites. `sample_stats` holds the
        log density `lp`, the sampler's log density `log_q` (an estimate) and their difference
        `log_weight`. `log_likelihood` and `observed_data` come from the model, for `arviz.loo`. With
        ArviZ 1 the draws have one dimension, `sample`; only `log_likelihood` has one chain, because
        `arviz.loo` needs it. With earlier versions everything has one chain.

        The draws of a sampler are independent: call `arviz.loo(data, reff=1.0)`. Stored draws, such
        as those of chains, depend on each other. They come in random order, so `arviz.ess` and R-hat
        of these data cannot show it. The attribute `effective_sample_size` says how many independent
        draws they are worth; its share of n is `reff`. Particles have no such number.

        Other attributes of `posterior` are the method, the status, whether the draws are trusted (1
        or 0), the log evidence, the numbers of steps and rows, the seconds that the run took
        (`sampling_time`), and `refine`. What is not known is left out. A loaded posterior knows
        nothing of its run.

        **Arguments:**

        - `target`: only needed for a loaded posterior, which has no target.
        - `posterior_predictive`: adds a group with one new data set per draw.
        - `prior`, `prior_predictive`: add groups with n draws from the prior, and one data set for
            each of them. These three need a target made from a NumPyro or PyMC model.
        - `unconstrained`: adds the group `unconstrained_posterior`, the same draws on the
            unconstrained scale.

        ```python
        data = fit.posterior.to_arviz(jax.random.key(1), 1_000, unconstrained=True)
        ```
        """
        key, n, target = as_single_key(key), as_count(n, "n"), self._target_or(target)
        from . import _arviz  # ArviZ is optional

        wanted = {"posterior_predictive": posterior_predictive, "prior": prior}
        wanted |= {"prior_predictive": prior_predictive, "unconstrained": unconstrained}
        _arviz.require_groups(wanted, target)
        x = self.sample(key, n)
        named = self.constrain(x)
        groups = _arviz.simulated(key, named, target, wanted)
        if unconstrained:
            groups["unconstrained_posterior"] = self._by_name(x)
        stats = _arviz.densities(key, x, self.family, self.coordinates, target)
        return _arviz.to_arviz(named, stats, target, groups, self.attributes_of(n))

    def _target_or(self, target: Target | None) -> Target | None:
        """The given target, or that of this posterior, in its own coordinates."""
        if target is None:
            return self.target
        if not isinstance(target, Target) or target.layout != self.layout:
            raise ValueError(
                f"target must be a ksivi.Target with the parameters {self.layout}, got "
                f"{target.layout if isinstance(target, Target) else describe(target)}"
            )
        return target.unwhitened()

    def predictive(
        self, key: PRNGKeyArray, n: int, *args: Any, **kwargs: Any
    ) -> dict[str, Float[Array, "n ..."]]:
        """Posterior predictive data from the model: one data set for each of n draws.

        **Arguments:**

        - `args`, `kwargs`: the model's arguments, with None for what to predict. Default: those of
            the target.
        """
        model = _model_of(self.target)
        draw_key, data_key = jax.random.split(as_single_key(key))
        return model.predictive(data_key, self.draws(draw_key, n), *args, **kwargs)


def _model_of(target: Target | None) -> Any:
    """The model behind a target, which can simulate data."""
    if target is None:
        raise ValueError(
            "predictive needs the model, and this posterior has no target, as it was loaded: make the "
            "target again, and call target.model.predictive(key, posterior.draws(key, n))"
        )
    if target.model is None:
        raise ValueError(
            "predictive needs a model that simulates data, but this target is only a log density: "
            "write simulate(key, x) for one draw x, and call "
            "jax.vmap(simulate)(jax.random.split(key, n), posterior.sample(key, n)); or make the "
            "target with ksivi.from_numpyro or ksivi.from_pymc"
        )
    return target.model


def load(path: str | os.PathLike) -> Posterior:
    """Reads a posterior that `Posterior.save` wrote. It draws the same numbers for the same key.

    A damaged file, another kind of file or a newer format raises a `ValueError`. Nothing in the
    file is executed.

    ```python
    posterior = ksivi.load("post.safetensors")
    ```
    """
    posterior = archive.read(path)
    if not isinstance(posterior, Posterior):
        raise ValueError(f"{path} holds a {type(posterior).__name__}, not a posterior")
    try:
        _require_consistent(posterior)
    except Exception as error:
        raise ValueError(f"{path} is damaged: its parts do not fit together: {error}") from error
    return posterior


def _require_consistent(posterior: Posterior) -> None:
    """Raises an error if the parts of a posterior do not fit together. It computes nothing."""
    x = eqx.filter_eval_shape(_sample, posterior, jax.random.key(0), 2)
    layout = conform(posterior.layout, tuple[tuple[Any, ...], ...], "layout")
    names = [conform(name, str, "a name") for name, _ in layout]
    require_names(names, "the layout")
    shapes = [conform(shape, tuple[int, ...], "a shape") for _, shape in layout]
    fits = sum(math.prod(shape) for shape in shapes) == posterior.dim and x.shape[1:] == (
        posterior.dim,
    )
    if not fits or len(set(names)) < len(names) or min([0, *sum(shapes, ())]) < 0:
        raise ValueError(f"draws of shape {x.shape} cannot have the parameters {layout}")
    if not jnp.issubdtype(x.dtype, jnp.floating):
        raise ValueError(f"draws must be floating numbers, got {x.dtype}")
    draws = eqx.filter_eval_shape(lambda posterior, x: posterior.constrain(x), posterior, x)
    if any(jnp.shape(one)[:1] != (2,) for one in draws.values()):
        raise ValueError("its supports do not map draws to draws")


@one_shot
def _sample(posterior: Posterior, key: PRNGKeyArray, n: int) -> Float[Array, "n d"]:
    x = posterior.family.sample(key, n)
    return x if posterior.coordinates is None else jax.vmap(posterior.coordinates)(x)


@jit
def _log_prob(
    posterior: Posterior, key: PRNGKeyArray, x: Float[Array, "n d"], num_mixing: int
) -> Float[Array, " n"]:
    if posterior.coordinates is None:
        return posterior.family.log_prob(key, x, num_mixing)
    u = jax.vmap(posterior.coordinates.inverse)(x)
    return posterior.family.log_prob(key, u, num_mixing) - posterior.coordinates.log_det()
