"""The page of `ksivi fit --live` under connections that stay open, and errors of the page: the fit goes on."""

import contextlib
import json
import re
import socket
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request

import pytest

from ksivi.training import Chunk

pytest.importorskip("typer")
from ksivi.cli import _live

MODEL = """
import jax.numpy as jnp

def log_density(x):
    return -0.5 * jnp.sum((x - 2.0) ** 2)
"""


def address_in(text):
    return re.search(r"http://127\.0\.0\.1:\d+/\S+/", text)[0]


def connected(address, count):
    where = urllib.parse.urlsplit(address)
    return [socket.create_connection((where.hostname, where.port), 10) for _ in range(count)]


def is_closed(connection, within_s):
    """Whether the other side closes the connection in time."""
    connection.settimeout(within_s)
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False


def test_idle_connections_are_few_and_end(capsys, monkeypatch):
    monkeypatch.setattr(_live, "_LONGEST_S", 4.0)
    before = threading.active_count()
    with _live.serving("m.py:f"):
        address = address_in(capsys.readouterr().err)
        idle = connected(address, 60)
        assert sum(is_closed(one, 2) for one in idle[-20:]) == 20
        assert threading.active_count() <= before + 1 + 2 * _live._MOST_CONNECTIONS
        assert all(is_closed(one, 10) for one in idle)
        assert b"Searching" in urllib.request.urlopen(address, timeout=10).read()
    for one in idle:
        one.close()


def test_a_connection_that_sends_a_byte_now_and_then_ends_too(capsys, monkeypatch):
    monkeypatch.setattr(_live, "_LONGEST_S", 1.0)
    with _live.serving("m.py:f"):
        (slow,) = connected(address_in(capsys.readouterr().err), 1)
        until = time.monotonic() + 10
        while time.monotonic() < until and not is_closed(slow, 0.1):
            slow.send(b"G")
        assert time.monotonic() < until
        slow.close()


def test_errors_of_the_page_do_not_reach_the_fit(capsys):
    with _live.serving("\udcff.py:f") as watch:
        address = address_in(capsys.readouterr().err)
        for loss in (float("nan"), float("inf"), None):
            watch(Chunk(100, 400, loss, 2.0, 50.0, list))
        assert urllib.request.urlopen(address, timeout=10).status == 200
        watch.finish("not a record")
    assert capsys.readouterr().err == ""


@pytest.mark.slow
def test_the_record_is_written_under_a_flood_of_connections(tmp_path):
    """The process may open 64 files, and 200 connections stay open."""
    (tmp_path / "model.py").write_text(MODEL)
    limit = "import resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))"
    code = f"{limit}; from ksivi.cli import main; sys.argv[0] = 'ksivi'; main()"
    arguments = ["fit", f"{tmp_path / 'model.py'}:log_density", "--dim", "2", "--steps", "300"]
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments, "--live", "--out", str(tmp_path / "run")],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    line = next(line for line in process.stderr if "live: " in line)
    idle = []
    with contextlib.suppress(OSError):  # the process ends, and its server
        while process.poll() is None:
            while len(idle) < 200:
                idle += connected(address_in(line), 1)
            for one in [one for one in idle if is_closed(one, 0.001)]:
                one.close()
                idle.remove(one)
    for one in idle:
        one.close()
    assert process.wait(300) in (0, 3), process.stderr.read()
    process.stderr.close()
    assert json.loads((tmp_path / "run" / "fit.json").read_text())["cost"]["steps"] == 300
