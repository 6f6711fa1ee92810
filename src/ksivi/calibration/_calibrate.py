"""`calibrate`: fits to simulated data, and the ranks of the true parameters in them."""

import contextlib
import dataclasses
import os
import time
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import jax
import numpy as np
from jaxtyping import Bool, Float, Int, PRNGKeyArray

from .._core.checks import (
    as_count,
    as_single_key,
    attributing_errors_to,
    describe,
    require_callable,
)
from .._core.interrupts import Interrupts
from ..auto import fit as run_fit
from ..results import Fit
from ..targets import Target
from ._identity import digest
from ._record import RANKED, Replication, append, read
from ._simulate import Simulate

_DRAWN, _BINS = 1_000, 20
"""Draws for the intervals, and bins of the test."""


@dataclasses.dataclass(frozen=True)
class Calibration:
    """The results of all replications, trusted or not."""

    levels: ClassVar = (0.5, 0.8, 0.95)
    replications: tuple[Replication, ...]

    @property
    def names(self) -> list[str]:
        return list(self.replications[0].ranks)

    @property
    def ranks(self) -> Int[np.ndarray, "r q"]:
        return np.array([[one.ranks[name] for name in self.names] for one in self.replications])

    def inside(self, level: float) -> Bool[np.ndarray, "r q"]:
        """Whether the central interval of this level contains the true value."""
        shares = np.array([[one.shares[name] for name in self.names] for one in self.replications])
        return np.abs(shares - 0.5) <= level / 2

    def coverage(self, level: float) -> tuple[float, float]:
        """The share of intervals that contain the true value, and its standard error."""
        by_replication = self.inside(level).mean(axis=1)
        return float(by_replication.mean()), float(
            by_replication.std(ddof=1) / np.sqrt(len(by_replication))
        )

    @property
    def counts(self) -> Int[np.ndarray, "q b"]:
        """Histograms of the ranks. They are flat if the posteriors are calibrated."""
        return np.array(
            [
                np.bincount(column * _BINS // (RANKED + 1), minlength=_BINS)
                for column in self.ranks.T
            ]
        )

    @property
    def p_values(self) -> Float[np.ndarray, " q"]:
        """p-values of a χ² test of uniform ranks, one per parameter, with Holm's correction."""
        from scipy.stats import chisquare

        p = np.array([chisquare(row).pvalue for row in self.counts])
        order = np.argsort(p)
        corrected = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
        return np.minimum(corrected, 1)[np.argsort(order)]

    def rejected(self, level: float = 0.01) -> list[str]:
        """The parameters whose ranks are not uniform."""
        return [name for name, p in zip(self.names, self.p_values, strict=True) if p < level]

    @property
    def facts(self) -> dict[str, Any]:
        """The results as JSON values."""
        return {
            "replications": len(self.replications),
            "trusted": sum(one.trusted for one in self.replications),
            "p_values": dict(zip(self.names, self.p_values.tolist(), strict=True)),
            "coverage": {str(level): self.coverage(level) for level in self.levels},
            "rejected": self.rejected(),
        }

    def __str__(self) -> str:
        wide = max(len(name) for name in [*self.names, "all"])
        lines = [
            f"{'':{wide}}   p of ranks   "
            + "   ".join(f"{level:.0%} holds" for level in self.levels)
        ]
        for i, (name, p) in enumerate(zip(self.names, self.p_values, strict=True)):
            held = "   ".join(f"{self.inside(level)[:, i].mean():9.1%}" for level in self.levels)
            lines.append(f"{name:{wide}}   {p:10.3f}   {held}")
        pooled = "   ".join(f"{self.coverage(level)[0]:9.1%}" for level in self.levels)
        trusted = sum(one.trusted for one in self.replications)
        lines += [
            f"{'all':{wide}}   {'':10}   {pooled}",
            f"{len(self.replications)} fits, {trusted} of them trusted",
        ]
        return "\n".join(lines)


def calibrate(
    key: PRNGKeyArray,
    simulate: Simulate,
    num_replications: int = 200,
    *,
    fit: Callable[[PRNGKeyArray, Target], Fit] | None = None,
    record: str | os.PathLike | None = None,
    heard: Callable[[Replication], Any] | None = None,
) -> Calibration:
    """Fits data simulated from the prior, and ranks the true parameters among the posterior draws.

    If the fits are correct, all ranks are equally likely, and 95% intervals contain 95% of the true
    values. Fits that are not trusted count too. Ctrl-C raises `KeyboardInterrupt`, and the fit that
    it interrupts does not count.

    **Arguments:**

    - `simulate`: a function from a key to the true parameters by name and the target of their data,
        such as `simulate_numpyro(model, data)`.
    - `num_replications`: the number of simulated data sets.
    - `fit`: a function from a key and a target to a `Fit`. Default: `ksivi.fit`.
    - `record`: a file. Every replication adds one line of JSON, and replications in the file are
        not run again. A file of another key, another model, other data or another `fit` is refused.
    - `heard`: a function that is called with every new `Replication`.

    ```python
    def log_prior(x):
        return -0.5 * jnp.sum(x**2)

    def log_likelihood(x, y):
        return -0.5 * jnp.sum((y - x[None]) ** 2)

    def simulate(key):
        truth_key, data_key = jax.random.split(key)
        truth = jax.random.normal(truth_key, (2,))
        y = truth[None] + jax.random.normal(data_key, (1, 2))
        return {"x": truth}, ksivi.Target.from_data(log_prior, log_likelihood, y, dim=2)

    def brief(key, target):
        family = ksivi.SemiImplicit.location_scale(2)
        return ksivi.train(key, target, family, ksivi.SIVI(20, num_mixing=0), num_steps=200)

    print(ksivi.calibration.calibrate(jax.random.key(0), simulate, 3, fit=brief))
    ```

    Reference: Talts, Betancourt, Simpson, Vehtari and Gelman, Validating Bayesian inference
    algorithms with simulation-based calibration, 2018.
    """
    key, count = as_single_key(key), as_count(num_replications, "num_replications", minimum=2)
    fit = _fit if fit is None else fit
    for name, one in {
        "simulate": simulate,
        "fit": fit,
        "heard": print if heard is None else heard,
    }.items():
        require_callable(one, name)
    if not isinstance(record, str | os.PathLike | None):
        raise ValueError(f"record must be the path of a file, got {describe(record)}")
    fingerprint = "" if record is None else _fingerprint(key, simulate, fit)
    with attributing_errors_to("record"):
        done = {one.index: one for one in read(record, _name(key), fingerprint)}
    for i in range(count):
        if i not in done:
            found = _uninterrupted(key, i, simulate, fit)
            done[i] = dataclasses.replace(found, fingerprint=fingerprint)
            append(record, done[i])
            if heard is not None:
                with attributing_errors_to("heard"):
                    heard(done[i])
    return Calibration(tuple(done[i] for i in range(count)))


def _fit(key: PRNGKeyArray, target: Target) -> Fit:
    return run_fit(key, target, progress=False)


def _uninterrupted(key: PRNGKeyArray, index: int, simulate: Simulate, fit: Callable) -> Replication:
    """A replication. Raises `KeyboardInterrupt` after Ctrl-C, where `fit` returns what it has."""
    with Interrupts().noticed() as interrupts:
        try:
            found = _replicate(key, index, simulate, fit)
        except Exception:
            if not interrupts.seen:
                raise
    if interrupts.seen:
        raise KeyboardInterrupt
    return found


def _replicate(key: PRNGKeyArray, index: int, simulate: Simulate, fit: Callable) -> Replication:
    truth_key, fit_key, draw_key = _keys(key, index)
    truth, target = _simulated(simulate, truth_key)
    began = time.perf_counter()
    with contextlib.nullcontext() if fit is _fit else attributing_errors_to("fit"):
        found = fit(fit_key, target)
    if not isinstance(found, Fit):
        raise ValueError(f"fit must return a ksivi.Fit, got {describe(found)}")
    draws = found.posterior.draws(draw_key, _DRAWN)
    if missing := set(draws) - set(truth):
        raise ValueError(
            f"simulate must return a value for every parameter, but {', '.join(sorted(missing))} is missing"
        )
    ranks, shares = {}, {}
    for name, below in _below(truth, draws):
        ranks[name], shares[name] = int(below[:RANKED].sum()), float(below.mean())
    seconds = time.perf_counter() - began
    return Replication(_name(key), index, ranks, shares, found.trusted, str(found.status), seconds)


def _keys(key: PRNGKeyArray, index: int) -> PRNGKeyArray:
    """The keys of a replication's parameters and data, of its fit and of its draws."""
    return jax.random.split(jax.random.fold_in(key, index), 3)


def _simulated(simulate: Simulate, key: PRNGKeyArray) -> tuple[dict[str, Any], Target]:
    with attributing_errors_to("simulate"):
        truth, target = simulate(key)
    if not isinstance(truth, dict) or not isinstance(target, Target):
        raise ValueError(
            f"simulate must return a dict of parameters and a Target, got {describe((truth, target))}"
        )
    return truth, target


def _fingerprint(key: PRNGKeyArray, simulate: Simulate, fit: Callable) -> str:
    """A digest of the first replication's parameters and target, of `fit` and of the draws."""
    truth, target = _simulated(simulate, _keys(key, 0)[0])
    return digest(truth, target, fit, (RANKED, _DRAWN))


def _below(
    truth: dict[str, Any], draws: dict[str, Any]
) -> Iterator[tuple[str, Bool[np.ndarray, " n"]]]:
    """The name of each number, and which draws are below its true value."""
    for name, values in draws.items():
        values, true = np.asarray(values), np.asarray(truth[name])
        if values.shape[1:] != true.shape:
            raise ValueError(
                f"simulate must return {name} with the shape {values.shape[1:]} of a draw, got {true.shape}"
            )
        for place in np.ndindex(true.shape):
            label = f"{name}[{','.join(map(str, place))}]" if place else name
            yield label, values[(slice(None), *place)] < true[place]


def _name(key: PRNGKeyArray) -> str:
    return f"{jax.random.key_impl(key)} {np.asarray(jax.random.key_data(key)).tobytes().hex()}"
