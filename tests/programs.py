"""A folder of compiled programs, so that a test run compiles only what has changed since the last one.

XLA compiles the programs exactly as it does for users: a program is looked up by its code, its options and the version
of jaxlib. Functions are still traced in every process, so tests that count traces are not affected. Tests of the
compiler itself ask for the `compiled_afresh` fixture.
"""

import hashlib
import importlib.metadata
import os
import platform
from pathlib import Path

FOLDER = Path(os.environ.get("KSIVI_TEST_CACHE", Path.home() / ".cache" / "ksivi-tests"))
"""Shared by all checkouts of this user: a fresh clone compiles only what differs."""
MOST_BYTES = 2**29


def settings() -> dict[str, str]:
    """The environment variables of JAX that turn the cache on, for programs of every size."""
    return {
        "JAX_COMPILATION_CACHE_DIR": str(FOLDER / label()),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }


def label() -> str:
    """The version of jaxlib and the processor: machine code for one processor may be illegal on another."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else [platform.processor()]
    # One processor's lines: the speed changes from second to second, so only its model and features count.
    kept = {
        line
        for line in lines
        if line.lower().startswith(("flags", "features", "model", "cpu part", "cpu impl"))
    }
    processor = hashlib.sha256("\n".join(sorted(kept) or lines).encode()).hexdigest()[:12]
    return f"{importlib.metadata.version('jaxlib')}-{platform.machine()}-{processor}"


def prune(folder: Path = FOLDER, most: int = MOST_BYTES) -> None:
    """Removes the oldest programs until the rest has at most so many bytes, those of other versions among them."""
    files = sorted(
        (path.stat().st_mtime, path.stat().st_size, path) for path in folder.glob("*/*-cache")
    )
    total = sum(size for _, size, _ in files)
    for _, size, path in files:
        if total <= most:
            break
        path.unlink(missing_ok=True)
        total -= size
