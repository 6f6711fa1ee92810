"""The command line: `ksivi demo | compare`. Results on stdout, everything else on stderr."""

import json
import math
import sys
import time
from pathlib import Path
from typing import Annotated

try:
    import typer
    from rich import box
    from rich.console import Console
    from rich.table import Table
except ImportError as error:
    raise SystemExit(f"the ksivi command needs an extra: pip install 'ksivi[cli]' ({error})") from error

import numpy as np

from . import __version__
from ._checks import as_choice, as_count

BAD_INPUT, NOT_TRUSTED, INTERRUPTED = 2, 3, 130

app = typer.Typer(
    help="Kernel semi-implicit variational inference: from a log density to posterior draws.",
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
    pretty_exceptions_enable=False,
)
_notes = Console(stderr=True)


def main() -> None:
    """Runs the command line; bad input is one clear line and exit code 2."""
    try:
        app()
    except (ValueError, ImportError) as error:
        _fail(error, BAD_INPUT)


def _fail(error: Exception, code: int) -> None:
    _notes.print(f"error: {error}", style="bold red", markup=False, highlight=False)
    sys.exit(code)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"ksivi {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it.")] = False,
) -> None:
    """Kernel semi-implicit variational inference: from a log density to posterior draws."""


@app.command()
def demo(
    steps: Annotated[int | None, typer.Option(help="Training steps for each toy; 15,000 unless given.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of all randomness.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder for the figure.")] = Path("demo"),
    target: Annotated[str, typer.Option(help="banana, multimodal, x-shaped, or all.")] = "all",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of the table.")] = False,
) -> None:
    """Fit the paper's three toys, compare with exact draws, and draw them.

    Example: ksivi demo --target banana --steps 5000
    """
    from . import demo as demonstration
    from .report import draws_and_contours
    from .training import ProgressBar

    steps = demonstration.STEPS if steps is None else as_count(steps, "--steps")
    _require_seed(seed)
    as_choice(target, "--target", ("all", *demonstration.TOYS))
    figure = _folder(out) / "toys.png"
    began, shown = time.perf_counter(), []
    for name in demonstration.TOYS if target == "all" else (target,):
        problem = demonstration.TOYS[name]()
        bar = ProgressBar(f"{name:<10}")
        try:
            fit = demonstration.fit_toy(seed, problem, steps, [bar])
        finally:
            bar.close()
        shown.append(demonstration.compare(seed, problem, fit))
        if fit.status.kind == "interrupted":
            break
    draws_and_contours(figure, [(s.problem.name, s.problem.target, s.draws, s.truth) for s in shown])
    if as_json:
        typer.echo(json.dumps(_as_record(shown, figure, time.perf_counter() - began)))
    else:
        Console().print(_as_table(shown))
        _notes.print(f"figure: {figure}   total: {time.perf_counter() - began:.0f} s", highlight=False)
    raise typer.Exit(_exit_code([s.fit.status.kind for s in shown]))


@app.command()
def compare(
    problem: Annotated[
        str,
        typer.Argument(help="banana, multimodal, x-shaped, student-t, waveform, diffusion, or model.py:log_density."),
    ],
    methods: Annotated[str, typer.Option(help="Names separated by commas, or all.")] = "all",
    dim: Annotated[int | None, typer.Option(help="Coordinates of the diffusion, or of your own log density.")] = None,
    data: Annotated[Path | None, typer.Option(help="The authors' waveform.mat, or waveform.data.")] = None,
    preset: Annotated[str, typer.Option(help="short, or paper for the paper's settings.")] = "short",
    seed: Annotated[int, typer.Option(help="Seed of the methods' randomness.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder for the figure.")] = Path("compare"),
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of the table.")] = False,
) -> None:
    """Run methods side by side on a problem, and measure how far their draws are from the truth.

    The truth is an exact sampler where there is one, and otherwise NUTS, whose draws are made once and kept on disk;
    where NUTS cannot vouch for them there is no comparison, and the exit code is 3. A method that fails is a result:
    its status is in the table.

    Methods: ksivi, ksivi-u, sivi, sivi-sm, uivi, svgd, ksdd, mied, sgld, mala, nuts.

    Examples: ksivi compare banana --methods ksivi,sivi,nuts
              ksivi compare diffusion --dim 50 --preset paper
              ksivi compare model.py:log_density --dim 3
    """
    import jax

    from . import comparison
    from .training import ProgressBar

    _require_seed(seed)
    as_choice(preset, "--preset", comparison.PRESETS)
    names = _method_names(methods, comparison.METHODS)
    chosen = _problem(problem, dim, data)
    figure = _folder(out) / f"{_as_file_name(chosen.name)}.png"
    truth_key, key = jax.random.split(jax.random.key(seed))
    bars = {name: ProgressBar(f"{name:<8}") for name in names}
    done: list = []
    interrupted = False
    try:
        truth = comparison.know_truth(truth_key, chosen)
        for result in comparison.compare(key, chosen, truth, names, preset=preset, callbacks=lambda n: [bars[n]]):
            done.append(result)
            bars[result.name].close()
            interrupted = result.status.kind == "interrupted"
    except RuntimeError as error:
        _fail(error, NOT_TRUSTED)
    except KeyboardInterrupt:
        interrupted = True
    finally:
        for bar in bars.values():
            bar.close()
    if done:
        _show_comparison(chosen, truth, done, figure, as_json)
    raise typer.Exit(INTERRUPTED if interrupted else 0)


