"""`ksivi sample`."""

import csv
from pathlib import Path
from typing import Annotated

import typer

from .._core.checks import as_choice, as_count
from ._outputs import replacing
from ._shared import folder, notes, require_seed

_FORMATS = ("csv", "npz", "netcdf")


def sample(
    run: Annotated[Path, typer.Argument(help="The folder of a finished `ksivi fit`.")],
    n: Annotated[int, typer.Option("-n", "--num", help="Number of draws.")] = 4_000,
    form: Annotated[str, typer.Option("--format", help="csv, npz, or netcdf (for ArviZ).")] = "csv",
    out: Annotated[
        Path | None, typer.Option(help="Output file. Default: draws.FORMAT in the folder.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
) -> None:
    """Draw from a fit.

    The draws have the model's names and scale. The model and its data are not needed.

    csv has one column per number, npz one array per parameter. arviz.from_netcdf reads netcdf.

    \b
    Examples: ksivi sample run/ -n 4000
              ksivi sample run/ -n 10000 --format npz --out draws.npz
    """
    import jax

    from ..results import read_record, require_finite

    as_choice(form, "--format", _FORMATS)
    n = as_count(n, "-n")
    require_seed(seed)
    posterior, key = read_record(run).posterior, jax.random.key(seed)
    draws = posterior.draws(key, n)
    require_finite(draws)
    path = run / f"draws.{'nc' if form == 'netcdf' else form}" if out is None else out
    folder(path.parent)
    with replacing(path) as beside:
        if form == "netcdf":
            posterior.to_arviz(key, n).to_netcdf(str(beside))
        else:
            _write(beside, draws, form)
    notes.print(f"{n:,} draws: {path}", highlight=False, markup=False)


def _write(path: Path, draws: dict, form: str) -> None:
    from ..results import named_columns, write_npz

    if form == "npz":
        write_npz(path, draws, "the draws", compress=False)
        return
    columns = named_columns(draws)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(
            [f"{value:.9g}" for value in row] for row in zip(*columns.values(), strict=True)
        )
