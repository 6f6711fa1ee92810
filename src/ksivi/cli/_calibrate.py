"""`ksivi calibrate`."""

import functools
import json
from pathlib import Path
from typing import Annotated

import typer

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
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
    steps: Annotated[
        int | None, typer.Option(help="Maximum number of training steps per fit.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object instead of the table.")
    ] = False,
) -> None:
    """Check whether fits of a model are calibrated, with data simulated from its prior.

    Each replication draws parameters from the prior, simulates data, fits them, and ranks the true
    parameters among the posterior draws. --data fixes the number of observations; the observed
    values are replaced. Each replication is saved immediately: after Ctrl-C, run the same command
    again to continue. A folder of another model, other data or other settings is refused.

    Exit codes: 0 calibrated, 2 bad input, 3 not calibrated (the ranks of a parameter are not
    uniform, p < 0.01 after correction), 4 the folder could not be written, 130 interrupted.

    \b
    Examples: ksivi calibrate model.py:model --data data.csv
              ksivi calibrate model.py:model --data data.csv --replications 50 --out calibration/
    """
    import jax

    from ..auto import fit
    from ..calibration import calibrate as run
    from ..report import rank_histograms, save
    from ._models import simulate_of

    require_seed(seed)
    simulate, place = simulate_of(model, data), folder(out)
    say = lambda one: notes.print(  # noqa: E731
        f"{one.index + 1} of {replications}: {one.seconds:.0f} s, {one.status}",
        highlight=False,
        markup=False,
    )
    record = place / "replications.jsonl"
    if record.is_symlink():
        raise ValueError(f"--out must not have a link where lines are added: {record} is one")
    kept = f"{place} has the finished fits: run the same command again to continue"
    try:
        found = run(
            jax.random.key(seed),
            simulate,
            replications,
            record=record,
            heard=say,
            fit=functools.partial(fit, num_steps=steps, progress=False),
        )
        with replacing(place / "ranks.png") as beside:
            save(rank_histograms(found), beside)
    except KeyboardInterrupt:
        notes.print(f"interrupted; {kept}", highlight=False, markup=False)
        raise typer.Exit(INTERRUPTED) from None
    except OSError as error:
        fail(OSError(f"{place} could not be written: {error}; {kept}"), NOT_SAVED)
    typer.echo(json.dumps(found.facts) if as_json else str(found))
    notes.print(f"saved in {place}, with ranks.png", highlight=False, markup=False)
    raise typer.Exit(NOT_TRUSTED if found.rejected() else 0)
