"""`ksivi compare`."""

import json
import math
from pathlib import Path
from typing import Annotated, Any, TypedDict

import numpy as np
import typer
from rich import box
from rich.console import Console
from rich.table import Table

from .._core.checks import as_choice, as_count
from .._core.files import UNREADABLE, read_bytes, read_json, write_atomically
from .._core.schema import conform
from ..executors import send_modules_of
from ._executors import ExecutorName, Scheduler, Workers, make_executor
from ._outputs import replacing
from ._shared import INTERRUPTED, NOT_TRUSTED, fail, folder, notes, require_seed

_PNG, _MOST_IMAGE = b"\x89PNG\r\n\x1a\n", 2**26


def compare(
    problem: Annotated[
        str,
        typer.Argument(
            help="banana, multimodal, x-shaped, student-t, eight-gaussians, waveform, diffusion, or "
            "model.py:log_density."
        ),
    ],
    methods: Annotated[
        str, typer.Option(help="Names of methods, separated by commas, or all.")
    ] = "all",
    dim: Annotated[
        int | None, typer.Option(help="Dimension of the diffusion, or of your own log density.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="The authors' waveform.mat, or waveform.data.")
    ] = None,
    preset: Annotated[
        str, typer.Option(help="short, demo, or paper for the paper's settings.")
    ] = "short",
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder for the figure and the numbers.")] = Path(
        "compare"
    ),
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object instead of the table.")
    ] = False,
    executor: ExecutorName = "local",
    workers: Workers = None,
    scheduler: Scheduler = None,
) -> None:
    """Run several methods on one problem, and measure the distance of their draws to the truth.

    The truth comes from an exact sampler, if there is one, and otherwise from NUTS, whose draws are
    cached on disk. If the draws of NUTS fail its checks, there is no comparison, and the exit code
    is 3. A method that fails is a result: the table shows its status.

    Methods: ksivi, ksivi-u, sivi, sivi-sm, uivi, svgd, ksdd, mied, sgld, mala, nuts, kpg, kpg-is,
    amortized-svgd, denoised-score, ksivi-stein, ksivi-combined, pvi, aisivi,
    ksivi-robust.

    \b
    Examples: ksivi compare banana --methods ksivi,sivi,nuts
              ksivi compare diffusion --dim 50 --preset paper
              ksivi compare waveform --executor dask --workers 4
              ksivi compare model.py:log_density --dim 3
    """
    import jax

    from .. import comparison

    require_seed(seed)
    where = make_executor(executor, workers, scheduler)
    as_choice(preset, "--preset", comparison.PRESETS)
    names = _method_names(methods, comparison.METHODS)
    chosen = _problem(problem, dim, data)
    if executor == "dask" and ":" in problem:
        send_modules_of(Path(problem.rpartition(":")[0]).parent)
    figure = folder(out) / f"{_as_file_name(chosen.name)}.png"
    truth_key, key = jax.random.split(jax.random.key(seed))
    bars = _bars(names)
    done: list = []
    interrupted = False
    try:
        with where:
            truth = comparison.know_truth(truth_key, chosen)
            watch = lambda name: [bars[name]]  # noqa: E731
            options: dict[str, Any] = {"preset": preset, "callbacks": watch, "executor": where}
            for result in comparison.compare(key, chosen, truth, names, **options):
                done.append(result)
                interrupted = result.status.kind == "interrupted"
    except RuntimeError as error:
        fail(error, NOT_TRUSTED)
    except KeyboardInterrupt:
        interrupted = True
    finally:
        bars[names[0]].close()
    if done:
        done.sort(key=lambda result: names.index(result.name))
        _show(chosen, truth, done, figure, as_json)
    raise typer.Exit(INTERRUPTED if interrupted else 0)


def _bars(names: list[str]) -> dict:
    """One progress bar per method, all on one display."""
    from ..training import ProgressBar

    width = max(8, *map(len, names))
    first = ProgressBar(f"{names[0]:<{width}}")
    return {
        names[0]: first,
        **{name: ProgressBar(f"{name:<{width}}", beside=first) for name in names[1:]},
    }