def _show_comparison(problem, truth, done: list, figure: Path, as_json: bool) -> None:
    from .report import methods_and_truth

    panels = [(f"{r.name}  {r.sliced_wasserstein:.3g}", r.draws) for r in done if r.draws is not None]
    if panels:
        methods_and_truth(figure, problem.target, np.asarray(truth.blocks[0]), panels)
    if as_json:
        typer.echo(json.dumps(_comparison_record(problem.name, truth, done)))
        return
    Console().print(_comparison_table(problem.name, truth, done))
    for result in (r for r in done if r.status.kind not in ("step limit", "converged")):
        _notes.print(f"{result.name}: {result.status}", highlight=False, markup=False)
    _notes.print(f"figure: {figure}", highlight=False)


def _require_seed(seed: int) -> None:
    if as_count(seed, "--seed", minimum=0) >= 2**31:
        raise ValueError(f"--seed must be less than 2**31, got {seed}")


def _method_names(methods: str, known: tuple[str, ...]) -> list[str]:
    names = list(known) if methods == "all" else [name.strip() for name in methods.split(",")]
    for name in names:
        as_choice(name, "--methods", known)
    return list(dict.fromkeys(names))


def _problem(name: str, dim: int | None, data: Path | None):
    from . import problems

    fixed = {
        "banana": problems.banana,
        "multimodal": problems.multimodal,
        "x-shaped": problems.x_shaped,
        "student-t": problems.student_t,
        "waveform": lambda: problems.waveform(data),
    }
    if data is not None and name != "waveform":
        raise ValueError(f"--data is for waveform alone, got {data} for {name}")
    if name in fixed:
        if dim is not None:
            raise ValueError(f"--dim is for diffusion or your own log density, got {dim} for {name}")
        return fixed[name]()
    if name == "diffusion":
        return problems.diffusion(100 if dim is None else as_count(dim, "--dim", minimum=5))
    if ":" not in name:
        known = ", ".join([*fixed, "diffusion"])
        raise ValueError(f"PROBLEM must be one of {known}, or FILE.py:FUNCTION, got {name!r}")
    if dim is None:
        raise ValueError(f"--dim must say how many coordinates {name} takes, got none")
    return problems.from_file(name, as_count(dim, "--dim"))


def _as_file_name(name: str) -> str:
    return "".join(c if c.isalnum() or c in "-_" else "-" for c in Path(name).name)


def _comparison_table(problem: str, truth, done: list) -> Table:
    title = f"{problem}: sliced W₂ to the truth\n(floor, truth against truth: {truth.floor:.3g} ± {truth.floor_sd:.1g})"
    table = Table(title=title, box=box.SIMPLE_HEAD, padding=(0, 1))
    table.add_column("method", no_wrap=True)
    for name in ("sliced W₂", "/ floor", "s", "steps", "score evals"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("status", no_wrap=True)
    for r in done:
        cost, distance = r.cost, r.sliced_wasserstein
        numbers = [f"{distance:.3g}", f"{distance / truth.floor:.1f}", f"{cost.seconds:.1f}"]
        table.add_row(r.name, *numbers, f"{cost.steps:,}", f"{cost.score_evals:,}", r.status.kind)
    return table


def _comparison_record(problem: str, truth, done: list) -> dict:
    methods = {
        r.name: {
            "status": str(r.status),
            "sliced_wasserstein": r.sliced_wasserstein if math.isfinite(r.sliced_wasserstein) else None,
            "seconds": r.cost.seconds,
            "steps": r.cost.steps,
            "score_evals": r.cost.score_evals,
        }
        for r in done
    }
    return {"problem": problem, "floor": truth.floor, "methods": methods}


def _folder(out: Path) -> Path:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"--out must be a folder that can be written, got {out}: {error.strerror}") from error
    return out


def _as_table(shown: list) -> Table:
    title = "KSIVI on the paper's toys (floor: exact draws against exact draws)"
    table = Table(title=title, box=box.SIMPLE_HEAD, padding=(0, 1))
    table.add_column("problem", no_wrap=True)
    for name in ("KL(q‖p)", "MMD", "floor", "sliced W₂", "floor", "s"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("status", no_wrap=True)
    for s in shown:
        numbers = [f"{value:.3f}" for value in s.distances.values()]
        table.add_row(s.problem.name, *numbers, f"{s.fit.cost.seconds:.1f}", s.fit.status.kind)
    return table


def _as_record(shown: list, figure: Path, seconds: float) -> dict:
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
