"""`ksivi resume`."""

import contextlib
import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from ._fit import run_request
from ._requests import CHECKPOINTS, Request
from ._shared import notes


def resume(
    run: Annotated[Path, typer.Argument(help="The folder of a `ksivi fit --checkpoint`.")],
    model: Annotated[
        str | None,
        typer.Option(
            help="FILE.py:NAME of the model, for a folder that was moved or is from elsewhere."
        ),
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="The data file, if --model is given and its name changed.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object instead of the table.")
    ] = False,
) -> None:
    """Continue a fit that was interrupted or killed, from its last checkpoint.

    The result is the same.

    The model is read again from its file. Do not change the file or the data. The file is only run
    if your own `ksivi fit` wrote the folder, and neither the folder was moved nor the file changed.
    Otherwise name the model with --model; file names are then relative to the current folder.

    Exit codes: the same as for ksivi fit.

    \b
    Examples: ksivi fit model.py:log_density --dim 3 --out run/ --checkpoint
              ksivi resume run/
              ksivi resume copied/ --model model.py:log_density
    """
    if data is not None and model is None:
        raise ValueError(f"--data must come with --model, got {data} alone")
    place = run.resolve()
    request = Request.read(place)
    if (place / "fit.json").is_file() and not (place / CHECKPOINTS).is_dir():
        notes.print(f"{run} is finished; next: ksivi report {run}", highlight=False, markup=False)
        return
    if model is None:
        request = Request.read_own(place)
    else:
        request = _renamed(request, model, data)
        request.write(place)
    with contextlib.chdir(request.cwd):
        run_request(request, place, checkpoint=True, as_json=as_json)


def _renamed(request: Request, model: str, data: Path | None) -> Request:
    """The request with the files that the user names, in the current folder."""
    if not Path(model.rpartition(":")[0]).is_file():
        raise ValueError(f"--model must be FILE.py:NAME with a file that exists, got {model!r}")
    data_name = request.data if data is None else str(data)
    return dataclasses.replace(request, model=model, data=data_name, cwd=str(Path.cwd()))
