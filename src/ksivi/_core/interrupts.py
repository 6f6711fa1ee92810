"""Ctrl-C: noticed where other code handles or loses it, and held back while results are written."""

import _thread
import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from typing import Any

_AGAIN_S = 0.05


class Interrupts:
    """Whether Ctrl-C was pressed in a block.

    **Attributes:**

    - `seen`: whether it was pressed.
    """

    def __init__(self) -> None:
        self.seen = False
        self._is_held = False

    @contextlib.contextmanager
    def noticed(self) -> Iterator["Interrupts"]:
        """Notices Ctrl-C inside the block. It raises `KeyboardInterrupt` as before.

        Python ignores exceptions in callbacks of the garbage collector and of weak references, and
        JAX has both. A Ctrl-C that is lost there is raised again a moment later.
        """
        before, hook = signal.getsignal(signal.SIGINT), sys.unraisablehook
        if not callable(before) or threading.current_thread() is not threading.main_thread():
            yield self
            return

        def notice(number: int, frame: Any) -> None:
            self.seen = True
            if not self._is_held:
                before(number, frame)

        def raise_again(lost: Any) -> None:
            if issubclass(lost.exc_type, KeyboardInterrupt):
                threading.Timer(_AGAIN_S, _interrupt_main_thread).start()
            else:
                hook(lost)

        signal.signal(signal.SIGINT, notice)
        sys.unraisablehook = raise_again
        try:
            yield self
        finally:
            sys.unraisablehook = hook
            signal.signal(signal.SIGINT, before)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Inside the block, Ctrl-C is noticed and raises nothing."""
        self._is_held = True
        try:
            yield
        finally:
            self._is_held = False


def _interrupt_main_thread() -> None:
    main = threading.main_thread().ident
    if hasattr(signal, "pthread_kill") and main is not None:
        signal.pthread_kill(main, signal.SIGINT)
    else:  # Windows
        _thread.interrupt_main()
