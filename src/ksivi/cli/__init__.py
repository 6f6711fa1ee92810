"""The command line: `ksivi demo | compare | paper`. Results on stdout, everything else on stderr."""

from typing import Annotated

try:
    import rich
    import typer
except ImportError as error:
    raise SystemExit(f"the ksivi command needs an extra: pip install 'ksivi[cli]' ({error})") from error

from .. import __version__
from .compare import compare
from .demo import demo
from .paper import app as paper
from .shared import BAD_INPUT, fail

__all__ = ["app", "main", "rich"]

app = typer.Typer(
    help="Kernel semi-implicit variational inference: from a log density to posterior draws.",
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(demo)
app.command()(compare)
app.add_typer(paper, name="paper")


def main() -> None:
    """Runs the command line; bad input is one clear line and exit code 2."""
    try:
        app()
    except (ValueError, ImportError) as error:
        fail(error, BAD_INPUT)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"ksivi {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it.")] = False,
) -> None:
    """Kernel semi-implicit variational inference: from a log density to posterior draws."""
