"""The command line, a file a command. Results on stdout, everything else on stderr."""

from importlib.metadata import entry_points
from typing import Annotated

try:
    import rich
    import typer
except ImportError as error:
    raise SystemExit(f"the ksivi command needs an extra: pip install 'ksivi[cli]' ({error})") from error

from .. import __version__
from ._calibrate import calibrate
from ._compare import compare
from ._demo import demo
from ._executors import ExecutorName as ExecutorName
from ._executors import Scheduler as Scheduler
from ._executors import Workers as Workers
from ._executors import chosen_executor as chosen_executor
from ._fit import fit
from ._report import report
from ._resume import resume
from ._sample import sample
from ._shared import BAD_INPUT as BAD_INPUT
from ._shared import INTERRUPTED as INTERRUPTED
from ._shared import fail as fail
from ._shared import folder as folder
from ._shared import notes as notes

__all__ = ["app", "main", "rich"]

_HELP = """From a log density or a model to posterior draws, by kernel semi-implicit variational inference.

\b
Examples: ksivi fit model.py:log_density --dim 3
          ksivi fit model.py:model --data data.csv --out run/
          ksivi sample run/ -n 4000 --format csv
          ksivi report run/
          ksivi demo
"""

app = typer.Typer(
    help=_HELP,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
for command in (fit, resume, sample, report, calibrate, demo, compare):
    app.command()(command)
for plugin in entry_points(group="ksivi.commands"):
    app.add_typer(plugin.load(), name=plugin.name)


def main() -> None:
    """Runs the command line; bad input is one clear line and exit code 2."""
    try:
        app()
    except (ValueError, ImportError, OSError, MemoryError, OverflowError) as error:
        fail(error, BAD_INPUT)
    except RuntimeError as error:  # of JAX, where memory runs out
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        fail(error, BAD_INPUT)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"ksivi {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it.")] = False,
) -> None:
    """Options before any command."""
