"""`ksivi fit`."""

import contextlib
import json
from pathlib import Path
from typing import Annotated, Any, NoReturn, get_args

import typer

from .._core.checks import as_choice
from ..results import Record
from ._requests import CHECKPOINTS, Kind, Request
from ._saving import printable, save_record
from ._shared import (
    INTERRUPTED,
    NOT_SAVED,
    NOT_TRUSTED,
    fail,
    folder,
    interrupts,
    notes,
    require_seed,
    say,
)


def fit(
    model: Annotated[
        str,
        typer.Argument(help="FILE.py:NAME of a log density, a NumPyro or PyMC model, or a Target."),
    ],
    dim: Annotated[int | None, typer.Option(help="Number of coordinates of a log density.")] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            help="A .csv, .json or .npz file. Its columns are passed to the model by name."
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("run"),
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
    steps: Annotated[int | None, typer.Option(help="Maximum number of training steps.")] = None,
    budget: Annotated[
        float | None, typer.Option(help="Time limit in seconds, approximately.")
    ] = None,
    at_least: Annotated[
        str | None,
        typer.Option(
            help="The first answer to try: gaussian, mixture or sampler. Default: gaussian, or "
            "sampler with --steps, --checkpoint, --log or --live."
        ),
    ] = None,
    checkpoint: Annotated[
        bool,
        typer.Option("--checkpoint", help="Write checkpoints into the folder, for ksivi resume."),
    ] = False,
    log: Annotated[
        Path | None,
        typer.Option(help="Append a line of JSON to this file every few hundred steps."),
    ] = None,
    live: Annotated[
        bool,
        typer.Option("--live", help="Show the progress on a page that only this machine can open."),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object instead of the table.")
    ] = False,
) -> None:
    """Fit a model without tuning, check the draws, and save the sampler in a folder.

    A log density is a function of a vector of --dim real numbers. A NumPyro model gets the columns
    of --data by name. A PyMC model contains its data, or a function of the data returns it. Ctrl-C
    stops the training and saves the result so far.

    Exit codes: 0 trusted, 2 bad input, 3 not trusted (the status gives the reason), 4 the folder
    could not be written (the results are saved elsewhere, if possible), 130 interrupted, 143
    terminated.

    \b
    Examples: ksivi fit model.py:log_density --dim 3
              ksivi fit model.py:model --data data.csv --out run/
              ksivi sample run/ -n 4000 --format csv
              ksivi report run/
    """
    data_name = None if data is None else str(data)
    kind = None if at_least is None else as_choice(at_least, "--at-least", get_args(Kind))
    request = Request(model, dim, data_name, seed, steps, budget, str(Path.cwd()), kind)
    run_request(request, out, checkpoint, log, live, as_json)


def run_request(
    request: Request,
    out: Path,
    checkpoint: bool = False,
    log: Path | None = None,
    live: bool = False,
    as_json: bool = False,
) -> NoReturn:
    """Fits, writes the record into a folder, prints the result, and exits with the exit code."""
    import jax

    from ..auto import fit as run_fit
    from ..training import JSONLines
    from ._live import serving
    from ._models import target_of

    require_seed(request.seed)
    target = target_of(
        request.model, request.dim, None if request.data is None else Path(request.data)
    )
    place = folder(out)
    snapshots = place / CHECKPOINTS if checkpoint else None
    if checkpoint:
        request.claim(place)
    options: dict[str, Any] = {
        "num_steps": request.steps,
        "budget_s": request.budget,
        "at_least": request.at_least,
        "checkpoint": snapshots,
    }
    with serving(request.model) if live else contextlib.nullcontext() as watch:
        options["callbacks"] = [
            one for one in (None if log is None else JSONLines(log), watch) if one is not None
        ]
        try:
            found = run_fit(jax.random.key(request.seed), target, **options)
        except (KeyboardInterrupt, RuntimeError) as error:
            if isinstance(error, RuntimeError) and not interrupts.seen:
                fail(error, NOT_TRUSTED)
            notes.print("interrupted before there was a result to save", highlight=False)
            raise typer.Exit(INTERRUPTED) from None
        about = {"model": printable(request.model), "data": printable(request.data)}
        record = Record.of(found, **about, seed=request.seed)
        with interrupts.held():
            problem = save_record(record, place)
        with contextlib.suppress(KeyboardInterrupt):
            if watch is not None:
                watch.finish(record)
    say(json.dumps(_as_json(record)) if as_json else str(found))
    if problem is not None:
        fail(problem, NOT_SAVED)
    interrupted = found.status.kind == "interrupted"
    if snapshots is not None and not interrupted:
        _remove_snapshots(snapshots)
    after = "resume" if interrupted and checkpoint else "report"
    notes.print(f"saved in {place}; next: ksivi {after} {place}", highlight=False, markup=False)
    raise typer.Exit(INTERRUPTED if interrupted else 0 if found.trusted else NOT_TRUSTED)


def _as_json(record: Record) -> dict[str, Any]:
    """The facts of a record, its codes, and its table with one entry per number."""
    return {**record.facts, "codes": record.status.codes, "table": record.table().to_dict()}


def _remove_snapshots(snapshots: Path) -> None:
    """Removes the snapshots of a fit that is complete. Other files in the folder are not ours."""
    with contextlib.suppress(OSError):
        for folder in (*snapshots.glob("run-*"), snapshots):  # a fit to some rows has several runs
            for path in folder.glob("step-*.safetensors"):
                path.unlink()
            folder.rmdir()
