"""The command line: one file per command. Results go to stdout, everything else to stderr.

Another package adds a command with an entry point in the group `ksivi.commands` that names a
`typer.Typer`:

```toml
[project.entry-points."ksivi.commands"]
paper = "ksivi_paper.cli:app"
```
"""

import atexit
import os
import signal
from importlib.metadata import entry_points
from typing import Annotated

try:
    import rich  # noqa: F401
    import typer
except ImportError as error:
    raise SystemExit(
        f"the ksivi command needs an extra: pip install 'ksivi[cli]' ({error})"
    ) from error

from .._core.checks import as_choice as as_choice
from .._core.version import __version__
from ._calibrate import calibrate
from ._compare import compare
from ._demo import demo
from ._executors import ExecutorName as ExecutorName
from ._executors import Scheduler as Scheduler
from ._executors import Workers as Workers
from ._executors import make_executor as make_executor
from ._fit import fit
from ._report import report
from ._resume import resume
from ._sample import sample
from ._shared import BAD_INPUT as BAD_INPUT
from ._shared import INTERRUPTED as INTERRUPTED
from ._shared import NOT_SAVED, TERMINATED, interrupts, leave
from ._shared import fail as fail
from ._shared import folder as folder
from ._shared import notes as notes

__all__ = ["app", "main"]

_HELP = """Posterior draws from a log density or a model, by semi-implicit variational inference.

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
for _command in (fit, resume, sample, report, calibrate, demo, compare):
    app.command()(_command)


def _add_plugins() -> None:
    """Adds the commands of other packages.

    One that cannot be imported costs a line on stderr, and nothing else.
    """
    for plugin in entry_points(group="ksivi.commands"):
        try:
            command = plugin.load()
            if not isinstance(command, typer.Typer):
                raise TypeError(f"expected a typer.Typer, got {command!r}")
            app.add_typer(command, name=plugin.name)
        except Exception as error:
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            message = f"the command {plugin.name} ({plugin.value}) could not be loaded: {reason}"
            notes.print(message, markup=False, highlight=False, soft_wrap=True)


_add_plugins()


def main() -> None:
    """Runs the command line. Bad input gives one clear line and the exit code 2.

    Ctrl-C gives the exit code 130, also where the command could finish its work.
    """
    try:
        with interrupts.noticed():
            _run()
    except BaseException as error:
        code = error.code if isinstance(error, SystemExit) else None
        if code == TERMINATED or interrupts.seen:
            leave(code if code in (NOT_SAVED, TERMINATED) else INTERRUPTED)
        # From here on there is nothing to save: Ctrl-C may end the process as it is.
        atexit.register(signal.signal, signal.SIGINT, signal.SIG_DFL)
        raise


def _run() -> None:
    try:
        app()
    except (ValueError, ImportError, OSError, MemoryError, OverflowError) as error:
        fail(error, BAD_INPUT)
    except RuntimeError as error:  # from JAX, when memory is exhausted
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        fail(error, BAD_INPUT)
    except AssertionError as error:  # from JAX, when the device of JAX_PLATFORMS is not there
        if "JAX_PLATFORMS" not in os.environ:
            raise
        asked = os.environ["JAX_PLATFORMS"]
        fail(ValueError(f"JAX_PLATFORMS={asked} has no device here: {error}"), BAD_INPUT)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"ksivi {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Options before any command."""
