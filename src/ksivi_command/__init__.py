"""The command `ksivi`, from the first moment on.

Importing ksivi takes seconds, and its dependencies turn Ctrl-C into errors of their own meanwhile.
So this package stands beside ksivi, and Ctrl-C ends the process at once until ksivi is imported.
"""

import os
import signal

_INTERRUPTED = 130


def main() -> None:
    """Imports ksivi and runs its command line."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, lambda *_: os._exit(_INTERRUPTED))
    from ksivi.cli import main as run

    try:
        signal.signal(signal.SIGINT, before)
        run()
    except KeyboardInterrupt:
        os._exit(_INTERRUPTED)
