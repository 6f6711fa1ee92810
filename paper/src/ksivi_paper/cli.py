"""`ksivi paper run | list | report`."""

from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from ksivi._core.checks import as_choice
from ksivi.cli import BAD_INPUT, INTERRUPTED, ExecutorName, Scheduler, Workers, chosen_executor, folder, notes

app = typer.Typer(help="Run the paper's experiments, and make the report from their records.", no_args_is_help=True)

Out = Annotated[Path, typer.Option(help="Folder of records, figures and the report.")]
Preset = Annotated[str, typer.Option(help="paper, or smoke: the same at a fraction of the work, without data.")]
Names = Annotated[
    list[str], typer.Argument(help="toys, waveform, diffusion, bnn, student-t, smoothness, estimators; all.")
]


@app.command()
def run(
    experiments: Names,
    preset: Preset = "paper",
    only: Annotated[str, typer.Option(help="Only cells whose name holds this text.")] = "",
    without: Annotated[str, typer.Option(help="No cells whose name holds this text.")] = "",
    train_only: Annotated[bool, typer.Option("--train-only", help="Measure later, perhaps elsewhere.")] = False,
    measure_only: Annotated[bool, typer.Option("--measure-only", help="Measure what is trained already.")] = False,
    out: Out = Path("results"),
    executor: ExecutorName = "local",
    workers: Workers = None,
    scheduler: Scheduler = None,
) -> None:
    """Run experiments. Finished cells are kept, so a run that was stopped goes on where it was.

    Data come from the folder KSIVI_DATA, or are downloaded; a cell whose data cannot be had is named at the end, and
    the exit code is then 2. With --executor dask several cells run at once; this process alone writes their records.

    \b
    Examples: ksivi paper run all --preset smoke
              ksivi paper run toys --executor dask --workers 4
              ksivi paper run diffusion --only 100-released
    """
    import ksivi_paper as paper

    chosen = chosen_executor(executor, workers, scheduler)
    cells = _cells(experiments, preset, only, without)
    place = paper.Folder(folder(out / preset))
    notes.print(f"{len(cells)} cells, records in {place.path}", highlight=False)
    try:
        with chosen:
            done = paper.run(cells, place, train=not measure_only, measure=not train_only, tell=_tell, executor=chosen)
    except KeyboardInterrupt:
        notes.print("interrupted: finished cells are kept, run again to go on", highlight=False)
        raise typer.Exit(INTERRUPTED) from None
    failed = [outcome for outcome in done if outcome.state.startswith("could not run")]
    for outcome in failed:
        notes.print(f"{outcome.cell.experiment}/{outcome.cell.name} {outcome.state}", style="red", markup=False)
    raise typer.Exit(BAD_INPUT if failed else 0)


@app.command(name="list")
def list_cells(preset: Preset = "paper", out: Out = Path("results")) -> None:
    """Show the experiments, how many of their cells are finished, and the time that took."""
    import ksivi_paper as paper

    place = paper.Folder(out / as_choice(preset, "--preset", paper.PRESETS))
    table = Table(box=box.SIMPLE_HEAD)
    for name in ("experiment", "cells", "finished", "training, s"):
        table.add_column(name, justify="left" if name == "experiment" else "right")
    for name, cells in paper.EXPERIMENTS.items():
        found = [place.record(cell) for cell in cells(preset)]
        seconds = sum(record["seconds"]["training"] for record in found if record)
        table.add_row(name, str(len(found)), str(sum(r is not None for r in found)), f"{seconds:,.0f}")
    Console().print(table)


@app.command()
def report(
    out: Out = Path("results"),
    readme: Annotated[Path | None, typer.Option(help="A Markdown file whose headline table to renew as well.")] = None,
) -> None:
    """Make the tables and figures from the records alone: OUT/paper.md, and OUT/smoke.md where there is a smoke run."""
    import ksivi_paper as paper

    places = {preset: paper.Folder(out / preset) for preset in paper.PRESETS}
    found = {preset: place for preset, place in places.items() if place.records()}
    if not found:
        raise ValueError(f"--out must hold records, which `ksivi paper run` makes, and {out} holds none")
    for preset, place in found.items():
        notes.print(f"report: {paper.write_report(place, out / f'{preset}.md')}", highlight=False)
    if readme is not None:
        if "paper" not in found or not readme.is_file():
            raise ValueError(
                f"--readme must be a file, and --out hold records of the paper preset, got {readme}, {out}"
            )
        paper.embed(readme, found["paper"].records())


def _cells(experiments: list[str], preset: str, only: str, without: str) -> list:
    import ksivi_paper as paper

    as_choice(preset, "--preset", paper.PRESETS)
    for name in experiments:
        as_choice(name, "EXPERIMENTS", ("all", *paper.EXPERIMENTS))
    names = list(paper.EXPERIMENTS) if "all" in experiments else experiments
    cells = [cell for name in names for cell in paper.EXPERIMENTS[name](preset)]
    cells = [cell for cell in cells if only in cell.name and not (without and without in cell.name)]
    if not cells:
        raise ValueError(f"--only and --without must leave some cells, got {only!r} and {without!r}")
    return cells


def _tell(outcome) -> None:
    cell, state = outcome.cell, outcome.state
    notes.print(f"{cell.experiment}/{cell.name}: {state}, {outcome.seconds:.1f} s", highlight=False, markup=False)
