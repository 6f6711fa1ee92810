"""Handles SIGTERM, which clusters and containers send before they kill a process."""

import contextlib
import signal
import threading
from collections.abc import Iterator

_EXIT = 128 + signal.SIGTERM


class Terminated(BaseException):
    """SIGTERM was received. Not a KeyboardInterrupt: callers may continue after that."""


@contextlib.contextmanager
def handle_sigterm(enabled: bool = True) -> Iterator[None]:
    """Inside the block, SIGTERM ends the work as Ctrl-C does, and then exits with code 143."""
    if not enabled or threading.current_thread() is not threading.main_thread():
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
