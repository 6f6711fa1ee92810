"""With `JAX_DEBUG_NANS=1` a user looks for a NaN of the model: ksivi must not stop at its own."""

import os
import subprocess
import sys

import pytest

SETUP = """
import jax, jax.numpy as jnp, ksivi
target = ksivi.Target(lambda x: -0.5 * jnp.sum(x**2), dim=2)
family = ksivi.SemiImplicit.location_scale(2)
train = lambda key, **more: ksivi.train(
    key, target, family, ksivi.KSIVI(num_samples=8), num_steps=20, chunk_size=10, **more
)
"""
RUNS = {
    "train": "train(jax.random.key(0))",
    "train a batch": "train(jax.random.split(jax.random.key(0), 2), nonfinite='skip', ema=0.9)",
    "run": "ksivi.run(jax.random.key(0), target, ksivi.SVGD(num_particles=10, num_steps=10))",
    "fit": "ksivi.fit(jax.random.key(0), target, num_steps=100)",
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name == "fit")) for name in RUNS]
)
def test_no_nan_of_our_own(name):
    assert outcome(RUNS[name]) == ""


def outcome(code):
    """The last line on stderr of a process that looks for NaN, or "" if it ends well."""
    command, environment = [sys.executable, "-c", SETUP + code], {**os.environ}
    environment |= {"JAX_DEBUG_NANS": "1", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    return "" if done.returncode == 0 else done.stderr.strip().splitlines()[-1]
