"""Fixtures: reference data beside the checkout, float64 on request, strict rank promotion, a cache of programs."""

import gc
import os
import signal
import tempfile
from pathlib import Path

import programs

# Before JAX starts, and for the processes that tests start.
os.environ.update(
    {name: value for name, value in programs.settings().items() if name not in os.environ}
)

import jax
import jax.numpy as jnp
import pytest
from jax.experimental.compilation_cache import compilation_cache

jax.config.update("jax_numpy_rank_promotion", "raise")

# Reference draws are made anew by every test run, not read from the user's cache.
os.environ["KSIVI_CACHE"] = tempfile.mkdtemp(prefix="ksivi-test-")


# A shell lets what it starts in the background ignore Ctrl-C. The tests send it to themselves, and to processes.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config):
    if not hasattr(config, "workerinput"):
        programs.prune()


def pytest_collection_finish():
    """What is loaded stays, and tracing makes much that dies at once: collecting either takes a tenth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 1_000)


LONGEST = [
    "gallery",
    "median",
    "kernels",
    "docs",
    "conformance",
    "trouble",
    "training",
    "ksivi",
    "mcmc",
    "rivals",
    "importance",
    "checkpoints",
    "particles",
    "fit",
    "numpyro",
    "mesh",
    "host_functions",
    "bnn",
    "formulas",
]
QUICK = [
    "architecture::",
    "bad_input::",
    "bad_input_targets::",
    "formulas::",
    "security::",
    "conformance::test_objectives_trace_once_and_repeat_themselves[ksivi]",
    "conformance::test_methods_trace_once_and_repeat_themselves[svgd]",
    "docs::test_the_",
    "docs::test_pages_name_no_private_module",
    "docs::test_documented_doubts",
    "docs::test_every_doubt",
    "kernels::test_gram_equals_the_double_loop",
    "ksivi::test_estimators_equal_the_double_loop[gaussian",
    "ksivi::test_pairs_that_share_z_are_left_out",
]
"""Beginnings of the names of the tests that `make test-quick` runs, by their file."""


def pytest_ignore_collect(collection_path, config):
    """Files that have no quick test are not imported where only those are asked for."""
    if config.option.markexpr.startswith("quick") and collection_path.suffix == ".py":
        return (
            None
            if any(name.startswith(f"{file_of(collection_path)}::") for name in QUICK)
            else True
        )
    return None


def pytest_collection_modifyitems(items):
    """The longest files first, so that no worker is left alone with one."""
    rank = {name: i for i, name in enumerate(LONGEST)}
    items.sort(key=lambda item: rank.get(file_of(item.path), len(rank)))
    for item in items:
        if f"{file_of(item.path)}::{item.name}".startswith(tuple(QUICK)):
            item.add_marker("quick")


def file_of(path):
    return path.stem.removeprefix("test_")


@pytest.fixture(autouse=True, scope="module")
def forget_programs():
    """A thousand tests compile more than Linux has memory maps for; JAX forgets nothing by itself."""
    yield
    maps = Path("/proc/self/maps")
    if maps.exists() and len(maps.read_text().splitlines()) > 20_000:
        jax.clear_caches()


@pytest.fixture
def compiled_afresh():
    """Compiles what a test runs, for tests of what the compiler makes: nothing is read from the cache of programs."""
    jax.config.update("jax_enable_compilation_cache", False)
    compilation_cache.reset_cache()
    yield
    jax.config.update("jax_enable_compilation_cache", True)
    compilation_cache.reset_cache()


@pytest.fixture
def x64():
    """Runs a test in float64."""
    with jax.enable_x64(True):
        yield


@pytest.fixture(params=["float32", "float64"])
def dtype(request):
    """Runs a test in both precisions."""
    with jax.enable_x64(request.param == "float64"):
        yield jnp.dtype(request.param)


@pytest.fixture(scope="session")
def data():
    """The folder of development data; tests that need it skip where it is not."""
    folder = Path(os.environ.get("KSIVI_DATA", Path(__file__).parents[2] / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no development data: set KSIVI_DATA ({folder} does not exist)")
    return folder
