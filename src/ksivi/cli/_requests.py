"""The options of `ksivi fit`, saved in its folder, so that `ksivi resume` can use them again."""

import dataclasses
import json
from pathlib import Path

from .._core.files import write_atomically

_FILE = "request.json"
CHECKPOINTS = "checkpoints"


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

    def claim(self, folder: Path) -> None:
        """Writes the request.

        Raises a `ValueError` if the folder has checkpoints of a different request.
        """
        if (folder / _FILE).is_file() and any((folder / CHECKPOINTS).glob("step-*")):
            before = dataclasses.asdict(Request.read(folder))
            if other := [
                name for name, value in dataclasses.asdict(self).items() if before[name] != value
            ]:
                raise ValueError(
                    f"--out must be a different folder: {folder} has checkpoints with a different {other[0]}"
                )
        write_atomically(folder / _FILE, json.dumps(dataclasses.asdict(self), indent=2).encode())

    @classmethod
    def read(cls, folder: Path) -> "Request":
        """Reads the request. Raises a `ValueError` if the folder has none."""
        if not (folder / _FILE).is_file():
            raise ValueError(
                f"{folder} must be the folder of a `ksivi fit --checkpoint`: there is no {_FILE} in it"
            )
        try:
            request = cls(**json.loads((folder / _FILE).read_text(encoding="utf-8")))
        except (ValueError, TypeError) as error:
            raise ValueError(f"{folder / _FILE} is damaged: {error}") from error
        if not Path(request.cwd).is_dir():
            raise ValueError(
                f"{folder} needs its model in {request.cwd}, but that folder does not exist any more"
            )
        return request
