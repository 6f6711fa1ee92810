"""SIGTERM, with which clusters and containers announce that they will kill a process."""

import contextlib
import signal
import threading
from collections.abc import Iterator

_EXIT = 128 + signal.SIGTERM


class Terminated(BaseException):
    """SIGTERM came. Not a KeyboardInterrupt, after which callers may go on."""


@contextlib.contextmanager
def heeding_sigterm(heed: bool = True) -> Iterator[None]:
    """Within it SIGTERM ends the work as Ctrl-C does, and then the process, with exit code 143."""
    if not heed or threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_) -> None:
        raise Terminated

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    except Terminated:
        raise SystemExit(_EXIT) from None
    finally:
        signal.signal(signal.SIGTERM, before)
