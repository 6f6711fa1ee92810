"""The cache of compiled programs that the tests use."""

import importlib.metadata
import os

import jax
import jax.numpy as jnp
import pytest
from jax.experimental.compilation_cache import compilation_cache

import programs


@pytest.fixture
def folder(tmp_path):
    """An empty cache for one test."""
    before = jax.config.jax_compilation_cache_dir
    jax.config.update("jax_compilation_cache_dir", str(tmp_path))
    compilation_cache.reset_cache()
    yield tmp_path
    jax.config.update("jax_compilation_cache_dir", before)
    compilation_cache.reset_cache()


def double(x):
    # A new function has nothing in memory, but its program has the same code.
    return jax.jit(lambda x: 2 * x)(x)


def test_a_damaged_program_is_compiled_again(folder):
    x = jnp.arange(3.0)
    double(x)
    files = list(folder.glob("*-cache"))
    assert files
    for file in files:
        file.write_bytes(file.read_bytes()[:-7])
    assert double(x).tolist() == [0.0, 2.0, 4.0]
    assert list(folder.glob("*-cache")) == files  # both calls looked for the same program


def test_programs_are_found_by_version_and_processor():
    assert programs.label().startswith(importlib.metadata.version("jaxlib"))
    assert programs.label() == programs.label()


def test_the_oldest_programs_are_removed_first(tmp_path):
    for age, name in enumerate(("new", "old", "oldest")):
        file = tmp_path / "version" / f"{name}-cache"
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(bytes(100))
        os.utime(file, (1_000 - age, 1_000 - age))
    programs.prune(tmp_path, most=250)
    assert {file.stem for file in tmp_path.glob("*/*")} == {"new-cache", "old-cache"}
