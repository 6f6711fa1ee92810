"""The paper's logistic regression at its own settings, against reference draws of NUTS.

One run proves little: over 128 seeds the distance after 20,000 steps is 0.126 with a spread of
0.015, and that of the direct PyTorch translation 0.136 with 0.018 over 39. So four seeds are
trained at once.
"""

import jax
import numpy as np
import optax
import pytest

import ksivi
from ksivi.kernels import Gaussian, Median

TRANSLATED, SPREAD = 0.136, 0.018
SEEDS = 4


def sliced_distances(data, num_steps, stop_gradient=False):
    """Sliced W₂ of 1,000 draws from 1,000 of the reference, for each seed, and the statuses."""
    truth = np.load(data / "reference" / "waveform.npz")["draws"].astype(np.float32)
    problem = ksivi.problems.waveform(data / "waveform.mat", reference=truth)
    schedule = optax.exponential_decay(1e-3, 3_000, 0.9, staircase=True)
    fits = ksivi.train(
        jax.random.split(jax.random.key(0), SEEDS),
        problem.target,
        lambda key: ksivi.SemiImplicit.mlp(
            key, dim=22, mixing_dim=10, hidden=(100, 100), log_var=-5.0
        ),
        ksivi.KSIVI(Gaussian(Median(stop_gradient=stop_gradient)), num_samples=100),
        optimizer=optax.adam(schedule),
        num_steps=num_steps,
    )
    reference = problem.reference(jax.random.key(3), 1_000)
    draws = [fit.posterior.sample(jax.random.key(2), 1_000) for fit in fits]
    distances = [ksivi.metrics.sliced_wasserstein(jax.random.key(4), x, reference) for x in draws]
    return np.array(distances), [fit.status for fit in fits]


@pytest.mark.slow
def test_a_detached_median_is_worse(data):
    pytest.importorskip("ot")
    flowing, _ = sliced_distances(data, 2_000)
    detached, statuses = sliced_distances(data, 2_000, stop_gradient=True)
    print(
        f"sliced W2 after 2,000 steps: {flowing.round(3)} flowing, {detached.round(3)} detached ({statuses})"
    )
    assert detached.min() > flowing.max()
    assert detached.mean() > 1.5 * flowing.mean()


@pytest.mark.slow
def test_the_papers_setting_reaches_the_papers_accuracy(data):
    pytest.importorskip("ot")
    distances, _ = sliced_distances(data, 20_000)
    print(f"sliced W2 after 20,000 steps: {distances.round(4)}")
    assert distances.min() <= 0.13
    assert distances.mean() <= TRANSLATED + 3 * SPREAD / SEEDS**0.5
