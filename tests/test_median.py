"""The median of the pairwise distances, exact in every way it is searched for, and its gradient."""

import functools
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import truth
from ksivi.kernels import Fixed, Gaussian, Median
from ksivi.kernels import _median as median
from ksivi.kernels import _one_block as one_block
from ksivi.kernels import _select as select
from test_kernels import KERNELS, OF_A_DISTANCE, TOLERANCE, points, with_slow


@pytest.mark.parametrize(
    ("shape", "name", "dtype"),
    with_slow(
        itertools.product([(17, 23), (16, 16)], KERNELS, ["float32", "float64"]),
        lambda shape, name, dtype: (
            dtype == "float64" if shape == (17, 23) else name in OF_A_DISTANCE
        ),
    ),
    indirect=["dtype"],
)
def test_median_over_cross_pairs(name, shape, dtype):
    """Of an odd number of pairs and of an even one, whose lower median it is."""
    x, y = points(1, *shape, dtype=dtype)
    resolved = KERNELS[name]().resolve(jnp.asarray(x), jnp.asarray(y))
    expected = truth.median_bandwidth(truth.spreads(name, x, y), len(x))
    np.testing.assert_allclose(resolved.h, expected, rtol=TOLERANCE[dtype.name])


@pytest.mark.parametrize(
    ("n", "name", "dtype"),
    with_slow(
        itertools.product([15, 16], KERNELS, ["float32", "float64"]),
        lambda n, name, dtype: name in OF_A_DISTANCE and (n == 15) == (dtype == "float32"),
    ),
    indirect=["dtype"],
)
def test_median_leaves_out_the_diagonal_of_one_sample(name, n, dtype):
    x, _ = points(2, n, 1, dtype=dtype)
    spreads = truth.spreads(name, x, x)
    off_diagonal = spreads[~np.eye(n, dtype=bool)]
    resolved = KERNELS[name]().resolve(jnp.asarray(x), jnp.asarray(x), 1)
    np.testing.assert_allclose(
        resolved.h, truth.median_bandwidth(off_diagonal, n), rtol=TOLERANCE[dtype.name]
    )


def test_median_over_all_pairs_counts_the_diagonal(x64):
    x, _ = points(3, 4, 1)
    resolved = Gaussian(Median(all_pairs=True)).resolve(jnp.asarray(x), jnp.asarray(x), 1)
    np.testing.assert_allclose(
        resolved.h, truth.median_bandwidth(truth.spreads("gaussian", x, x), 4), rtol=1e-12
    )


def test_bandwidth_shrinks_with_the_sample(x64):
    x, y = (jnp.asarray(a) for a in points(3, 8, 8))
    wide, narrow = Gaussian().resolve(x, y).h, Gaussian().resolve(1e-3 * x, 1e-3 * y).h
    np.testing.assert_allclose(narrow, 1e-6 * wide, rtol=1e-9)


def test_bandwidth_is_one_where_the_median_is_zero():
    x = jnp.zeros((6, 2)).at[0].set(1.0)
    assert Gaussian().resolve(x, x, 1).h == 1
    gradient = jax.jit(jax.grad(lambda x: Gaussian().resolve(x, x, 1).gram(x, x).sum()))(x)
    assert jnp.all(jnp.isfinite(gradient))


SHAPE = (14, 11)
"""An even number of pairs: the lower median is the one before the middle."""
SPREADS = {
    "smooth": lambda rng: rng.exponential(size=SHAPE),
    "small": lambda rng: 1e-30 * rng.exponential(size=SHAPE),
    "large": lambda rng: 1e30 * rng.exponential(size=SHAPE),
    "ties": lambda rng: np.floor(3 * rng.exponential(size=SHAPE)),
    "two clumps": lambda rng: np.where(
        rng.random(SHAPE) < 0.5, 1 + rng.random(SHAPE), 1e4 + rng.random(SHAPE)
    ),
    "heavy tails": lambda rng: rng.standard_cauchy(SHAPE) ** 4,
    "one value": lambda rng: np.ones(SHAPE),
}


