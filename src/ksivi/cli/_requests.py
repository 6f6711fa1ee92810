"""What `ksivi fit` was asked, kept in its folder, so that `ksivi resume` can ask it again."""

import dataclasses
import json
from pathlib import Path

from .._core.files import write_atomically

_FILE = "request.json"
CHECKPOINTS = "checkpoints"


@dataclasses.dataclass(frozen=True)
class Request:
    """A model by its name, and all that the result depends on; names of files are as typed in `cwd`."""

    model: str
    dim: int | None
    data: str | None
    seed: int
    steps: int | None
    budget: float | None
    cwd: str

    def claim(self, folder: Path) -> None:
        """Writes it into the folder; refuses (`ValueError`) one with checkpoints of another."""
        if (folder / _FILE).is_file() and any((folder / CHECKPOINTS).glob("step-*")):
            before = dataclasses.asdict(Request.read(folder))
            if other := [name for name, value in dataclasses.asdict(self).items() if before[name] != value]:
                raise ValueError(f"--out must be another folder: {folder} holds checkpoints of another {other[0]}")
        write_atomically(folder / _FILE, json.dumps(dataclasses.asdict(self), indent=2).encode())

    @classmethod
    def read(cls, folder: Path) -> "Request":
        """Refuses (`ValueError`) a folder without one."""
        if not (folder / _FILE).is_file():
            raise ValueError(f"{folder} must be the folder of a `ksivi fit --checkpoint`: there is no {_FILE} in it")
        try:
            request = cls(**json.loads((folder / _FILE).read_text(encoding="utf-8")))
        except (ValueError, TypeError) as error:
            raise ValueError(f"{folder / _FILE} is damaged: {error}") from error
        if not Path(request.cwd).is_dir():
            raise ValueError(f"{folder} was made in {request.cwd}, where its model is, and that folder is gone")
        return request
