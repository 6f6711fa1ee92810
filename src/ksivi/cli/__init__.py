"""The command line, a file a command. Results on stdout, everything else on stderr."""

from typing import Annotated

try:
    import rich
    import typer
except ImportError as error:
    raise SystemExit(f"the ksivi command needs an extra: pip install 'ksivi[cli]' ({error})") from error

from .. import __version__
from .calibrate import calibrate
from .compare import compare
from .demo import demo
from .fit import fit
from .paper import app as paper
from .report import report
from .resume import resume
from .sample import sample
from .shared import BAD_INPUT, fail

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
app.add_typer(paper, name="paper")


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
