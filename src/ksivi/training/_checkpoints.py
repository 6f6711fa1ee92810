"""Snapshots of a run on disk, from which the same run goes on to the same end."""

import contextlib
import dataclasses
import hashlib
import json
import os
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from .._core import archive
from .._core.checks import as_count
from .._core.files import write_atomically

_KEPT = 3
_HASHED = 2**25
"""Bytes at either end of a large array by which it is told from others."""


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """All that a run has done so far.

    **Attributes:**

    - `step`: how far it is.
    - `identity`: digests of what made the run, by argument.
    - `facts`: what JSON can hold.
    - `arrays`: the rest.
    """

    step: int
    identity: dict[str, str]
    facts: dict[str, Any]
    arrays: dict[str, np.ndarray]

    def sealed(self) -> bytes:
        words = {"step": self.step, "identity": self.identity, "facts": self.facts}
        return archive.seal({"checkpoint": json.dumps(words)}, self.arrays)

    @classmethod
    def read(cls, path: Path) -> "Snapshot":
        header, arrays = archive.unseal(path)
        if "checkpoint" not in header:
            raise ValueError(f"{path} is a ksivi file, but no checkpoint")
        return cls(arrays=arrays, **json.loads(header["checkpoint"]))


class Checkpoints:
    """A folder with the last few snapshots of one run.

    **Arguments:**

    - `folder`: made if it is not there.
    - `every`: steps between snapshots, of which there is at most one a chunk.
    - `also`: what else tells the run from others.
    """

    def __init__(self, folder: str | os.PathLike, every: int, also: dict[str, Any] | None = None):
        named = isinstance(folder, str | os.PathLike) and "\0" not in str(folder)
        if not named or (Path(folder).exists() and not Path(folder).is_dir()):
            raise ValueError(f"checkpoint must name a folder, got {folder!r}")
        self.folder, self.every, self.also = Path(folder), as_count(every, "every"), also or {}
        self._written: int | None = None
        with self._forgiven("made"):
            self.folder.mkdir(parents=True, exist_ok=True)

    def is_due(self, before: int, after: int) -> bool:
        return after // self.every > before // self.every

    def write(self, snapshot: Snapshot) -> None:
        """A disk that is full, or a folder that may not be written, costs a warning and not the run."""
        if jax.process_index() > 0 or snapshot.step == self._written:
            return
        with self._forgiven("written"):
            write_atomically(self.folder / f"step-{snapshot.step:012}.safetensors", snapshot.sealed())
            self._written = snapshot.step
            for old in self._files()[_KEPT:]:
                old.unlink()
            for part in self.folder.glob(".step-*.part"):  # what a killed process left
                part.unlink()

    def latest(self, identity: dict[str, str]) -> Snapshot | None:
        """The last good snapshot, None in an empty folder. That of another run is refused (`ValueError`), as is a
        folder where all are damaged."""
        reasons = []
        for path in self._files():
            try:
                snapshot = Snapshot.read(path)
            except (ValueError, TypeError) as error:
                reasons.append(str(error))
                warnings.warn(f"a checkpoint was passed over: {error}", RuntimeWarning, stacklevel=2)
                continue
            other = [name for name, digest in identity.items() if snapshot.identity.get(name) != digest]
            if other:
                raise ValueError(f"checkpoint must be the folder of this run: in {path}, the {other[0]} is another")
            return snapshot
        if reasons:
            raise ValueError(f"checkpoint must hold a good snapshot, and all are damaged: {'; '.join(reasons)}")
        return None

    def _files(self) -> list[Path]:
        """The newest first."""
        return sorted(self.folder.glob("step-*.safetensors"), reverse=True)

    @contextlib.contextmanager
    def _forgiven(self, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            words = f"a checkpoint could not be {what} in {self.folder}: {error}; the run goes on without it"
            warnings.warn(words, RuntimeWarning, stacklevel=3)


def as_checkpoints(
    folder: str | os.PathLike | None, every: int | None, num_steps: int, also: dict[str, Any] | None = None
) -> Checkpoints | None:
    """Those of a run of so many steps, by its arguments `checkpoint` and `every`."""
    if folder is None:
        if every is not None:
            raise ValueError(f"every needs a checkpoint folder, got every={every!r} and no checkpoint")
        return None
    return Checkpoints(folder, max(1, num_steps // 100) if every is None else every, also)


def digest(tree: PyTree) -> str:
    """Of all arrays in a tree, and of all else by its words: classes and settings, and of functions the names."""
    found = hashlib.sha256(_words(jax.tree.structure(tree)).encode())
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        if not isinstance(leaf, jax.Array | np.ndarray):
            found.update(_words(leaf).encode())
        elif getattr(leaf, "is_fully_addressable", True):
            array = _plain(leaf)
            found.update(json.dumps([jax.tree_util.keystr(path), str(leaf.dtype), array.shape]).encode())
            content = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
            for part in [content] if len(content) <= 2 * _HASHED else [content[:_HASHED], content[-_HASHED:]]:
                found.update(part.data)
    return found.hexdigest()


def _words(value: Any) -> str:
    """The same in every process: without addresses, and without the folders of code."""
    return re.sub(r' at 0x[0-9a-f]+|, file "[^"]*"', "", repr(value))


def arrays_of(tree: PyTree, name: str) -> dict[str, np.ndarray]:
    """The tree's leaves by number; typed keys as their data, with the generator's name in theirs."""
    return {_label(name, i, leaf): _plain(leaf) for i, leaf in enumerate(jax.tree.leaves(tree))}


def tree_like(tree: PyTree, name: str, arrays: dict[str, np.ndarray]) -> PyTree:
    """The tree with its leaves as stored by `arrays_of`; shapes and dtypes must be those of the given one."""
    leaves, structure = jax.tree.flatten(tree)
    found = []
    for i, leaf in enumerate(leaves):
        stored, like = arrays.get(_label(name, i, leaf)), _plain(leaf)
        if stored is None or (stored.shape, stored.dtype) != (like.shape, like.dtype):
            raise ValueError(f"checkpoint must come from a run like this one, and its {name} has other arrays")
        found.append(_as_leaf(stored, leaf))
    return jax.tree.unflatten(structure, found)


def _label(name: str, i: int, leaf: Any) -> str:
    return f"{name}.{i:04}" + (f"@{jax.random.key_impl(leaf)}" if _is_key(leaf) else "")


def _plain(leaf: Any) -> np.ndarray:
    return np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf)


def _as_leaf(stored: np.ndarray, like: Any) -> jax.Array:
    array = jnp.asarray(stored)
    return jax.random.wrap_key_data(array, impl=jax.random.key_impl(like)) if _is_key(like) else array


def _is_key(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
