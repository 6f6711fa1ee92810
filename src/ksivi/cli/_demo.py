"""`ksivi demo`."""

import json
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from .._core.checks import as_choice, as_count
from ._outputs import replacing
from ._shared import INTERRUPTED, NOT_TRUSTED, folder, notes, require_seed

_CHOICES = ("banana", "multimodal", "x-shaped", "two-lines", "eight-schools", "eight-gaussians")
_HARD: dict[str, tuple[str, tuple[str, str], tuple[int, int]]] = {
    "two-lines": ("Two lines", ("intercept", "slope"), (0, 1)),
    "eight-schools": ("Eight schools", ("effect of school 1", "log τ"), (2, 1)),
    "eight-gaussians": ("Eight modes", ("x₁", "x₂"), (0, 1)),
}
"""For each hard problem: its title, and the names and places of the two coordinates that are shown."""


def demo(
    steps: Annotated[
        int | None, typer.Option(help="Training steps for each toy problem. Default: 15,000.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder for the figures.")] = Path("demo"),
    target: Annotated[str, typer.Option(help=f"{', '.join(_CHOICES)}, or all.")] = "all",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object instead of the tables.")
    ] = False,
) -> None:
    """Compare fit with NUTS and ADVI where these fail, and train KSIVI on the paper's toys.

    \b
    Example: ksivi demo --target banana --steps 5000
    """
    steps = None if steps is None else as_count(steps, "--steps")
    require_seed(seed)
    as_choice(target, "--target", ("all", *_CHOICES))
    out, began = folder(out), time.perf_counter()
    names = _CHOICES if target == "all" else (target,)
    beside = _confront([name for name in names if name in _HARD], seed)
    toys = [] if _interrupted(beside, []) else _train(names, seed, steps)
    figures = _draw(out, beside, toys)
    seconds = time.perf_counter() - began
    if as_json:
        typer.echo(json.dumps(_as_json(beside, toys, figures, seconds)))
    else:
        for table in [_beside_table(beside)] * bool(beside) + [_toys_table(toys)] * bool(toys):
            Console().print(table)
        shown = ", ".join(map(str, figures.values()))
        notes.print(f"figures: {shown}   total: {seconds:.0f} s", highlight=False, soft_wrap=True)
    raise typer.Exit(_exit_code(beside, toys))


def _confront(names: list[str], seed: int) -> list:
    """The hard problems, one after another; no more after an interrupt."""
    from ..comparison import confront

    found: list[Any] = []
    for name in names:
        notes.print(f"{name}: ksivi.fit, NUTS, ADVI …", highlight=False)
        found.append(confront(name, seed))
        if _interrupted(found, []):
            break
    return found


def _train(names: tuple[str, ...], seed: int, steps: int | None) -> list:
    """The paper's toys; no more after an interrupt."""
    from ..comparison import DEMO_PROBLEMS, demonstrate
    from ..training import ProgressBar

    found: list[Any] = []
    for name in [name for name in names if name in DEMO_PROBLEMS]:
        bar = ProgressBar(f"{name:<10}")
        try:
            found.append(demonstrate(name, seed, steps, [bar]))
        finally:
            bar.close()
        if _interrupted([], found):
            break
    return found


def _draw(out: Path, beside: list, toys: list) -> dict[str, Path]:
    """The figures of what was run, by their names in the JSON object."""
    from ..report import answers_and_truth, draws_and_contours

    figures = {}
    if beside:
        figures["comparison"] = out / "fit-nuts-advi.png"
        with replacing(figures["comparison"]) as path:
            answers_and_truth(path, _methods(), [_column(one) for one in beside])
    if toys:
        figures["figure"] = out / "toys.png"
        with replacing(figures["figure"]) as path:
            draws_and_contours(
                path, [(s.problem.name, s.problem.target, s.draws, s.truth) for s in toys]
            )
    return figures


def _methods() -> list[tuple[str, str]]:
    from ..comparison import SETTINGS

    return list(SETTINGS.items())


def _column(confrontation: Any) -> Any:
    """A column of the figure: two coordinates of each answer."""
    from ..report import AnswerPanel, PosteriorColumn

    title, names, at = _HARD[confrontation.name]
    panels = [
        AnswerPanel(one.draws[:, list(at)], one.right, one.warns, one.says)
        for one in confrontation.answers
    ]
    return PosteriorColumn(title, names, confrontation.truth[:, list(at)], panels)


def _beside_table(beside: list) -> Table:
    title = "fit, NUTS and ADVI (distance: sliced W₂ to exact draws; exact draws have 1)"
    table = Table(title=title, box=box.SIMPLE_HEAD, padding=(0, 1))
    for name in ("", "distance", "s", "right", "what it says"):
        justify: Any = "right" if name in ("distance", "s") else "left"
        table.add_column(name, justify=justify, no_wrap=True)
    for one in beside:
        table.add_row(one.name, style="bold")
        for answer in one.answers:
            numbers = (f"{answer.distance:.1f}", f"{answer.seconds:.1f}")
            right = "yes" if answer.right else "no" if answer.warns else "no, silent"
            table.add_row(f"  {answer.method}", *numbers, right, answer.says)
    table.caption = "\n".join(f"{name}: {settings}" for name, settings in _methods())
    return table


def _toys_table(toys: list) -> Table:
    title = "KSIVI on the paper's toy problems (floor: exact draws against exact draws)"
    table = Table(title=title, box=box.SIMPLE_HEAD, padding=(0, 1))
    table.add_column("problem", no_wrap=True)
    for name in ("KL(q‖p)", "MMD", "floor", "sliced W₂", "floor", "s"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("status", no_wrap=True)
    for s in toys:
        numbers = [f"{value:.3f}" for value in s.distances.values()]
        table.add_row(s.problem.name, *numbers, f"{s.fit.cost.seconds:.1f}", s.fit.status.kind)
    return table


def _as_json(beside: list, toys: list, figures: dict[str, Path], seconds: float) -> dict:
    runs = {
        s.problem.name: {
            "status": str(s.fit.status),
            **s.distances,
            "seconds": s.fit.cost.seconds,
            "steps": s.fit.cost.steps,
            "score_evals": s.fit.cost.score_evals,
        }
        for s in toys
    }
    found = {one.name: {a.method: _answer(a) for a in one.answers} for one in beside}
    paths = {name: str(path) for name, path in figures.items()}
    return {"beside": found, "problems": runs, **paths, "seconds": seconds}


def _answer(answer: Any) -> dict:
    names = ("distance", "right", "warns", "says", "seconds")
    return {name: getattr(answer, name) for name in names}


def _interrupted(beside: list, toys: list) -> bool:
    kinds = [answer.kind for one in beside for answer in one.answers]
    return "interrupted" in [*kinds, *(s.fit.status.kind for s in toys)]


def _exit_code(beside: list, toys: list) -> int:
    """NUTS and ADVI are expected to fail here; the fits are not."""
    if _interrupted(beside, toys):
        return INTERRUPTED
    kinds = {one.answers[0].kind for one in beside} | {s.fit.status.kind for s in toys}
    return NOT_TRUSTED if {"diverged", "not trusted"} & kinds else 0
