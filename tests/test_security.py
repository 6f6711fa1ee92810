"""Files, names and requests that are not to be trusted."""

import http.client
import io
import json
import re
import struct
import urllib.parse
import zipfile
from pathlib import Path

import numpy as np
import pytest

import ksivi
from ksivi._core import files
from ksivi.cli._data import read_data
from ksivi.cli._live import serving

SOURCE = Path(ksivi.__file__).parent


def npz(path, **entries):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries.items():
            archive.writestr(f"{name}.npy", content)
    return path


def claiming(shape, dtype="<f8"):
    """An array's file that states a shape and holds one number."""
    header = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + b"\0" * 8


def test_a_shape_that_the_file_does_not_hold_is_refused_before_room_is_made(tmp_path):
    path = npz(tmp_path / "lies.npz", x=claiming((2**40, 2**10)))
    with pytest.raises(
        ValueError, match=r"--data: .* claims shape \(1099511627776, 1024\) but holds"
    ):
        read_data(path)


def test_a_compressed_file_beyond_the_bound_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_MOST", 1_000)
    content = io.BytesIO()
    np.save(content, np.zeros(10_000))
    with pytest.raises(ValueError, match="more than the maximum of 1,000"):
        read_data(npz(tmp_path / "bomb.npz", x=content.getvalue()))


def test_objects_are_refused_and_not_unpickled(tmp_path):
    content = io.BytesIO()
    np.save(content, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match="holds Python objects, which can run code"):
        read_data(npz(tmp_path / "objects.npz", x=content.getvalue()))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("deep.json", "[" * 200_000),
        ("long.csv", "a\n" + "1" * 200_000 + "\n"),
        ("cut.npz", "PK\3\4"),
        ("other.json", "[1, 2]"),
    ],
)
def test_odd_files_are_one_clear_error(tmp_path, name, content):
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(ValueError, match="--data"):
        read_data(path)


def test_a_damaged_record_is_refused(tmp_path):
    (tmp_path / "fit.json").write_text(json.dumps({"format": 1}))
    npz(tmp_path / "history.npz", loss=claiming((2**40,)))
    with pytest.raises(ValueError, match="damaged record"):
        ksivi.read_record(tmp_path)


def ask(address, **headers):
    where = urllib.parse.urlsplit(address)
    connection = http.client.HTTPConnection(where.hostname, where.port, timeout=10)
    connection.request("GET", where.path, headers=headers)
    status = connection.getresponse().status
    connection.close()
    return status


def test_the_live_page_is_for_its_own_address_alone(capsys):
    with serving("model.py:log_density"):
        address = next(word for word in capsys.readouterr().err.split() if word.startswith("http"))
        own = address.rstrip("/").rsplit("/", 1)[0]
        assert ask(address) == 200
        assert ask(address, Origin=own) == 200
        assert ask(address, Host="evil.example") == 404
        assert ask(address, Origin="http://evil.example") == 404
        assert ask(f"{own}/../../etc/passwd") == 404
        assert ask(f"{address}../") == 404


def test_nothing_here_unpickles_or_evaluates():
    """But for messages of a cluster that the user names."""
    code = re.compile(
        r"\b(pickle\.loads?|cloudpickle\.loads?|eval|exec|allow_pickle=True|yaml\.load)\("
    )
    found = {
        path.relative_to(SOURCE).parts[0]
        for path in SOURCE.rglob("*.py")
        if code.search(path.read_text())
    }
    assert found <= {"executors", "targets"}
    in_targets = [
        line for path in (SOURCE / "targets").glob("*.py") for line in path.read_text().splitlines()
    ]
    assert all(".eval()" in line for line in in_targets if code.search(line))
