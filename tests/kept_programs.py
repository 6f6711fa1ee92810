"""An empty folder for programs, and programs to keep in it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax._src import compilation_cache

from ksivi._core import programs
from ksivi._core.compile import jit

X = jnp.arange(6.0).reshape(2, 3)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty cache folder, in a process whose user has given JAX no cache."""
    before = jax.config.jax_compilation_cache_dir
    jax.config.update("jax_compilation_cache_dir", None)
    compilation_cache.reset_cache()
    monkeypatch.setenv("KSIVI_CACHE", str(tmp_path))
    monkeypatch.delenv("KSIVI_PROGRAM_CACHE", raising=False)
    yield tmp_path
    jax.config.update("jax_compilation_cache_dir", before)
    compilation_cache.reset_cache()


def added(constant):
    """x + constant from a new function, so that JAX does not remember the program: it is compiled or loaded."""
    return np.asarray(jit(lambda x: x + constant)(X))


def entries(folder):
    return {path: path.read_bytes() for path in folder.glob("programs/*/*-program")}


def num_loaded(folder):
    return programs._opened(folder).loaded
