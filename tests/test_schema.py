"""Files with right sums and wrong contents: every reader refuses them with a `ValueError`."""

import copy
import dataclasses
import functools
import hashlib
import json
import os
import random
from typing import Any, Literal, TypedDict

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import killed
import ksivi
from ksivi._core import archive
from ksivi._core.schema import conform
from ksivi.cli._compare import newest_comparison, read_comparison
from ksivi.families import Empirical
from ksivi.report import comparison_page, run_page
from ksivi.results import Posterior, Record
from ksivi.targets import Affine
from ksivi.training._checkpoints import Snapshot

COUNT = int(os.environ.get("KSIVI_FORGED", "40"))
ODD = (None, True, -1, 3, 0.5, 1e400, 10**400, float("nan"), "", "text", [], [1], {}, {"kind": []})


@dataclasses.dataclass(frozen=True)
class Point:
    x: float
    tags: tuple[str, ...] = ()


class Named(TypedDict, total=False):
    kind: Literal["a", "b"]
    point: Point | None
    counts: dict[str, list[int]]
    either: int | str


def test_values_take_the_form_of_their_type():
    found = conform({"kind": "a", "point": {"x": 1, "tags": ["t"]}, "more": 3}, Named, "it")
    assert found == {"kind": "a", "point": Point(1.0, ("t",))}
    assert conform({"point": None, "either": "a", "counts": {"n": [1, 2.0]}}, Named, "it") == {
        "point": None,
        "either": "a",
        "counts": {"n": [1, 2]},
    }
    assert np.isnan(conform(None, float, "it"))
    assert conform("-Infinity", float, "it") == -np.inf


@pytest.mark.parametrize(
    ("value", "kind", "message"),
    [
        ({"kind": "c"}, Named, "it.kind must be 'a' or 'b', got 'c'"),
        ({"kind": []}, Named, "it.kind must be 'a' or 'b'"),
        ({"point": {}}, Named, "it.point must have an entry 'x', but it has none"),
        ({"point": {"x": "1"}}, Named, "it.point.x must be a number, got '1'"),
        ({"counts": {"n": [0.5]}}, Named, r"it.counts.n\[0\] must be a whole number, got 0.5"),
        ({"either": []}, Named, "it.either must be a whole number or text"),
        (True, int, "it must be a whole number, got True"),
        (10**400, float, "it must be a number"),
        (2**63, int, "it must be a whole number"),
        (float("inf"), int, "it must be a whole number"),
        ([], Named, "it must be an object with named entries"),
        (3, list[int], "it must be a list, got 3"),
    ],
)
def test_other_types_are_refused_by_name(value, kind, message):
    with pytest.raises(ValueError, match=message):
        conform(value, kind, "it")


def forged(value: Any, rng: random.Random) -> Any:
    """The value with one entry, anywhere, missing or of another type."""
    value = copy.deepcopy(value)
    holders = [value]
    for one in holders:
        inner = one.values() if isinstance(one, dict) else one
        holders += [part for part in inner if isinstance(part, dict | list) and part]
    holder = rng.choice(holders)
    place = rng.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
    if rng.random() < 0.2:
        del holder[place]
    else:
        holder[place] = rng.choice(ODD)
    return value


def used_or_refused(make, use) -> int:
    """How many of the forged files were refused. Anything but a `ValueError` is a failure."""
    refused = 0
    for seed in range(COUNT):
        make(random.Random(seed))
        try:
            use()
        except ValueError:
            refused += 1
    return refused


@functools.cache
def small_fit():
    return killed.run(num_steps=10)


def seal(folder, facts):
    """Writes facts with the right sum over all files."""
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
    for name in ("history.npz", "posterior.safetensors"):
        digest.update(hashlib.sha256((folder / name).read_bytes()).digest())
    (folder / "fit.json").write_text(json.dumps(facts | {"sha256": digest.hexdigest()}))


@pytest.mark.parametrize("version", [1, 2])
def test_records_with_right_sums(version, tmp_path):
    record = Record.of(small_fit(), model="a")
    record.write(tmp_path)
    facts = dict(record.facts)
    if version == 1:
        facts |= {"format": 1, "diagnostics": {"stein ratio": 1.0, "skipped steps": 2}}
    seal(tmp_path, facts)
    run_page(ksivi.read_record(tmp_path))
    make = lambda rng: seal(tmp_path, forged(facts, rng))  # noqa: E731
    assert used_or_refused(make, lambda: page_without_draws(tmp_path)) > 0.4 * COUNT


def page_without_draws(folder):
    """What the page takes from the files, without its figures, which take a second each."""
    from ksivi.report import _run_page, _what_now

    record = ksivi.read_record(folder)
    _what_now.verdict(record)
    record.explain()
    _run_page._diagnostics(record.facts)
    _run_page._costs(record.facts)
    return record.diagnostics


HISTORIES = {
    "no steps": {"loss": np.zeros(3)},
    "text": {"step": np.arange(3), "loss": np.array(["a", "b", "c"])},
    "a scalar": {"step": np.arange(3), "loss": np.zeros(())},
    "other lengths": {"step": np.arange(3), "loss": np.zeros(4)},
    "pairs": {"step": np.arange(3), "loss": np.zeros((3, 2))},
}


