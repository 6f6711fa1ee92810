"""How fits to some rows end: with modes that were not examined, out of time, by Ctrl-C, or after a crash."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ksivi
from ksivi.auto import _many_rows
from regressions import target_of

KEY = jax.random.key(0)


def two_modes(x, rows):
    """At about 1 and −1, with equal mass."""
    return -0.5 * jnp.sum((rows["y"] - x[0] ** 2) ** 2)


def test_modes_that_were_not_examined_stay_a_doubt(monkeypatch):
    """A fit from this one makes no search, so it cannot know of them."""
    monkeypatch.setattr(_many_rows, "_LOADED_BYTES", 0)  # as if there were too many to load
    data = {"y": 1 + np.random.default_rng(0).normal(size=20_000).astype(np.float32)}
    target = target_of(ksivi.Rows(data), two_modes, 1)
    first = ksivi.fit(KEY, target, progress=False)
    assert first.status.codes == ("rows-modes",)
    again = ksivi.fit(jax.random.key(1), target, init=first, progress=False)
    assert again.status.codes == ("rows-modes",)
    assert not again.trusted
    assert "rows-modes" in again.explain()
