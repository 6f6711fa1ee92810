"""A folder of compiled programs, in JAX's one place for such a cache.

A loaded program is machine code that runs without any check. So each entry begins with a digest of
its key and its content: a damaged entry, or one in the place of another, is compiled again.
"""

import contextlib
import hashlib
import os
import secrets
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Literal

import jax

_DIGEST_BYTES = 32
_TIDY_AFTER = 2**27
"""Number of bytes a process writes before it removes old programs again."""


class Shelf:
    """A folder of programs, as JAX wants a cache to be.

    JAX has one place for a cache, which all threads share. A thread that compiles something else
    meanwhile finds nothing here and leaves nothing.
    """

    def __init__(self, folder: Path, tidy: Callable[[], None]):
        self._path = folder  # JAX's name for it
        self.tidy = tidy
        self.asked = 0
        self.loaded = 0
        self.written = 0
        self.users = 0

    def get(self, key: str) -> bytes | None:
        """The program with this key, or None if there is none or if it is damaged."""
        if here.get() is not self:
            return None
        self.asked += 1
        try:
            content = self._file(key).read_bytes() if self._file(key).is_file() else b""
        except OSError:
            return None
        if content[:_DIGEST_BYTES] != _digest(key, content[_DIGEST_BYTES:]):
            return None
        with contextlib.suppress(OSError):
            os.utime(self._file(key))  # the programs used last are the last to be removed
        self.loaded += 1
        return content[_DIGEST_BYTES:]

    def put(self, key: str, program: bytes) -> None:
        """Keeps a program, in the place of a damaged one. On a full disk, nothing happens."""
        if here.get() is not self:
            return
        with contextlib.suppress(OSError):
            replace(self._file(key), _digest(key, program) + program)
            self.written += len(program)
        if self.written > _TIDY_AFTER:
            self.written = 0
            self.tidy()

    def _file(self, key: str) -> Path:
        return self._path / f"{hashlib.sha256(key.encode()).hexdigest()}-program"


here: ContextVar[Shelf | Literal[False] | None] = ContextVar("programs", default=None)
"""Where this thread keeps what it compiles; False if it must not keep anything."""


@contextlib.contextmanager
def kept_in(shelf: Shelf | None) -> Iterator[None]:
    """JAX uses the shelf for what this thread compiles, however small and quick to compile."""
    if shelf is None or not _put_up(shelf):
        yield
        return
    from jax._src import config  # settings for one thread are not public

    before = here.set(shelf)
    try:
        with (
            config.persistent_cache_min_compile_time_secs(0.0),
            config.persistent_cache_min_entry_size_bytes(0),
        ):
            yield
    finally:
        here.reset(before)
        _take_down(shelf)


def has_a_place() -> bool:
    """Whether this version of JAX has the place for a cache that `kept_in` knows."""
    try:
        from jax._src import compilation_cache as place
        from jax._src import config
    except ImportError:
        return False
    names = {"_cache", "_cache_initialized", "_cache_initialized_mutex"}
    settings = {"persistent_cache_min_compile_time_secs", "persistent_cache_min_entry_size_bytes"}
    return names <= vars(place).keys() and settings <= vars(config).keys()


def is_for_the_user_to_decide() -> bool:
    """Whether the user has given JAX a cache, or has told it to have none."""
    settings: Any = jax.config
    return bool(settings.jax_compilation_cache_dir) or not settings.jax_enable_compilation_cache


def _put_up(shelf: Shelf) -> bool:
    """Makes the shelf JAX's cache, unless the user has one or wants none."""
    from jax._src import compilation_cache as place

    with place._cache_initialized_mutex:
        if is_for_the_user_to_decide() or place._cache not in (None, shelf):
            return False
        place._cache, place._cache_initialized = shelf, True  # type: ignore[assignment]
        shelf.users += 1
        return True


def _take_down(shelf: Shelf) -> None:
    """The last thread to leave makes JAX's place for a cache empty again."""
    from jax._src import compilation_cache as place

    with place._cache_initialized_mutex:
        shelf.users -= 1
        if shelf.users == 0 and place._cache is shelf:
            place._cache, place._cache_initialized = None, False


def replace(path: Path, content: bytes) -> None:
    """Writes a file in one step, for other processes. After a crash it may be damaged."""
    beside = path.with_name(f".{secrets.token_hex(8)}.part")
    try:
        beside.write_bytes(content)
        os.replace(beside, path)
    except BaseException:
        with contextlib.suppress(OSError):
            beside.unlink()
        raise


def _digest(key: str, program: bytes) -> bytes:
    return hashlib.sha256(hashlib.sha256(key.encode()).digest() + program).digest()
