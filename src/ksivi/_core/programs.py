"""Compiled programs are kept on disk. The next process loads them, and does not compile them again.

JAX looks a program up by its code, its options and the version of its compiler. `program_cache`
gives JAX a folder for that while programs of ksivi are compiled, and takes it away again: the
user's settings of JAX and the user's own programs are as before. If the user has given JAX a
folder, that one is used and this module does nothing.
"""

import contextlib
import functools
import hashlib
import os
import platform
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from .cache import cache_folder, private_folder, prune
from .files import locked
from .sharding import num_threads, platform_of
from .shelf import Shelf, has_a_place, here, is_for_the_user_to_decide, kept_in, replace
from .version import __version__

Result = TypeVar("Result")

_FORMAT = 1
_MOST_BYTES = 2**30
_MOST_DAYS = 60.0
_PROCESSOR = ("flags", "features", "model", "cpu part", "cpu implementer")
"""Beginnings of the lines of /proc/cpuinfo that decide what machine code XLA writes."""
_REJECTION = b"XLA:CPU AOT"
"""XLA writes this about a program for another processor, or one that it takes for such."""
_OFF = {"0", "off", "false", "no"}
_opening = threading.RLock()


@contextlib.contextmanager
def program_cache(on: bool = True) -> Iterator[None]:
    """Inside the block, whatever this thread compiles is kept on disk, or loaded from there.

    `on=False` switches that off, for ksivi's own programs and for all blocks inside this one.
    `KSIVI_PROGRAM_CACHE=0` switches it off everywhere.
    """
    if on and isinstance(here.get(), Shelf):
        yield
        return
    refused = not on or here.get() is False
    before = here.set(False if refused else None)
    try:
        with contextlib.nullcontext() if refused else kept_in(_shelf()):
            yield
    finally:
        here.reset(before)


def _shelf() -> Shelf | None:
    """The shelf for this process, or None if it keeps no programs."""
    if os.environ.get("KSIVI_PROGRAM_CACHE", "").lower() in _OFF or is_for_the_user_to_decide():
        return None
    try:
        folder = cache_folder()
    except RuntimeError:  # there is no home folder
        return None
    with _opening:
        return _opened(folder)


@functools.cache
def _opened(folder: Path) -> Shelf | None:
    """A shelf in the folder, if it is safe to use and if JAX can load what it has written there."""
    if not _is_supported():
        return None
    try:
        programs = private_folder(folder / "programs")
        tidy = functools.partial(prune, programs, _MOST_BYTES, _MOST_DAYS)
        tidy()
        shelf = Shelf(private_folder(programs / _tag()), tidy)
        return shelf if all(_loads(shelf, device) for device in _devices()) else None
    except OSError:
        return None


def _is_supported() -> bool:
    """Whether this JAX has a place for a cache, and no known fault in it.

    Before version 0.10, jaxlib on a Mac overflows its stack when it loads a program with thousands
    of kernels. Processes that compile together must all find a program or all compile it.
    """
    import jaxlib

    overflows = sys.platform == "darwin" and jaxlib.__version__.startswith("0.9.")
    return has_a_place() and not overflows and jax.process_count() == 1


def _tag() -> str:
    """One folder for each processor and each version: machine code of one may be illegal elsewhere.

    XLA divides work by the number of threads, so that number counts too.
    """
    import jaxlib

    versions = (__version__, jax.__version__, jaxlib.__version__)
    facts = (_FORMAT, *versions, platform.machine(), num_threads(), _processor())
    return f"jax-{jax.__version__}-{hashlib.sha256(repr(facts).encode()).hexdigest()[:16]}"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    # The cores' lines are the same but for their speed, which changes from second to second.
    kept = sorted({line for line in lines if line.lower().startswith(_PROCESSOR)})
    return "\n".join(kept) or platform.processor()


def _devices() -> list[jax.Device]:
    """A device of each platform that programs of this process are compiled for."""
    found = []
    for name in sorted({platform_of(()), "cpu"}):
        with contextlib.suppress(RuntimeError):  # the user may have left out the processor
            found.append(jax.local_devices(backend=name)[0])
    return found


def _loads(shelf: Shelf, device: jax.Device) -> bool:
    """Whether JAX loads what it has written for this device. This is tried once for each folder.

    Some versions of jaxlib reject their own programs on processors with AVX-512. If a process dies
    while it tries, the record still says that it is being tried, and nothing is loaded.
    """
    record = shelf._path / f"{device.platform}-loads"
    with locked(shelf._path, patience_s=10.0):
        if record.exists():
            return record.read_bytes() == b"yes"
        replace(record, b"being tried")
        answer = None
        try:
            # A new thread has no mesh, no trace and no other settings that the caller has made.
            with ThreadPoolExecutor(1) as thread:
                answer = thread.submit(_tries_to_load, shelf, device).result()
        finally:
            if answer is None:
                record.unlink()
            else:
                replace(record, b"yes" if answer else b"no")
        return bool(answer)


def _tries_to_load(shelf: Shelf, device: jax.Device) -> bool | None:
    """Compiles a program, loads it, and compares both with NumPy. XLA's complaints are a no.

    The answer is None if JAX does not ask for programs at all.
    """
    x = np.linspace(-1.0, 1.0, 64 * 32, dtype=np.float32).reshape(64, 32)
    asked, loaded = shelf.asked, shelf.loaded
    try:
        with kept_in(shelf), jax.default_device(device):
            # Each has its own function: JAX itself remembers the program of an old one.
            (first, second), complaints = _with_complaints(lambda: (_product(x), _product(x)))
    except (RuntimeError, ValueError, TypeError, Warning):
        return False
    if _REJECTION not in complaints:
        os.write(2, complaints)  # somebody else's
    same = np.array_equal(first, second) and np.allclose(first, np.tanh(x @ x.T), atol=1e-2)
    works = same and shelf.loaded > loaded and _REJECTION not in complaints
    return works if shelf.asked > asked else None


def _product(x: np.ndarray) -> np.ndarray:
    return np.asarray(jax.jit(lambda x: jnp.tanh(x @ x.T)).lower(x).compile()(x))


def _with_complaints(function: Callable[[], Result]) -> tuple[Result, bytes]:
    """The function's result, and what anyone wrote to standard error meanwhile."""
    with tempfile.TemporaryFile() as file:
        before = os.dup(2)
        try:
            os.dup2(file.fileno(), 2)
            result = function()
        finally:
            os.dup2(before, 2)
            os.close(before)
        file.seek(0)
        return result, file.read()
