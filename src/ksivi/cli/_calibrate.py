"""`ksivi calibrate`."""

import functools
import json
from pathlib import Path
from typing import Annotated, Any

import typer

from .._core.checks import as_count
from ._outputs import replacing
from ._shared import INTERRUPTED, NOT_SAVED, NOT_TRUSTED, fail, folder, notes, require_seed


def calibrate(
    model: Annotated[str, typer.Argument(help="FILE.py:NAME of a NumPyro model.")],
    data: Annotated[
        Path | None,
        typer.Option(
            help="A .csv, .json or .npz file. Its columns are passed to the model by name."
        ),
    ] = None,
    replications: Annotated[int, typer.Option(help="Number of simulated data sets to fit.")] = 200,
    out: Annotated[Path, typer.Option(help="Folder for the replications and the figure.")] = Path(
        "calibration"
    ),
    around_data: Annotated[
        bool,
        typer.Option(
            "--around-data",
            help="Draw the parameters from the posterior of the data, not from the prior.",
        ),
    ] = False,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
    steps: Annotated[
        int | None, typer.Option(help="Maximum number of training steps per fit.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object instead of the table.")
    ] = False,
) -> None:
    """Check whether fits of a model are calibrated, with simulated data.

    Each replication draws parameters from the prior, simulates data, fits them, and ranks the true
    parameters among the posterior draws. --data fixes the number of observations; the observed
    values are replaced. With --around-data the data are fitted first; parameters come from this
    posterior, and each fit is to the data and the simulated data together: are fits right for these
    data? Each replication is saved immediately: after Ctrl-C, run the same command
    again to continue. A folder of another model, other data or other settings is refused.

    Exit codes: 0 calibrated, 2 bad input, 3 not calibrated (the ranks of a parameter are not
    uniform, p < 0.01 after correction), 4 the folder could not be written, 130 interrupted.

    \b
    Examples: ksivi calibrate model.py:model --data data.csv
              ksivi calibrate model.py:model --data data.csv --replications 50 --out calibration/
              ksivi calibrate model.py:model --data data.csv --around-data --out around/
    """
    import jax

    from ..auto import fit
    from ..calibration import calibrate as run
    from ..report import rank_histograms, save
    from ._models import simulate_of

    require_seed(seed)
    as_count(replications, "--replications", minimum=2)
    key, quiet = jax.random.key(seed), functools.partial(fit, num_steps=steps, progress=False)
    simulate, target = simulate_of(model, data)
    place = folder(out)
    record = place / "replications.jsonl"
    if record.is_symlink():
        raise ValueError(f"--out must not have a link where lines are added: {record} is one")
    kept = f"{place} has the finished fits: run the same command again to continue"
    try:
        if around_data:
            # The replications use the keys of their numbers.
            first_key = jax.random.fold_in(key, 2**31 - 1)
            simulate = _around(fit(first_key, target, num_steps=steps))
        found = run(key, simulate, replications, record=record, fit=quiet, **_shown(replications))
        with replacing(place / "ranks.png") as beside:
            save(rank_histograms(found), beside)
    except KeyboardInterrupt:
        _note(f"interrupted; {kept}")
        raise typer.Exit(INTERRUPTED) from None
    except OSError as error:
        fail(OSError(f"{place} could not be written: {error}; {kept}"), NOT_SAVED)
    typer.echo(json.dumps(found.facts) if as_json else str(found))
    _note(f"interrupted; {kept}" if found.interrupted else f"saved in {place}, with ranks.png")
    failed = NOT_TRUSTED if found.rejected() else 0
    raise typer.Exit(INTERRUPTED if found.interrupted else failed)


def _around(first: Any) -> Any:
    """The simulator around the fit of the data themselves."""
    from ..calibration import simulate_around

    _note(f"the data: {first.status}")
    if first.status.kind == "interrupted":
        raise KeyboardInterrupt
    return simulate_around(first.posterior)


def _shown(replications: int) -> dict[str, Any]:
    """What shows the fits: a bar on a terminal, else a line with the status of each."""
    if notes.is_terminal:
        return {"progress": None}
    say = lambda one: _note(f"{one.index + 1} of {replications}: {one.seconds:.0f} s, {one.status}")  # noqa: E731
    return {"heard": say, "progress": False}


def _note(text: str) -> None:
    notes.print(text, highlight=False, markup=False)
