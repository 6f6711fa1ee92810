"""`ksivi demo`."""

import json
import time
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from .._core.checks import as_choice, as_count
from ._outputs import replacing
from ._shared import INTERRUPTED, NOT_TRUSTED, folder, notes, require_seed


def demo(
    steps: Annotated[
        int | None, typer.Option(help="Training steps for each problem. Default: 15,000.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder for the figure.")] = Path("demo"),
    target: Annotated[str, typer.Option(help="banana, multimodal, x-shaped, or all.")] = "all",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object instead of the table.")
    ] = False,
) -> None:
    """Fit the paper's three toy problems, compare the draws with exact draws, and plot them.

    \b
    Example: ksivi demo --target banana --steps 5000
    """
    from ..comparison import DEMO_PROBLEMS, demonstrate
    from ..report import draws_and_contours
    from ..training import ProgressBar

    steps = None if steps is None else as_count(steps, "--steps")
    require_seed(seed)
    as_choice(target, "--target", ("all", *DEMO_PROBLEMS))
    figure = folder(out) / "toys.png"
    began, shown = time.perf_counter(), []
    for name in DEMO_PROBLEMS if target == "all" else (target,):
        bar = ProgressBar(f"{name:<10}")
        try:
            shown.append(demonstrate(name, seed, steps, [bar]))
        finally:
            bar.close()
        if shown[-1].fit.status.kind == "interrupted":
            break
    with replacing(figure) as beside:
        draws_and_contours(
            beside, [(s.problem.name, s.problem.target, s.draws, s.truth) for s in shown]
        )
    if as_json:
        typer.echo(json.dumps(_as_json(shown, figure, time.perf_counter() - began)))
    else:
        Console().print(_as_table(shown))
        notes.print(
            f"figure: {figure}   total: {time.perf_counter() - began:.0f} s", highlight=False
        )
    raise typer.Exit(_exit_code([s.fit.status.kind for s in shown]))


def _as_table(shown: list) -> Table:
    title = "KSIVI on the paper's toy problems (floor: exact draws against exact draws)"
    table = Table(title=title, box=box.SIMPLE_HEAD, padding=(0, 1))
    table.add_column("problem", no_wrap=True)
    for name in ("KL(q‖p)", "MMD", "floor", "sliced W₂", "floor", "s"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("status", no_wrap=True)
    for s in shown:
        numbers = [f"{value:.3f}" for value in s.distances.values()]
        table.add_row(s.problem.name, *numbers, f"{s.fit.cost.seconds:.1f}", s.fit.status.kind)
    return table


def _as_json(shown: list, figure: Path, seconds: float) -> dict:
    runs = {
        s.problem.name: {
            "status": str(s.fit.status),
            **s.distances,
            "seconds": s.fit.cost.seconds,
            "steps": s.fit.cost.steps,
            "score_evals": s.fit.cost.score_evals,
        }
        for s in shown
    }
    return {"problems": runs, "figure": str(figure), "seconds": seconds}


def _exit_code(kinds: list[str]) -> int:
    if "interrupted" in kinds:
        return INTERRUPTED
    return NOT_TRUSTED if {"diverged", "not trusted"} & set(kinds) else 0
