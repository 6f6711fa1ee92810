"""Saved posteriors: exact round trips, and no damaged file that loads as something else."""

import json
import struct
import subprocess
import sys
import tracemalloc

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ksivi
from ksivi.families import Empirical, SampledMixing, SemiImplicit
from ksivi.results import Posterior
from ksivi.targets import Affine

KEY = jax.random.key(0)


def posterior(family=None, coordinates=None):
    family = SemiImplicit.mlp(KEY, dim=2, mixing_dim=3, hidden=(8, 8)) if family is None else family
    return Posterior(family, coordinates, (("a", ()), ("b", (1,))))


FAMILIES = {
    "mlp": lambda: SemiImplicit.mlp(KEY, dim=2, mixing_dim=3),
    "sigma of z": lambda: SemiImplicit.mlp(
        KEY, dim=2, mixing_dim=3, scale="network", activation=jax.nn.silu
    ),
    "location-scale": lambda: SemiImplicit.location_scale(2, loc=1.0),
}


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize(
    "coordinates", [None, Affine(jnp.ones(2), jnp.eye(2)), Affine(jnp.ones(2), jnp.ones(2))]
)
def test_a_loaded_posterior_draws_the_same_numbers(tmp_path, name, coordinates):
    before = posterior(FAMILIES[name](), coordinates)
    before.save(tmp_path / "p.safetensors")
    after = ksivi.load(tmp_path / "p.safetensors")
    np.testing.assert_array_equal(before.sample(KEY, 100), after.sample(KEY, 100))
    assert after.layout == before.layout
    assert list(after.draws(KEY, 3)) == ["a", "b"]


def test_float64_is_kept_or_refused(tmp_path):
    with jax.enable_x64(True):
        before = posterior()
        before.save(tmp_path / "p")
        np.testing.assert_array_equal(
            before.sample(KEY, 9), ksivi.load(tmp_path / "p").sample(KEY, 9)
        )
    with pytest.raises(ValueError, match="float64: set jax_enable_x64"):
        ksivi.load(tmp_path / "p")


def test_a_float32_file_draws_the_same_numbers_under_x64(tmp_path):
    before = posterior()
    before.save(tmp_path / "p")
    expected = np.asarray(before.sample(KEY, 9))
    with jax.enable_x64(True):
        np.testing.assert_array_equal(ksivi.load(tmp_path / "p").sample(KEY, 9), expected)


@pytest.mark.parametrize(
    "family",
    [
        SemiImplicit.mlp(
            KEY, dim=2, mixing_dim=3, mixing=SampledMixing(lambda key: jax.random.normal(key, (3,)))
        ),
        SemiImplicit.mlp(KEY, dim=2, mixing_dim=3, activation=lambda x: x**2),
    ],
)
def test_user_code_is_not_saved(tmp_path, family):
    with pytest.raises(ValueError, match=r"cannot save posterior\.family\..* is user code"):
        posterior(family).save(tmp_path / "p")
    assert not (tmp_path / "p").exists()


def test_200_damaged_files_are_refused_or_intact(tmp_path):
    original = posterior()
    original.save(tmp_path / "good")
    good, expected = (tmp_path / "good").read_bytes(), np.asarray(original.sample(KEY, 50))
    rng, refused, header = np.random.default_rng(0), 0, struct.unpack("<Q", good[:8])[0]
    for trial in range(200):
        bad = bytearray(good)
        kind = trial % 4
        if kind == 0:  # a flipped bit anywhere
            bad[rng.integers(len(bad))] ^= 1 << rng.integers(8)
        elif kind == 1:  # a truncation
            bad = bad[: rng.integers(len(bad))]
        elif kind == 2:  # a digit, letter or bracket of the header replaced
            bad[8 + rng.integers(header)] = rng.choice(list(b'0123456789abcxyz"{}[],:'))
        else:  # a flipped bit in the header
            bad[rng.integers(8 + header)] ^= 1 << rng.integers(8)
        (tmp_path / "bad").write_bytes(bytes(bad))
        try:
            draws = ksivi.load(tmp_path / "bad").sample(KEY, 50)
        except ValueError:
            refused += 1
        else:
            np.testing.assert_array_equal(draws, expected)
    assert refused > 150


def edited(good: bytes, edit) -> bytes:
    """The file with its ksivi header changed by `edit`, in valid safetensors form."""
    size = struct.unpack("<Q", good[:8])[0]
    table = json.loads(good[8 : 8 + size])
    header = json.loads(table["__metadata__"]["ksivi"])
    edit(header)
    table["__metadata__"]["ksivi"] = json.dumps(header)
    packed = json.dumps(table).encode()
    packed += b" " * (-len(packed) % 8)
    return struct.pack("<Q", len(packed)) + packed + good[8 + size :]


@pytest.mark.parametrize(
    ("edit", "match"),
    [
        (
            lambda header: header.update(format="2"),
            "has format 2; this version of ksivi reads format 1",
        ),
        (lambda header: header.update(structure="{}"), "SHA-256"),
        (lambda header: header.update(sha256="0"), "SHA-256"),
        (lambda header: header.pop("format"), "has format None"),
        (lambda header: header.update(extra=3), "not a table of text"),
    ],
)
def test_edited_headers_are_refused(tmp_path, edit, match):
    posterior().save(tmp_path / "p")
    (tmp_path / "p").write_bytes(edited((tmp_path / "p").read_bytes(), edit))
    with pytest.raises(ValueError, match=match):
        ksivi.load(tmp_path / "p")


def test_foreign_files_are_refused(tmp_path):
    (tmp_path / "p").write_bytes(b"not a posterior")
    with pytest.raises(ValueError, match="damaged or not a ksivi file"):
        ksivi.load(tmp_path / "p")


def sparse(path, size):
    """A file with one tensor that takes no room on the disk."""
    header = json.dumps({"format": "1", "sha256": "0", "structure": "{}"})
    entry = {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}
    table = json.dumps({"__metadata__": {"ksivi": header}, "x": entry}).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(table)) + table)
        file.truncate(8 + len(table) + size)
    return path


@pytest.mark.parametrize(
    ("size", "match"), [(2**42, "more than the .* bytes of memory"), (2**27, "SHA-256")]
)
def test_no_room_is_made_for_a_sparse_file(tmp_path, size, match):
    path = sparse(tmp_path / "p", size)
    tracemalloc.start()
    with pytest.raises(ValueError, match=match):
        ksivi.load(path)
    assert tracemalloc.get_traced_memory()[1] < 2**26
    tracemalloc.stop()


PEAK = """
import resource, sys, ksivi
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
before, posterior = peak(), ksivi.load(sys.argv[1])
print(peak() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss has other units elsewhere")
def test_each_tensor_is_read_once(tmp_path):
    """Loading takes little more memory than the tensors have."""
    draws = jnp.ones((2**24, 4))
    Posterior(Empirical(draws), None, (("x", (4,)),)).save(tmp_path / "p")
    command = [sys.executable, "-c", PEAK, str(tmp_path / "p")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(done.stdout) < 1.5 * draws.nbytes
