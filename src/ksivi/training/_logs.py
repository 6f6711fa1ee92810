"""Callbacks that log a run: as lines of JSON, or as events for TensorBoard."""

import atexit
import json
import os
import warnings
from pathlib import Path
from typing import Any

from ._callbacks import Chunk


class JSONLines:
    """A callback that appends one line per chunk: step, loss, seconds and steps per second.

    If the disk is full, it warns, and the run continues without the line.

    ```python
    family, log = ksivi.SemiImplicit.location_scale(target.dim), ksivi.JSONLines("loss.jsonl")
    key = jax.random.key(0)
    fit = ksivi.train(key, target, family, ksivi.KSIVI(), num_steps=200, callbacks=[log])
    ```
    """

    def __init__(self, path: str | os.PathLike):
        self.path = Path(path)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            # Without O_NONBLOCK, a pipe that nobody reads would wait for its reader.
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NONBLOCK", 0)
            os.close(os.open(self.path, flags, 0o666))
        except OSError as error:
            raise ValueError(
                f"path must name a file that can be written, got {path}: {error.strerror}"
            ) from error

    def __call__(self, chunk: Chunk) -> None:
        try:
            with self.path.open("a") as file:
                file.write(json.dumps(_numbers(chunk)) + "\n")
        except OSError as error:
            warnings.warn(f"{self.path} could not be written: {error}", RuntimeWarning, 2)


class TensorBoard:
    """A callback that writes TensorBoard events to a folder. It needs the package tensorboardX."""

    def __init__(self, folder: str | os.PathLike):
        try:
            from tensorboardX import SummaryWriter
        except ImportError as error:
            raise ImportError(
                "TensorBoard needs tensorboardX: pip install 'ksivi[tensorboard]'"
            ) from error
        self._writer: Any = SummaryWriter(str(folder), flush_secs=1)
        atexit.register(self.close)

    def __call__(self, chunk: Chunk) -> None:
        numbers = _numbers(chunk)
        for name in ("loss", "steps_per_second"):
            if numbers[name] is not None:
                self._writer.add_scalar(name, numbers[name], chunk.step)

    def close(self) -> None:
        """Writes the remaining events now. Otherwise they are written within one or two seconds."""
        self._writer.close()


def _numbers(chunk: Chunk) -> dict[str, Any]:
    loss = chunk.loss if chunk.loss == chunk.loss else None  # NaN is not JSON
    rest = {
        "seconds": round(chunk.seconds, 3),
        "steps_per_second": round(chunk.steps_per_second, 3),
    }
    return {"step": chunk.step, "num_steps": chunk.num_steps, "loss": loss, **rest}
