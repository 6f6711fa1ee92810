"""What is measured of draws: many dimensions, slow chains, and what becomes of the numbers."""

import jax.numpy as jnp
import numpy as np

import ksivi
from ksivi._core.mixtures import Mixture
from ksivi.auto import _measured
from ksivi.auto._measured import measure
from ksivi.families import GaussianMixture
from ksivi.targets import Evaluator


def _posterior(target, *means, sd=1.0):
    means = np.stack(means)
    roots = np.tile(sd * np.eye(means.shape[1]), (len(means), 1, 1))
    mixture = Mixture(np.full(len(means), 1 / len(means)), means, roots)
    return ksivi.Posterior.of(GaussianMixture.of(mixture), target)


def test_few_chains_are_enough_in_many_dimensions():
    """Chains move in coordinates that their starts whiten, so there must be more than dimensions."""
    target = ksivi.Target(lambda x: -0.5 * jnp.sum(x**2), dim=250)
    found = measure(np.random.default_rng(0), Evaluator(target), _posterior(target, np.zeros(250)))
    assert found.is_sure
    assert len(found.moved.before) > 250
    assert found.by_chains.is_small(found.noise)


def test_slow_chains_end_where_tails_stay_undecided(monkeypatch):
    """Chains do not go from one mode to the other, so their ends alone count, however long they run."""
    log_density = lambda x: jnp.logaddexp(-0.5 * (x[0] - 20) ** 2, -0.5 * (x[0] + 20) ** 2)  # noqa: E731
    target = ksivi.Target(log_density, dim=1)
    monkeypatch.setattr(_measured, "is_reliable", lambda *_: False)
    monkeypatch.setattr(_measured.Difference, "is_undecided", lambda *_: True)
    posterior = _posterior(target, np.array([-20.0]), np.array([20.0]))
    evaluate = Evaluator(target)
    found = measure(np.random.default_rng(0), evaluate, posterior)
    assert len(found.moved.settled) == len(found.moved.after)
    assert evaluate.count < 1.02 * 4_000 * (40 + 160 + 3 * 40) * 8
    assert found.moved.memory[0] > 0.5
