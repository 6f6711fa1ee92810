"""The development set: posteriors that `ksivi.fit` is measured on, each with draws of its truth.

Models in NumPyro take seconds to build, so `case` builds one of them alone. `names` builds none of the development set.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping

import jax
import numpy as np

from ksivi import problems

from . import exact, held_out, mixtures, models, posteriordb
from .base import NUM_TRUTH, Case

Make = Callable[[], Case]

SETS = ("development", "mixtures", "expensive")


def _of_problem(problem: problems.AbstractProblem) -> Case:
    truth = functools.partial(problem.reference, jax.random.key(7), NUM_TRUTH)
    return Case(problem.name, problem.target, lambda: np.asarray(truth()))


_SEEN: Mapping[str, Make] = {
    "banana": lambda: _of_problem(problems.banana()),
    "multimodal": lambda: _of_problem(problems.multimodal()),
    "x-shaped": lambda: _of_problem(problems.x_shaped()),
    "waveform": lambda: _of_problem(problems.waveform()),
    "diffusion": lambda: _of_problem(problems.diffusion(dim=100)),
    "funnel-10": lambda: exact.funnel(10),
    "funnel-3": lambda: exact.funnel(3, 1.5),
    "heavy-tails-5": lambda: exact.heavy_tails(5),
    "mixture-2": lambda: exact.mixture(2),
    "mixture-5": lambda: exact.mixture(5),
    "ring": exact.ring,
    "chained-bananas-6": lambda: exact.chained_bananas(6),
    "gaussian-50": lambda: exact.correlated_gaussian(50, 1e4),
    "skewed-8": lambda: exact.skewed(8),
    "circle-of-8": exact.circle_of_modes,
    "far-scales-12": exact.far_scales,
    "log-gamma-1": exact.log_gamma,
    "two-modes-10": exact.two_modes,
    "twisted-4": exact.twisted,
    "crossing-modes-4": exact.crossing_modes,
    "hierarchy-centred": lambda: models.hierarchy(centred=True),
    "hierarchy-noncentred": lambda: models.hierarchy(centred=False),
    "schools-centred": models.centred_schools,
    "horseshoe": models.horseshoe,
    "gaussian-process": models.latent_process,
    "logistic-20": lambda: models.correlated_logistic(20),
    "logistic-100": lambda: models.correlated_logistic(100),
    "logistic-separated": models.separated_logistic,
    "volatility": models.stochastic_volatility,
    "network-98": models.small_network,
    "clustering": models.clustering,
    "robust-regression": models.robust_regression,
    "category-shares": models.category_shares,
    "varying-slopes": models.slopes,
    "ordered-grades": models.ordered_grades,
}
_HELD_OUT: Mapping[str, Make] = {
    "wave": held_out.wave,
    "shell-4": held_out.shell,
    "item-response": held_out.item_response,
    "negative-binomial": held_out.negative_binomial,
    "survival": held_out.survival,
    "correlations": held_out.correlations,
    "random-walk": held_out.random_walk,
    "zero-inflated": held_out.zero_inflated,
    "growth-curve": held_out.growth_curve,
}


def cases() -> list[Case]:
    """All that this machine has the data for, the held-out ones last."""
    return [make() for make in _makers("development").values()]


def names(of: str = "development") -> list[str]:
    """The names of the posteriors of a set."""
    return list(_makers(of))


def case(name: str, of: str = "development") -> Case:
    """One posterior of a set. The others of the development set are not built."""
    makers = _makers(of)
    if name not in makers:
        raise ValueError(f"name must be one of {', '.join(makers)}, got {name!r}")
    return makers[name]()


def _makers(of: str) -> dict[str, Make]:
    """What builds each posterior of a set, by name."""
    if of == "development":
        unseen = {name: functools.partial(_unseen, make) for name, make in _HELD_OUT.items()}
        return {**_stored(), **_SEEN, **unseen}
    return {one.name: functools.partial(_as_built, one) for one in _built(of)}


def _stored() -> dict[str, Make]:
    place = posteriordb.folder()
    if place is None:
        return {}
    return {
        stem: functools.partial(posteriordb._case, place, name)
        for name, (stem, _) in posteriordb._POSTERIORS.items()
    }


def _unseen(make: Make) -> Case:
    return dataclasses.replace(make(), held_out=True)


def _as_built(one: Case) -> Case:
    return one


def _built(of: str) -> list[Case]:
    """The small sets, whose cases are all built for one name."""
    if of == "mixtures":
        return mixtures.cases()
    if of == "expensive":
        from . import expensive

        return expensive.cases()
    raise ValueError(f"of must be one of {', '.join(SETS)}, got {of!r}")


__all__ = ["SETS", "Case", "case", "cases", "mixtures", "names"]
