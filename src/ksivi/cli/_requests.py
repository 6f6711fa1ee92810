"""The options of `ksivi fit`, saved in its folder, so that `ksivi resume` can use them again."""

import dataclasses
import json
from pathlib import Path
from typing import Any, Literal

from .._core.files import UNREADABLE, read_json, write_atomically
from .._core.schema import conform
from ._signing import is_signed, sign

_FILE, _SIGNATURE = "request.json", "signature"
CHECKPOINTS = "checkpoints"
Kind = Literal["gaussian", "mixture", "sampler"]


@dataclasses.dataclass(frozen=True)
class Request:
    """The model and everything else that the result depends on.

    File names are relative to `cwd`.
    """

    model: str
    dim: int | None
    data: str | None
    seed: int
    steps: int | None
    budget: float | None
    cwd: str
    at_least: Kind | None = None

    def claim(self, folder: Path) -> None:
        """Writes the request, signed by this user.

        Raises a `ValueError` if the folder has checkpoints of a different request.
        """
        if (folder / _FILE).is_file() and any((folder / CHECKPOINTS).rglob("step-*")):
            before = dataclasses.asdict(Request.read(folder))
            if other := [
                name for name, value in dataclasses.asdict(self).items() if before[name] != value
            ]:
                raise ValueError(
                    f"--out must be a different folder: {folder} has checkpoints with a different {other[0]}"
                )
        self.write(folder)

    def write(self, folder: Path) -> None:
        """Writes the request, signed by this user."""
        signed = dataclasses.asdict(self) | {_SIGNATURE: sign(self._facts(), folder)}
        write_atomically(folder / _FILE, json.dumps(signed, indent=2).encode())

    def _facts(self) -> dict[str, Any]:
        """What is signed. Earlier versions had no `at_least`, and their signatures still hold."""
        facts = dataclasses.asdict(self)
        return facts if self.at_least else {k: v for k, v in facts.items() if k != "at_least"}

    @classmethod
    def read(cls, folder: Path) -> "Request":
        """Reads the request. Raises a `ValueError` if the folder has none.

        It may come from anyone: `read_own` is for those that are run.
        """
        return cls._read(folder)[0]

    @classmethod
    def read_own(cls, folder: Path) -> "Request":
        """Reads a request that this user's own `ksivi fit` wrote into this folder.

        Raises a `ValueError` for any other: its model is code of someone else.
        """
        request, signature = cls._read(folder)
        if not is_signed(signature, request._facts(), folder):
            raise ValueError(
                f"{folder} names the model {request.model!r} in {request.cwd!r}, and resume would "
                "run that code, but it is not known to be yours: the folder is from elsewhere, was "
                "moved or edited, or the model file was changed. If you trust the model, name it: "
                f"ksivi resume {folder} --model FILE.py:NAME"
            )
        return request

    @classmethod
    def _read(cls, folder: Path) -> tuple["Request", Any]:
        if not (folder / _FILE).is_file():
            raise ValueError(
                f"{folder} must be the folder of a `ksivi fit --checkpoint`: there is no {_FILE} in it"
            )
        try:
            found = conform(read_json(folder / _FILE), dict[str, Any], "it")
            return conform(found, cls, "it"), found.get(_SIGNATURE)
        except UNREADABLE as error:
            raise ValueError(f"{folder / _FILE} is damaged: {error}") from error
