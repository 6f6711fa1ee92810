"""`calibrate`: fits to simulated data, and the ranks of the true parameters in them."""

import contextlib
import dataclasses
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
from jaxtyping import Bool, PRNGKeyArray

from .._core.checks import (
    as_count,
    as_single_key,
    attributing_errors_to,
    describe,
    require_callable,
)
from .._core.interrupts import Interrupts
from ..auto import fit as run_fit
from ..results import Fit, element_name
from ..targets import Target
from ..training import Stages, stages
from ._calibration import Calibration
from ._identity import digest
from ._record import RANKED, Replication, append, read
from ._simulate import Simulate

_DRAWN = 1_000
"""Draws for the intervals."""


def calibrate(
    key: PRNGKeyArray,
    simulate: Simulate,
    num_replications: int = 200,
    *,
    fit: Callable[[PRNGKeyArray, Target], Fit] | None = None,
    record: str | os.PathLike | None = None,
    heard: Callable[[Replication], Any] | None = None,
    progress: bool | None = None,
) -> Calibration:
    """Fits simulated data, and ranks the true parameters among the posterior draws.

    If the fits are correct, all ranks are equally likely, and 95% intervals contain 95% of the true
    values. Fits that are not trusted count too. With parameters from the prior this is
    simulation-based calibration: are fits right on average over the prior? With
    `simulate_around(fit.posterior)` it is posterior calibration: are they right around your data?

    **Arguments:**

    - `simulate`: a function from a key to the true parameters by name and the target of their data,
        such as `simulate_numpyro(model, data)` or `simulate_around(fit.posterior)`.
    - `num_replications`: the number of simulated data sets.
    - `fit`: a function from a key and a target to a `Fit`. Default: `ksivi.fit`.
    - `record`: a file. Every replication adds one line of JSON, and replications in the file are
        not run again. A file of another key, another model, other data or another `fit` is refused.
    - `heard`: a function that is called with every new `Replication`.
    - `progress`: whether to show how many fits are done, on stderr: a bar if it is a terminal, else
        lines. Default: yes.

    **Returns:** a `Calibration`. Ctrl-C returns the fits that are done, with `interrupted` set, or
    raises `KeyboardInterrupt` if they are fewer than two. The fit that it interrupts does not
    count.

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

    References: Talts, Betancourt, Simpson, Vehtari and Gelman, Validating Bayesian inference
    algorithms with simulation-based calibration, 2018; Säilynoja, Schmitt, Bürkner and Vehtari,
    Posterior SBC: simulation-based calibration checking conditional on data, 2025.
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
        before = read(record, _name(key), fingerprint)
    done = {one.index: one for one in before if one.index < count}
    bar, interrupted = stages(progress, "calibrate"), False
    _show(bar, done, count)
    try:
        for i in sorted(set(range(count)) - set(done)):
            found = _uninterrupted(key, i, simulate, _fit if fit is run_fit else fit)
            done[i] = dataclasses.replace(found, fingerprint=fingerprint)
            _tell(done[i], record, heard)
            _show(bar, done, count)
    except KeyboardInterrupt:
        if len(done) < 2:
            raise
        interrupted = True
    finally:
        if bar is not None:
            bar.close()
    return Calibration(tuple(done[i] for i in sorted(done)), interrupted)


def _tell(
    found: Replication,
    record: str | os.PathLike | None,
    heard: Callable[[Replication], Any] | None,
) -> None:
    append(record, found)
    if heard is not None:
        with attributing_errors_to("heard"):
            heard(found)


def _show(bar: Stages | None, done: dict[int, Replication], count: int) -> None:
    if bar is not None:
        each = sum(one.seconds for one in done.values()) / max(len(done), 1)
        bar.counted(len(done), count, "fits", each * (count - len(done)))


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
            yield element_name(name, place), values[(slice(None), *place)] < true[place]


def _name(key: PRNGKeyArray) -> str:
    return f"{jax.random.key_impl(key)} {np.asarray(jax.random.key_data(key)).tobytes().hex()}"
