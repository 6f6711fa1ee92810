"""Data files: the user's own copy first, then a download that is checked, then advice."""

import functools
import hashlib
import http.server
import re
import threading

import numpy as np
import pytest

from ksivi.problems import _data as data_files

ROWS = "1.0 2.0 3.0\n4.0\t5.0 6.0\n"


@pytest.fixture
def served(tmp_path, monkeypatch):
    """A file on a server of this machine, an empty cache, no data folder; gives a way to state its
    checksum."""
    pytest.importorskip("pooch")
    (tmp_path / "remote").mkdir()
    (tmp_path / "remote" / "data.txt").write_text(ROWS)
    handler = functools.partial(Quiet, directory=tmp_path / "remote")
    monkeypatch.setenv("KSIVI_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("KSIVI_DATA", raising=False)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/"

        def state(sha256, file="data.txt"):
            monkeypatch.setitem(
                data_files.SOURCES,
                "uci/boston.txt",
                data_files.Source("columns", url + file, sha256),
            )

        yield state
        server.shutdown()


class Quiet(http.server.SimpleHTTPRequestHandler):
    requests = 0

    def log_message(self, *args):
        Quiet.requests += 1


def test_a_download_is_checked_and_kept(served, tmp_path):
    served(hashlib.sha256(ROWS.encode()).hexdigest())
    Quiet.requests = 0
    path = data_files.locate("uci/boston.txt")
    assert path == tmp_path / "cache" / "data" / "uci" / "boston.txt"
    np.testing.assert_array_equal(np.loadtxt(path), [[1, 2, 3], [4, 5, 6]])
    assert data_files.locate("uci/boston.txt") == path
    assert Quiet.requests == 1


def test_a_download_of_other_bytes_is_refused_and_not_kept(served, tmp_path):
    served("0" * 64)
    with pytest.raises(
        ValueError,
        match=r"could not be downloaded .*hash.* set KSIVI_DATA to a folder that has uci/boston\.txt",
    ):
        data_files.locate("uci/boston.txt")
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]


def test_a_download_that_fails_says_what_to_do(served):
    served("0" * 64, "nothing.txt")
    with pytest.raises(ValueError, match=r"could not be downloaded .*404.* KSIVI_DATA"):
        data_files.locate("uci/boston.txt")


@pytest.mark.parametrize("layout", ["uci/boston.txt", "boston.txt"])
def test_the_users_own_copy_comes_first(layout, served, tmp_path, monkeypatch):
    served("0" * 64)
    own = tmp_path / "own" / layout
    own.parent.mkdir(parents=True)
    own.write_text(ROWS)
    monkeypatch.setenv("KSIVI_DATA", str(tmp_path / "own"))
    assert data_files.locate("uci/boston.txt") == own


def test_without_pooch_the_extra_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("KSIVI_DATA", str(tmp_path))
    monkeypatch.setitem(__import__("sys").modules, "pooch", None)
    match = r"ksivi\[data\].* set KSIVI_DATA to a folder that has uci/boston\.txt: columns separated by whitespace"
    with pytest.raises(ImportError, match=match):
        data_files.locate("uci/boston.txt")


def test_a_file_that_cannot_be_had_says_where_to_put_it(monkeypatch):
    monkeypatch.delenv("KSIVI_DATA", raising=False)
    with pytest.raises(
        ValueError,
        match=r"set KSIVI_DATA to a folder that has waveform\.data: 21 features and a class",
    ):
        data_files.locate("waveform.data")
    with pytest.raises(
        ValueError, match=r"name must be one of .*uci/boston\.txt, .* got 'iris\.txt'"
    ):
        data_files.locate("iris.txt")


def test_checksums_are_those_of_the_development_copies(data):
    for name, source in data_files.SOURCES.items():
        if source.sha256 is not None:
            assert hashlib.sha256((data / name).read_bytes()).hexdigest() == source.sha256
            assert re.search(r"/[0-9a-f]{40}/", source.url)