@pytest.mark.parametrize("name", HISTORIES)
def test_histories_with_right_sums(name, tmp_path):
    record = Record.of(small_fit())
    dataclasses.replace(record, history=HISTORIES[name]).write(tmp_path)
    with pytest.raises(ValueError, match="damaged record: the history must have"):
        ksivi.read_record(tmp_path)


FOLDED = Empirical(jnp.zeros((5, 2)))
LAYOUTS = {
    "too small": (("a", ()),),
    "too large": (("a", (3,)),),
    "twice": (("a", ()), ("a", ())),
    "negative": (("a", (-1, -2)),),
    "names": ((1, (2,)),),
    "shapes": (("a", 2),),
    "text": "ab",
    "none": (),
    "flat": ("a", "b"),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_layouts_that_do_not_fit(name, tmp_path):
    path = tmp_path / "p"
    path.write_bytes(archive.pack(Posterior(FOLDED, None, LAYOUTS[name])))
    with pytest.raises(ValueError, match="its parts do not fit together"):
        ksivi.load(path)


@pytest.mark.parametrize(
    "change",
    [
        {"coordinates": Affine(jnp.zeros(3), jnp.ones(3))},
        {"coordinates": "none"},
        {"supports": ()},
        {"supports": ("a",)},
        {"family": Affine(jnp.zeros(2), jnp.ones(2))},
        {"family": Empirical(jnp.zeros((5, 2), jnp.int32))},
        {"family": Empirical(jnp.zeros(2))},
    ],
)
def test_parts_that_do_not_fit(change, tmp_path):
    posterior = dataclasses.replace(Posterior(FOLDED, None, (("a", (2,)),)), **change)
    (tmp_path / "p").write_bytes(archive.pack(posterior))
    with pytest.raises(ValueError, match="its parts do not fit together"):
        ksivi.load(tmp_path / "p")


def structure_of(path):
    header, tensors = archive.unseal(path)
    return json.loads(header["structure"]), tensors


def test_posteriors_with_right_sums(tmp_path):
    path = tmp_path / "p"
    small_fit().posterior.save(path)
    structure, tensors = structure_of(path)

    def make(rng):
        text = json.dumps(forged(structure, rng), sort_keys=True)
        path.write_bytes(archive.seal({"structure": text}, tensors))

    def use():
        posterior = ksivi.load(path)
        jax.eval_shape(lambda key: posterior.draws(key, 3), jax.random.key(0))

    assert used_or_refused(make, use) > 0.5 * COUNT


def test_a_target_in_a_file_is_refused(tmp_path):
    small_fit().posterior.save(tmp_path / "p")
    structure, tensors = structure_of(tmp_path / "p")
    structure["fields"]["target"] = {"value": "text"}
    (tmp_path / "p").write_bytes(archive.seal({"structure": json.dumps(structure)}, tensors))
    with pytest.raises(ValueError, match="has fields"):
        ksivi.load(tmp_path / "p")


def test_checkpoints_with_right_sums(tmp_path):
    short = functools.partial(killed.run, num_steps=150)
    short(tmp_path, callbacks=[lambda chunk: chunk.step >= 50])
    path = max(tmp_path.glob("step-*"))
    header, arrays = archive.unseal(path)
    words = json.loads(header["checkpoint"])

    def make(rng):
        for old in tmp_path.iterdir():
            old.unlink()
        some = dict(arrays)
        if rng.random() < 0.3:
            name = rng.choice(sorted(some))
            some[name] = some[name][..., :0] if some[name].ndim else np.zeros(3)
        found = forged(words, rng)
        path.write_bytes(archive.seal({"checkpoint": json.dumps(found)}, some))

    with pytest.warns(RuntimeWarning):
        assert used_or_refused(make, lambda: short(tmp_path)) > 0.5 * COUNT


def test_a_snapshot_of_other_words_is_refused(tmp_path):
    for words in ("[]", "3", "null", '{"format": 3}', "[" * 100_000):
        (tmp_path / "s").write_bytes(archive.seal({"checkpoint": words}, {"a": np.zeros(2)}))
        with pytest.raises((ValueError, RecursionError)):
            Snapshot.read(tmp_path / "s")


COMPARISON = {
    "problem": "banana",
    "floor": 0.01,
    "methods": {
        "ksivi": {
            "status": "step limit",
            "sliced_wasserstein": 0.02,
            "seconds": 1.0,
            "steps": 10,
            "score_evals": 100,
        }
    },
}


def test_comparisons_of_other_types(tmp_path):
    path = tmp_path / "banana.json"

    def use():
        found = newest_comparison(tmp_path)
        return None if found is None else comparison_page(*read_comparison(found))

    make = lambda rng: path.write_text(json.dumps(forged(COMPARISON, rng)))  # noqa: E731
    assert used_or_refused(make, use) > 0.4 * COUNT
    path.write_text(json.dumps(COMPARISON | {"floor": 0}))
    assert "banana" in use()
