"""Six posteriors of posteriordb with their reference draws, where `$KSIVI_DATA/posteriordb` holds them."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from ksivi import from_numpyro

from .base import Case
from .models import schools


def _flat(name: str, shape: tuple[int, ...] = ()):
    return numpyro.sample(name, dist.ImproperUniform(dist.constraints.real, (), shape))


def kidscore(kid_score, mom_hs, mom_iq):
    beta, sigma = _flat("beta", (3,)), numpyro.sample("sigma", dist.HalfCauchy(2.5))
    numpyro.sample(
        "y", dist.Normal(beta[0] + beta[1] * mom_hs + beta[2] * mom_iq, sigma), obs=kid_score
    )


def autoregression(y, order):
    alpha = numpyro.sample("alpha", dist.Normal(0, 10))
    beta = numpyro.sample("beta", dist.Normal(0, 10).expand([order]))
    sigma = numpyro.sample("sigma", dist.HalfCauchy(2.5))
    past = jnp.stack([y[order - k - 1 : len(y) - k - 1] for k in range(order)], axis=1)
    numpyro.sample("y", dist.Normal(alpha + past @ beta, sigma), obs=y[order:])


def regression(x, y):
    beta = numpyro.sample("beta", dist.Normal(0, 10).expand([x.shape[1]]))
    sigma = numpyro.sample("sigma", dist.HalfNormal(10))
    numpyro.sample("y", dist.Normal(x @ beta, sigma), obs=y)


def earnings(log_earn, height, male):
    beta = _flat("beta", (4,))
    sigma = numpyro.sample("sigma", dist.ImproperUniform(dist.constraints.positive, (), ()))
    mean = beta[0] + beta[1] * height + beta[2] * male + beta[3] * height * male
    numpyro.sample("y", dist.Normal(mean, sigma), obs=log_earn)


def diamonds(x, y):
    b = numpyro.sample("b", dist.Normal(0, 1).expand([x.shape[1]]))
    intercept = numpyro.sample("Intercept", dist.StudentT(3, 8, 10))
    sigma = numpyro.sample("sigma", dist.LeftTruncatedDistribution(dist.StudentT(3, 0, 10), 0.0))
    numpyro.sample("y", dist.Normal(intercept + x @ b, sigma), obs=y)


def _columns(data: dict[str, Any], *names: str) -> list[np.ndarray]:
    return [np.asarray(data[name], float) for name in names]


def _centred(x: np.ndarray) -> np.ndarray:
    return x[:, 1:] - x[:, 1:].mean(axis=0)


_Make = Callable[[dict[str, Any]], Any]
_POSTERIORS: dict[str, tuple[str, _Make]] = {
    "eight_schools-eight_schools_noncentered": (
        "eight_schools",
        lambda d: from_numpyro(schools, *_columns(d, "sigma", "y"), False),
    ),
    "kidiq-kidscore_momhsiq": (
        "kidiq",
        lambda d: from_numpyro(kidscore, *_columns(d, "kid_score", "mom_hs", "mom_iq")),
    ),
    "arK-arK": ("arK", lambda d: from_numpyro(autoregression, *_columns(d, "y"), int(d["K"]))),
    "sblrc-blr": ("sblrc", lambda d: from_numpyro(regression, *_columns(d, "X", "y"))),
    "earnings-logearn_interaction": (
        "earnings",
        lambda d: from_numpyro(
            earnings, np.log(_columns(d, "earn")[0]), *_columns(d, "height", "male")
        ),
    ),
    "diamonds-diamonds": (
        "diamonds",
        lambda d: from_numpyro(diamonds, _centred(_columns(d, "X")[0]), *_columns(d, "Y")),
    ),
}


def folder() -> Path | None:
    """Where the files are, or None."""
    place = Path(os.environ.get("KSIVI_DATA", "nowhere")) / "posteriordb"
    return place if place.is_dir() else None


def cases() -> list[Case]:
    place = folder()
    return [] if place is None else [_case(place, name) for name in _POSTERIORS]


def _case(place: Path, name: str) -> Case:
    stem, make = _POSTERIORS[name]
    target = make(json.loads((place / f"{stem}.data.json").read_text()))
    with np.load(place / f"{name}.draws.npz") as file:
        stored = {key: file[key] for key in file.files}

    def view(key, posterior, n):
        draws = {site: np.asarray(values) for site, values in posterior.draws(key, n).items()}
        if "z" in draws:
            draws["theta"] = draws["mu"][:, None] + draws["tau"][:, None] * draws["z"]
        return np.stack([_column(draws, column) for column in stored], axis=1)

    truth = lambda: np.stack(list(stored.values()), axis=1)  # noqa: E731
    return Case(stem, target, truth, view, columns=tuple(map(_our_name, stored)))


def _our_name(name: str) -> str:
    """Stan counts from 1: "beta[2]" is our "beta[1]"."""
    site, _, index = name.partition("[")
    return f"{site}[{int(index[:-1]) - 1}]" if index else site


def _column(draws: dict[str, np.ndarray], name: str) -> np.ndarray:
    """Stan's "beta[2]" is the second column of beta."""
    site, _, index = name.partition("[")
    return draws[site][:, int(index[:-1]) - 1] if index else draws[site]
