"""Damaged files are refused, or an intact one is used instead. They never give a wrong answer.

`KSIVI_DAMAGED=500 pytest tests/test_fuzz_files.py` damages 500 files of each kind. The default is a few.
"""

import functools
import os
import random
import warnings
from pathlib import Path

import jax
import numpy as np
import pytest

import killed
import ksivi
from damage import damaged
from ksivi.results import Record
from ksivi.training import _checkpoints as checkpoints

COUNT = int(os.environ.get("KSIVI_DAMAGED", "60"))
KEY = jax.random.key(3)
short = functools.partial(killed.run, num_steps=300)


def refused_or_the_same(read, path, same):
    """The number of damaged files that were refused. The others must contain what was written."""
    content, refused = path.read_bytes(), 0
    for seed in range(COUNT):
        path.write_bytes(damaged(content, seed))
        try:
            found = read()
        except ValueError:
            refused += 1
            continue
        assert same(found), f"seed {seed} gave another answer"
    path.write_bytes(content)
    assert same(read())
    return refused


def test_posteriors(tmp_path):
    path, posterior = tmp_path / "posterior", short(num_steps=10).posterior
    posterior.save(path)
    draws = np.asarray(posterior.sample(KEY, 5))
    same = lambda found: np.array_equal(found.sample(KEY, 5), draws)  # noqa: E731
    assert refused_or_the_same(lambda: ksivi.load(path), path, same) > 0.8 * COUNT


@pytest.mark.parametrize("part", ["fit.json", "history.npz", "posterior.safetensors"])
def test_records(part, tmp_path):
    """One SHA-256 covers the three files of a record."""
    record = Record.of(short(num_steps=10), model="a")
    record.write(tmp_path)
    draws = np.asarray(record.posterior.sample(KEY, 5))

    def same(found):
        histories = all(
            np.array_equal(found.history[name], values) for name, values in record.history.items()
        )
        return (
            histories
            and found.facts == record.facts
            and np.array_equal(found.posterior.sample(KEY, 5), draws)
        )

    assert (
        refused_or_the_same(lambda: ksivi.read_record(tmp_path), tmp_path / part, same)
        > 0.8 * COUNT
    )


def test_snapshots(tmp_path):
    short(tmp_path, callbacks=[lambda chunk: chunk.step >= 100])
    path = max(tmp_path.glob("step-*"))
    good = checkpoints.Snapshot.read(path)

    def same(found):
        arrays = all(
            np.array_equal(found.arrays[name], array) for name, array in good.arrays.items()
        )
        return arrays and (found.step, found.identity, found.facts) == (
            good.step,
            good.identity,
            good.facts,
        )

    assert refused_or_the_same(lambda: checkpoints.Snapshot.read(path), path, same) > 0.8 * COUNT


@pytest.mark.slow
def test_runs_go_on_from_the_last_good_checkpoint(tmp_path):
    """With one, two or three damaged checkpoints a run ends the same to the bit, or is refused."""
    expected, folder = killed.digest(short()), tmp_path / "run"
    short(folder, callbacks=[lambda chunk: chunk.step >= 200])
    contents = {path: path.read_bytes() for path in sorted(folder.glob("step-*"))}
    assert len(contents) == 3
    for seed in range(COUNT):
        for path in folder.iterdir():
            path.unlink()
        hit = random.Random(seed).sample(sorted(contents), 1 + seed % 3)
        for path, content in contents.items():
            path.write_bytes(damaged(content, seed) if path in hit else content)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            assert resumed(folder) in (expected, "refused" if len(hit) == 3 else expected)


def resumed(folder: Path) -> str:
    try:
        return killed.digest(short(folder))
    except ValueError as error:
        return "refused" if "only damaged snapshots" in str(error) else str(error)