def _show(problem, truth, done: list, figure: Path, as_json: bool) -> None:
    from ..report import methods_and_truth

    panels = [
        (f"{r.name}  {r.sliced_wasserstein:.3g}", r.draws) for r in done if r.draws is not None
    ]
    if panels:
        with replacing(figure) as beside:
            methods_and_truth(beside, problem.target, np.asarray(truth.blocks[0]), panels)
    found = _as_json(problem.name, truth, done)
    content = (json.dumps(found, indent=2) + "\n").encode()
    write_atomically(figure.with_suffix(".json"), content)
    if as_json:
        typer.echo(json.dumps(found))
        return
    Console().print(_as_table(problem.name, truth, done))
    for result in (r for r in done if r.status.kind not in ("step limit", "converged")):
        notes.print(f"{result.name}: {result.status}", highlight=False, markup=False)
    notes.print(f"figure: {figure}", highlight=False)


class _Method(TypedDict):
    status: str
    sliced_wasserstein: float | None
    seconds: float
    steps: int
    score_evals: int


class Comparison(TypedDict):
    """The numbers of a comparison, as its JSON file holds them."""

    problem: str
    floor: float
    methods: dict[str, _Method]


def newest_comparison(place: Path) -> Path | None:
    """The newest comparison in a folder, or None if the folder has none or a newer fit."""
    for path in sorted(place.glob("*.json"), key=lambda path: -path.lstat().st_mtime):
        try:
            record = read_json(path)
        except (OSError, ValueError):
            continue
        if isinstance(record, dict) and "format" in record:
            return None
        if isinstance(record, dict) and {"problem", "floor", "methods"} <= set(record):
            return path
    return None


def read_comparison(path: Path) -> tuple[Comparison, bytes | None]:
    """The numbers of a comparison, and its figure. Raises a `ValueError` if they are damaged."""
    figure = path.with_suffix(".png")
    try:
        found = conform(read_json(path), Comparison, "the comparison")
        image = read_bytes(figure, _MOST_IMAGE) if figure.is_file() else None
    except UNREADABLE as error:
        raise ValueError(f"{path} holds a damaged comparison: {error}") from error
    # A link could show the user's own secrets on a page that is passed on; no image does.
    return found, image if image is not None and image.startswith(_PNG) else None


def _method_names(methods: str, known: tuple[str, ...]) -> list[str]:
    names = list(known) if methods == "all" else [name.strip() for name in methods.split(",")]
    for name in names:
        as_choice(name, "--methods", known)
    return list(dict.fromkeys(names))


def _problem(name: str, dim: int | None, data: Path | None):
    from .. import problems

    if data is not None and name != "waveform":
        raise ValueError(f"--data is only for waveform, got {data} for {name}")
    if name == "diffusion":
        return problems.diffusion(100 if dim is None else as_count(dim, "--dim", minimum=5))
    if name in problems.BY_NAME:
        if dim is not None:
            raise ValueError(
                f"--dim is for diffusion or your own log density, got {dim} for {name}"
            )
        return problems.waveform(data) if name == "waveform" else problems.BY_NAME[name]()
    if ":" not in name:
        known = ", ".join(problems.BY_NAME)
        raise ValueError(f"PROBLEM must be one of {known}, or FILE.py:FUNCTION, got {name!r}")
    if dim is None:
        raise ValueError(f"--dim must be the dimension of {name}, got none")
    return problems.from_file(name, as_count(dim, "--dim"))


def _as_file_name(name: str) -> str:
    return "".join(c if c.isalnum() or c in "-_" else "-" for c in Path(name).name)


def _as_table(problem: str, truth, done: list) -> Table:
    floor = f"floor, truth against truth: {truth.floor:.3g} ± {truth.floor_sd:.1g}"
    title = f"{problem}: sliced W₂ to the truth\n({floor})"
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


def _as_json(problem: str, truth, done: list) -> dict:
    methods = {
        r.name: {
            "status": str(r.status),
            "sliced_wasserstein": r.sliced_wasserstein
            if math.isfinite(r.sliced_wasserstein)
            else None,
            "seconds": r.cost.seconds,
            "steps": r.cost.steps,
            "score_evals": r.cost.score_evals,
        }
        for r in done
    }
    return {"problem": problem, "floor": truth.floor, "methods": methods}
