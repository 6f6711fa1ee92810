"""`ksivi paper run | list | report`."""

from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from ksivi.cli import (
    BAD_INPUT,
    INTERRUPTED,
    ExecutorName,
    Scheduler,
    Workers,
    as_choice,
    folder,
    make_executor,
    notes,
)

app = typer.Typer(
    help="Run the paper's experiments, and write the report from their records.",
    no_args_is_help=True,
)

Out = Annotated[Path, typer.Option(help="Folder of the records, the figures and the report.")]
Preset = Annotated[
    str,
    typer.Option(
        help="paper, or smoke: the same cells with a fraction of the work, and no data needed."
    ),
]
Names = Annotated[
    list[str],
    typer.Argument(
        help="toys, waveform, diffusion, bnn, student-t, smoothness, estimators, or all of these; "
        "and methods: all methods on all problems."
    ),
]


@app.command()
def run(
    experiments: Names,
    preset: Preset = "paper",
    only: Annotated[
        str,
        typer.Option(
            help="Run only cells whose name contains this text, or fits it if it has a *."
        ),
    ] = "",
    without: Annotated[str, typer.Option(help="Skip such cells.")] = "",
    train_only: Annotated[
        bool,
        typer.Option("--train-only", help="Train now, and measure later or on another machine."),
    ] = False,
    measure_only: Annotated[
        bool, typer.Option("--measure-only", help="Measure only what is trained already.")
    ] = False,
    out: Out = Path("results"),
    executor: ExecutorName = "local",
    workers: Workers = None,
    scheduler: Scheduler = None,
) -> None:
    """Run experiments. Finished cells are kept, so the same command continues an interrupted run.

    Data are read from the folder KSIVI_DATA, or downloaded. A cell that cannot run does not stop
    the others: it is listed at the end, and the exit code is 2. With --executor dask, several cells
    run in parallel, and only this process writes records. Without Dask, start the same command
    several times: each process passes over the cells that another one is running.

    \b
    Examples: ksivi paper run all --preset smoke
              ksivi paper run toys --executor dask --workers 4
              ksivi paper run diffusion --only 100-released
              ksivi paper run methods --only 'banana-*'
    """
    import ksivi_paper as paper

    where = make_executor(executor, workers, scheduler)
    cells = _cells(experiments, preset, only, without)
    results = paper.Folder(folder(out / preset))
    notes.print(f"{len(cells)} cells, records in {results.path}", highlight=False)
    halves = {"train": not measure_only, "measure": not train_only}
    try:
        with where:
            done = paper.run_cells(cells, results, **halves, on_end=_print_outcome, executor=where)
    except KeyboardInterrupt:
        notes.print(
            "interrupted: finished cells are kept; run the command again to continue",
            highlight=False,
        )
        raise typer.Exit(INTERRUPTED) from None
    failed = [outcome for outcome in done if outcome.state.startswith("could not run")]
    for outcome in failed:
        notes.print(
            f"{outcome.cell.experiment}/{outcome.cell.name} {outcome.state}",
            style="red",
            markup=False,
        )
    raise typer.Exit(BAD_INPUT if failed else 0)


@app.command(name="list")
def list_cells(preset: Preset = "paper", out: Out = Path("results")) -> None:
    """Show the experiments, the number of finished cells, and the training time."""
    import ksivi_paper as paper

    results = paper.Folder(out / as_choice(preset, "--preset", paper.PRESETS))
    table = Table(box=box.SIMPLE_HEAD)
    for name in ("experiment", "cells", "finished", "training, s"):
        table.add_column(name, justify="left" if name == "experiment" else "right")
    for name, cells in paper.ALL_EXPERIMENTS.items():
        found = [results.record(cell) for cell in cells(preset)]
        seconds = sum(record["seconds"]["training"] for record in found if record)
        table.add_row(
            name, str(len(found)), str(sum(r is not None for r in found)), f"{seconds:,.0f}"
        )
    Console().print(table)


@app.command()
def report(
    out: Out = Path("results"),
    readme: Annotated[
        Path | None, typer.Option(help="A Markdown file whose headline table to update as well.")
    ] = None,
) -> None:
    """Write the tables and figures from the records: OUT/paper.md; OUT/methods.md if there are
    records of the experiment methods; OUT/smoke.md and OUT/smoke-methods.md after a smoke run."""
    import ksivi_paper as paper

    folders = {preset: paper.Folder(out / preset) for preset in paper.PRESETS}
    found = {preset: results for preset, results in folders.items() if results.records()}
    if not found:
        raise ValueError(
            f"--out must contain records, got {out} without any; `ksivi paper run` writes them"
        )
    for preset, results in found.items():
        methods = "methods.md" if preset == "paper" else f"{preset}-methods.md"
        pages = (
            paper.write_report(results, out / f"{preset}.md"),
            paper.write_methods(results, out / methods),
        )
        for page in pages:
            if page is not None:
                notes.print(f"report: {page}", highlight=False)
    if readme is not None:
        if "paper" not in found or not readme.is_file():
            raise ValueError(
                "--readme must be a file, and --out must contain records of the preset paper, "
                f"got {readme} and {out}"
            )
        paper.embed(readme, found["paper"].records())


def _cells(experiments: list[str], preset: str, only: str, without: str) -> list:
    import ksivi_paper as paper

    as_choice(preset, "--preset", paper.PRESETS)
    for name in experiments:
        as_choice(name, "EXPERIMENTS", ("all", *paper.ALL_EXPERIMENTS))
    papers = list(paper.EXPERIMENTS) if "all" in experiments else []
    names = dict.fromkeys([*papers, *(name for name in experiments if name != "all")])
    # Networks are in two experiments.
    found = dict.fromkeys(cell for name in names for cell in paper.ALL_EXPERIMENTS[name](preset))
    cells = [cell for cell in found if _fits(cell.name, only or "*")]
    cells = [cell for cell in cells if not (without and _fits(cell.name, without))]
    if not cells:
        raise ValueError(
            f"--only and --without must leave at least one cell, got {only!r} and {without!r}"
        )
    return cells


def _fits(name: str, pattern: str) -> bool:
    """Whether a name contains a text, or is a pattern of the shell."""
    return fnmatchcase(name, pattern) if set(pattern) & set("*?[") else pattern in name


def _print_outcome(outcome) -> None:
    cell, state = outcome.cell, outcome.state
    notes.print(
        f"{cell.experiment}/{cell.name}: {state}, {outcome.seconds:.1f} s",
        highlight=False,
        markup=False,
    )