def looked_up(rows, columns):
    """Spreads that stand in the rows, at the columns that are named."""
    return rows[:, columns[:, 0].astype(int)]


WAYS = {way: functools.partial(looked_up) for way in ("search", "digits", "one block")}
"""A function for each way, as programs are kept by function: one way must not run the program of another."""


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", SPREADS)
def test_median_is_exact_for_any_spread(monkeypatch, way, kind, dtype):
    """By the search of a CPU and by both searches of a GPU, with the thread block interpreted."""
    monkeypatch.setattr(
        "ksivi.kernels._select.platform", lambda: "cpu" if way == "search" else "gpu"
    )
    monkeypatch.setattr(median, "_IN_ONE_BLOCK", math.prod(SHAPE) if way == "one block" else 0)
    monkeypatch.setattr(median, "platform", lambda: "cpu" if way == "search" else "gpu")
    monkeypatch.setattr(median, "has_ampere", lambda: True)
    monkeypatch.setattr(one_block, "select", functools.partial(one_block.select, interpret=True))
    values = jnp.asarray(SPREADS[kind](np.random.default_rng(0)), dtype)
    columns = jnp.asarray(np.arange(SHAPE[1])[:, None], dtype)
    found = median.lower_median(WAYS[way], values, columns)
    assert found == np.sort(np.asarray(values).ravel())[(values.size - 1) // 2]


def test_a_gpu_without_triton_needs_no_block(monkeypatch):
    monkeypatch.setattr(median, "platform", lambda: "gpu")
    monkeypatch.setattr(median, "has_ampere", lambda: False)
    x, y = (jnp.asarray(a, jnp.float32) for a in points(7, 9, 9))
    assert (
        median.lower_median(Gaussian().spread, x, y) == np.sort(Gaussian().spread(x, y).ravel())[40]
    )


@pytest.mark.parametrize("count", [1, 100, 143])
def test_one_block_says_where_the_key_is(count):
    """Among 143 keys. Those that do not count are the largest integer."""
    keys = np.random.default_rng(0).permutation(1_000)[:143].astype(np.int32)
    keys[np.argsort(keys)[count:]] = np.iinfo(np.int32).max
    for rank in {0, (count - 1) // 2, count - 1}:
        key, place = one_block.select(
            jnp.asarray(keys).reshape(13, 11), rank, count, interpret=True
        )
        assert key == np.sort(keys)[rank] == keys[place]


def test_a_block_suits_triton(monkeypatch):
    """Triton needs a power of two of keys. Every 2,048 keys get a warp."""
    blocks, call = [], one_block.pl.pallas_call
    monkeypatch.setattr(
        one_block.triton, "CompilerParams", lambda num_warps: blocks.append(num_warps)
    )

    def spy(kernel, **options):
        return lambda keys: blocks.append(keys.size) or call(kernel, **options)(keys)

    monkeypatch.setattr(one_block.pl, "pallas_call", spy)
    for shape in ((13, 11), (64, 64), (128, 127)):
        keys = jnp.arange(shape[0] * shape[1], dtype=jnp.int32).reshape(shape)
        assert one_block.select(keys, 5, keys.size, interpret=True) == (5, 5)
    assert blocks == [1, 256, 2, 4_096, 8, 16_384]


def test_the_search_takes_few_passes():
    """About nine passes on smooth spreads. A search bit by bit takes 31."""
    passes = []
    for seed in range(5):
        values = jnp.asarray(np.random.default_rng(seed).chisquare(20, 10_000), jnp.float32)
        keys = np.sort(select.sortable(values))

        def count_below(at, keys=keys):
            passes.append(at)
            return jnp.uint32(np.searchsorted(keys, int(at)))

        with jax.disable_jit():
            found = select.by_interpolation(
                count_below, jnp.asarray(keys[0]), jnp.asarray(keys[-1]), 4_999, len(keys)
            )
        assert np.searchsorted(keys, int(found)) == 4_999
    assert len(passes) <= 43


@pytest.mark.parametrize(("size", "bits"), [(100, 7), (2**17, 4), (2**18, 3), (2**18 + 1, 0)])
def test_a_gpu_settles_fewer_bits_a_pass_the_more_keys(monkeypatch, size, bits):
    """At most 2^w − 1 thresholds for w bits, in as few passes as make 31 bits.

    With more keys, one threshold per pass.
    """
    monkeypatch.setattr("ksivi.kernels._select.platform", lambda: "gpu")
    passes, bound = [], jax.ShapeDtypeStruct((), jnp.int32)
    count_below = lambda at: passes.append(at.size) or jnp.zeros(at.shape, jnp.uint32)  # noqa: E731
    search = lambda low, high: select.rank_threshold(count_below, low, high, 5, size)  # noqa: E731
    jax.eval_shape(search, bound, bound)
    assert max(passes) == (2**bits - 1 if bits else 1)
    assert len(passes) == -(-31 // bits) if bits else set(passes) == {1}


def test_the_median_of_too_many_pairs_is_refused():
    most = jax.ShapeDtypeStruct((2**16, 1), jnp.float32)
    more = jax.ShapeDtypeStruct((2**16 + 1, 1), jnp.float32)
    of = functools.partial(median.lower_median, Gaussian().spread)
    assert jax.eval_shape(of, most, most).shape == ()
    with pytest.raises(ValueError, match="the median of 4,295,032,832 pairs is out of range"):
        jax.eval_shape(of, most, more)


@pytest.mark.parametrize(("stored", "times"), [(2**25, 2), (99, 4)])
def test_spreads_are_kept_where_they_fit(monkeypatch, stored, times):
    """Counts besides the one differentiated pair: once, or in each of three passes."""
    monkeypatch.setattr(median, "_STORED", stored)
    calls, (x, y) = [], (jnp.asarray(a, jnp.float32) for a in points(7, 10, 10))
    median.lower_median(lambda x, y: calls.append(len(x)) or Gaussian().spread(x, y), x, y)
    assert calls == [10] * (times - 1) + [1]


@pytest.mark.parametrize(
    "name", with_slow(((name,) for name in KERNELS), lambda name: name in OF_A_DISTANCE)
)
def test_gradient_flows_through_the_median(name, x64):
    """Compares with a median by sorting, whose gradient is the gradient of the selected entry."""
    x, y = (jnp.asarray(a) for a in points(4, 9, 9))

    def by_sorting(x):
        kernel = KERNELS[name]()
        ordered = jnp.sort(kernel.spread(x, y).ravel())
        h = ordered[(ordered.size - 1) // 2] / jnp.log(len(x) + 1)
        return jnp.sum(jnp.cos(kernel.profile(kernel.spread(x, y) / h)))

    ours = jax.grad(lambda x: jnp.sum(jnp.cos(KERNELS[name]().resolve(x, y).gram(x, y))))(x)
    np.testing.assert_allclose(ours, jax.grad(by_sorting)(x), rtol=1e-9, atol=1e-12)


def test_stop_gradient_detaches_the_median(x64):
    x, y = (jnp.asarray(a) for a in points(5, 8, 8))
    h = Gaussian().resolve(x, y).h
    detached = jax.grad(
        lambda x: Gaussian(Median(stop_gradient=True)).resolve(x, y).gram(x, y).sum()
    )(x)
    fixed = jax.grad(lambda x: Gaussian(Fixed(h)).gram(x, y).sum())(x)
    flowing = jax.grad(lambda x: Gaussian().resolve(x, y).gram(x, y).sum())(x)
    np.testing.assert_allclose(detached, fixed, rtol=1e-12)
    assert not np.allclose(flowing, fixed, rtol=1e-2)
