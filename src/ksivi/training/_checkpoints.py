"""Snapshots of a run on disk. A run that resumes from one ends with the same numbers."""

import contextlib
import dataclasses
import json
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypedDict

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from .._core import archive
from .._core.checks import as_count
from .._core.files import write_atomically
from .._core.fingerprints import as_plain
from .._core.schema import conform

_FORMAT = 3
"""Counts up when the arrays, the facts or the digests of a snapshot change."""
_KEPT = 3


class OtherVersion(ValueError):
    """The snapshot is whole, but of another format."""


class _Words(TypedDict):
    step: int
    identity: dict[str, str]
    facts: dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """The progress of a run.

    **Attributes:**

    - `step`: the number of steps done.
    - `identity`: a digest of each argument of the run.
    - `facts`: the values that JSON can hold.
    - `arrays`: the arrays.
    """

    step: int
    identity: dict[str, str]
    facts: dict[str, Any]
    arrays: dict[str, np.ndarray]

    def sealed(self) -> bytes:
        words = {
            "format": _FORMAT,
            "step": self.step,
            "identity": self.identity,
            "facts": self.facts,
        }
        return archive.seal({"checkpoint": json.dumps(words)}, self.arrays)

    @classmethod
    def read(cls, path: Path) -> "Snapshot":
        header, arrays = archive.unseal(path)
        if "checkpoint" not in header:
            raise ValueError(f"{path} is a ksivi file, but not a checkpoint")
        words = conform(json.loads(header["checkpoint"]), dict[str, Any], "the checkpoint")
        if words.get("format", 1) != _FORMAT:
            raise OtherVersion(
                f"checkpoint folder was written by another version of ksivi: {path}; "
                "use an empty folder, or resume with that version"
            )
        return cls(**conform(words, _Words, "the checkpoint"), arrays=arrays)


class Checkpoints:
    """A folder with the last few snapshots of one run.

    **Arguments:**

    - `folder`: created if it does not exist.
    - `every`: the number of steps between snapshots. There is at most one per chunk.
    - `extra_identity`: further arguments that identify the run.
    """

    def __init__(
        self, folder: str | os.PathLike, every: int, extra_identity: dict[str, Any] | None = None
    ):
        named = isinstance(folder, str | os.PathLike) and "\0" not in str(folder)
        if not named or (Path(folder).exists() and not Path(folder).is_dir()):
            raise ValueError(f"checkpoint must name a folder, got {folder!r}")
        self.folder, self.every, self.extra_identity = (
            Path(folder),
            as_count(every, "every"),
            extra_identity or {},
        )
        self._written: int | None = None
        with self._warn_on_os_error("created"):
            self.folder.mkdir(parents=True, exist_ok=True)

    def part(self, number: int) -> "Checkpoints":
        """A folder in this one, for one of several runs."""
        return Checkpoints(self.folder / f"run-{number}", self.every, self.extra_identity)

    def is_due(self, before: int, after: int) -> bool:
        return after // self.every > before // self.every

    def write(self, snapshot: Snapshot) -> None:
        """Writes a snapshot. If the disk is full or read-only, it warns and the run continues."""
        if jax.process_index() > 0 or snapshot.step == self._written:
            return
        with self._warn_on_os_error("written"):
            write_atomically(
                self.folder / f"step-{snapshot.step:012}.safetensors", snapshot.sealed()
            )
            self._written = snapshot.step
            for old in self._files()[_KEPT:]:
                old.unlink()
            for part in self.folder.glob(".step-*.part"):  # left by a killed process
                part.unlink()

    def latest(self, identity: dict[str, str]) -> Snapshot | None:
        """The last good snapshot, or None in an empty folder.

        Raises `ValueError` if the snapshot belongs to a different run, or if all are damaged.
        """
        reasons = []
        for path in self._files():
            try:
                snapshot = Snapshot.read(path)
            except OtherVersion:
                raise
            except (ValueError, RecursionError) as error:
                reasons.append(str(error))
                warnings.warn(
                    f"skipped a damaged checkpoint: {error}", RuntimeWarning, stacklevel=2
                )
                continue
            different = [
                name for name, digest in identity.items() if snapshot.identity.get(name) != digest
            ]
            if different:
                raise ValueError(
                    "checkpoint folder belongs to a different run: "
                    f"the {different[0]} does not match the one in {path}; "
                    "use another folder or the arguments of that run"
                )
            return snapshot
        if reasons:
            raise ValueError(f"checkpoint folder has only damaged snapshots: {'; '.join(reasons)}")
        return None

    def _files(self) -> list[Path]:
        """The snapshots, newest first."""
        return sorted(self.folder.glob("step-*.safetensors"), reverse=True)

    @contextlib.contextmanager
    def _warn_on_os_error(self, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            warnings.warn(
                f"a checkpoint could not be {what} in {self.folder}: {error}; "
                "the run continues without it",
                RuntimeWarning,
                stacklevel=3,
            )


def as_checkpoints(
    folder: str | os.PathLike | None,
    every: int | None,
    num_steps: int,
    extra_identity: dict[str, Any] | None = None,
) -> Checkpoints | None:
    """The checkpoints of a run of `num_steps`, from its arguments `checkpoint` and `every`."""
    if folder is None:
        if every is not None:
            raise ValueError(
                f"every needs a checkpoint folder, got every={every!r} and no checkpoint"
            )
        return None
    return Checkpoints(folder, max(1, num_steps // 100) if every is None else every, extra_identity)


def arrays_of(tree: PyTree, name: str) -> dict[str, np.ndarray]:
    """The leaves of a tree by number. A typed key becomes its data, named with its generator."""
    return {_label(name, i, leaf): as_plain(leaf) for i, leaf in enumerate(jax.tree.leaves(tree))}


def tree_like(tree: PyTree, name: str, arrays: dict[str, np.ndarray]) -> PyTree:
    """The tree with the leaves that `arrays_of` stored. Shapes and dtypes must match."""
    leaves, structure = jax.tree.flatten(tree)
    found = []
    for i, leaf in enumerate(leaves):
        stored, like = arrays.get(_label(name, i, leaf)), as_plain(leaf)
        if stored is None or (stored.shape, stored.dtype) != (like.shape, like.dtype):
            raise ValueError(
                "checkpoint folder belongs to a different run: "
                f"the arrays of its {name} have other shapes"
            )
        found.append(_as_leaf(stored, leaf))
    return jax.tree.unflatten(structure, found)


def _label(name: str, i: int, leaf: Any) -> str:
    return f"{name}.{i:04}" + (f"@{jax.random.key_impl(leaf)}" if _is_key(leaf) else "")


def _as_leaf(stored: np.ndarray, like: Any) -> jax.Array:
    array = jnp.asarray(stored)
    return (
        jax.random.wrap_key_data(array, impl=jax.random.key_impl(like)) if _is_key(like) else array
    )


def _is_key(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
