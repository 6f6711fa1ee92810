"""Ctrl-C: noticed where other code handles or loses it, held back while results are written, and exit code 130.

`KSIVI_INTERRUPTS=40 pytest tests/test_interrupts.py -m slow` interrupts 40 fits in a terminal. The default is five.
"""

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from ksivi._core.interrupts import Interrupts

COUNT = int(os.environ.get("KSIVI_INTERRUPTS", "5"))


def press_ctrl_c():
    signal.raise_signal(signal.SIGINT)


def test_ctrl_c_is_noticed_where_other_code_handles_it():
    with Interrupts().noticed() as interrupts:
        assert not interrupts.seen
        with pytest.raises(KeyboardInterrupt):
            press_ctrl_c()
    assert interrupts.seen
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_one_block_inside_another_tells_both():
    with Interrupts().noticed() as outer, Interrupts().noticed() as inner:
        with pytest.raises(KeyboardInterrupt):
            press_ctrl_c()
        assert outer.seen
        assert inner.seen


def test_ctrl_c_that_python_loses_in_a_callback_is_raised_again(monkeypatch, capsys):
    """Python ignores exceptions in callbacks of the garbage collector; JAX has one."""
    pressed = []

    def callback(phase, info):
        if not pressed:
            pressed.append(phase)
            press_ctrl_c()

    monkeypatch.setattr(sys, "unraisablehook", sys.__unraisablehook__)
    hook = sys.unraisablehook
    with Interrupts().noticed() as interrupts:
        gc.callbacks.append(callback)
        try:
            with pytest.raises(KeyboardInterrupt):  # noqa: PT012
                gc.collect()
                time.sleep(10)
        finally:
            gc.callbacks.remove(callback)
    assert pressed
    assert interrupts.seen
    assert sys.unraisablehook is hook
    assert capsys.readouterr().err == ""


def test_other_exceptions_that_python_ignores_are_shown_as_before(monkeypatch):
    shown = []
    monkeypatch.setattr(sys, "unraisablehook", shown.append)

    class Failing:
        def __del__(self):
            raise OSError("not a Ctrl-C")

    with Interrupts().noticed():
        Failing()
    assert [one.exc_type for one in shown] == [OSError]


def test_ctrl_c_is_held_back():
    with Interrupts().noticed() as interrupts:
        with interrupts.held():
            press_ctrl_c()
        assert interrupts.seen
        with pytest.raises(KeyboardInterrupt):
            press_ctrl_c()


def test_other_threads_and_ignored_signals_are_left_alone():
    found = []
    thread = threading.Thread(target=lambda: found.append(Interrupts().noticed().__enter__()))
    thread.start()
    thread.join()
    assert not found[0].seen
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with Interrupts().noticed() as interrupts:
            press_ctrl_c()
        assert not interrupts.seen
    finally:
        signal.signal(signal.SIGINT, before)


def test_an_interrupted_command_leaves_without_the_interpreters_end():
    """Its programs may still run on threads of XLA. What was printed is there, and nothing runs at exit."""
    code = (
        "import atexit, os, signal, sys, ksivi.cli as cli\n"
        "atexit.register(print, 'at exit')\n"
        "def work():\n    print('printed', end='')\n    signal.raise_signal(signal.SIGINT)\n"
        "cli.app = work\ncli.main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "printed", "")


@pytest.mark.slow
def test_interrupted_fits_exit_with_130():
    command = [
        sys.executable,
        "-m",
        "benchmarks.interrupts",
        "--steps",
        "300",
        "--count",
        f"{COUNT}",
    ]
    root = Path(__file__).parents[1]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
