"""`ksivi resume`."""

import contextlib
from pathlib import Path
from typing import Annotated

import typer

from ._fit import run_request
from ._requests import CHECKPOINTS, Request
from ._shared import notes


def resume(
    run: Annotated[Path, typer.Argument(help="The folder of a `ksivi fit --checkpoint`.")],
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object instead of the table.")
    ] = False,
) -> None:
    """Continue a fit that was interrupted or killed, from its last checkpoint.

    The result is the same.

    The model is read again from its file. Do not change the file or the data.

    Exit codes: the same as for ksivi fit.

    \b
    Examples: ksivi fit model.py:log_density --dim 3 --out run/ --checkpoint
              ksivi resume run/
    """
    request, place = Request.read(run), run.resolve()
    if (place / "fit.json").is_file() and not (place / CHECKPOINTS).is_dir():
        notes.print(f"{run} is finished; next: ksivi report {run}", highlight=False, markup=False)
        return
    with contextlib.chdir(request.cwd):
        run_request(request, place, checkpoint=True, as_json=as_json)
