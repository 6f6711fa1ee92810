"""What identifies a run: a checkpoint of the same arguments is accepted, and of other data refused."""

import os
import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import ksivi
from ksivi.families import SampledMixing
from ksivi.training import _identity as identity

KEY = jax.random.key(0)


def closed_over(data):
    return ksivi.Target(lambda x: -jnp.sum((data - x[None]) ** 2), dim=2)


def closed_over_inside(data):
    inner = jax.jit(lambda x: -jnp.sum((data - x[None]) ** 2))
    return ksivi.Target(lambda x: jax.lax.cond(x[0] > 0, inner, lambda x: 2 * inner(x), x), dim=2)


def in_a_module(data):
    class Model:
        rows = data

        def __call__(self, x):
            return -jnp.sum((self.rows - x[None]) ** 2)

    return ksivi.Target(Model(), dim=2)


def with_a_score(data):
    return ksivi.Target(
        lambda x: -jnp.sum(x**2), dim=2, score=lambda x: -2 * x + 1e-6 * jnp.sum(data)
    )


def from_score(data):
    return ksivi.Target.from_score(lambda x: jnp.mean(data, 0) - x, dim=2)


def on_the_host(data):
    rows = np.asarray(data)
    return ksivi.from_callback(lambda x: (-np.sum((rows - x) ** 2), -2 * np.sum(x - rows, 0)), 2)


def of_rows(data):
    def log_likelihood(x, rows):
        return -jnp.sum((rows - x[None]) ** 2)

    prior = lambda x: -jnp.sum(x**2)  # noqa: E731
    rows = ksivi.Rows(np.asarray(data), block_size=1)
    return ksivi.Target.from_data(prior, log_likelihood, rows, 2, batch_size=1)


def mixing(data):
    sampler = SampledMixing(lambda key: jax.random.normal(key, (3,)) + data[0, 0])
    return ksivi.SemiImplicit.mlp(KEY, dim=2, mixing_dim=3, hidden=(8,), mixing=sampler)


def schedule(data):
    return optax.adam(lambda step: data[0, 0] * 1e-3)


PARTS = [closed_over, closed_over_inside, in_a_module, with_a_score, from_score, on_the_host]


@pytest.mark.parametrize("part", [*PARTS, of_rows, mixing])
def test_other_data_are_another_run(part):
    data = jnp.ones((5, 2))
    one, same, other = (identity.digest(part(one)) for one in (data, +data, data.at[4, 1].set(2.0)))
    if part is mixing:
        other = identity.digest(part(data.at[0, 0].set(2.0)))
    assert one == same
    assert one != other


def test_the_optimiser_of_another_schedule_is_another_run():
    from ksivi._core.closures import Structural

    found = [identity.digest(Structural(schedule(c * jnp.ones((1, 1))))) for c in (1, 1, 2)]
    assert found[0] == found[1] != found[2]


def test_numbers_in_the_code_count():
    targets = [
        ksivi.Target(lambda x, c=c: -c * jnp.sum(x**2), dim=2) for c in (1.0, 1.0, 1.0000001)
    ]
    found = [identity.digest(target) for target in targets]
    assert found[0] == found[1] != found[2]


@pytest.mark.parametrize("where", ["leaf", "closure"])
def test_every_byte_of_a_large_array_counts(where):
    """One number in the middle of 80 MiB, in seconds, and nothing is compiled."""
    rows = np.zeros((10 * 2**20, 2), np.float32)

    def target():
        if where == "closure":
            return ksivi.Target(lambda x: -jnp.sum((rows - x[None]) ** 2), dim=2)
        likelihood = lambda x, y: -jnp.sum((y - x[None]) ** 2)  # noqa: E731
        return ksivi.Target.from_data(lambda x: 0.0 * x[0], likelihood, jnp.asarray(rows), 2)

    first = target()
    began = time.process_time()
    before = identity.digest(first)
    assert time.process_time() - began < 5
    rows = rows.copy()
    rows[5 * 2**20, 1] = 1.0
    assert identity.digest(target()) != before


def test_a_digest_compiles_nothing(caplog):
    target = closed_over(jnp.ones((5, 2)))
    identity.digest(target)
    with jax.log_compiles(True):
        identity.digest(closed_over(jnp.ones((5, 2))).whitened(jnp.ones(2), jnp.ones(2)))
    compiled = [one.message for one in caplog.records if "Compiling" in one.message]
    assert not [line for line in compiled if "log_density" in line or "lambda" in line]


def test_rows_on_disk_are_known_by_all_their_rows(tmp_path):
    rows = np.random.default_rng(0).normal(size=(1_000, 2)).astype(np.float32)
    np.save(tmp_path / "rows.npy", rows)
    on_disk = of_rows(np.load(tmp_path / "rows.npy", mmap_mode="r"))
    before = identity.digest(on_disk)
    assert before == identity.digest(of_rows(rows))
    rows[777, 1] += 1e-3
    np.save(tmp_path / "rows.npy", rows)
    assert before != identity.digest(of_rows(np.load(tmp_path / "rows.npy", mmap_mode="r")))


CODE = """
import jax.numpy as jnp, sys
sys.path.insert(0, {tests!r})
import test_identity
print(*(test_identity.identity.digest(part(jnp.ones((5, 2)))) for part in test_identity.PARTS))
"""


def test_a_digest_is_the_same_in_another_process_and_on_a_terminal():
    """On a terminal JAX colours the text of programs."""
    here = [identity.digest(part(jnp.ones((5, 2)))) for part in PARTS]
    command = [sys.executable, "-c", CODE.format(tests=os.path.dirname(__file__))]
    master, terminal = os.openpty()
    assert subprocess.run(command, stdout=terminal, stderr=subprocess.DEVNULL).returncode == 0
    assert os.read(master, 4_096).decode().split() == here
