import functools
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ksivi
import truth
from ksivi.kernels import (
    IMQ,
    Fixed,
    Gaussian,
    Laplace,
    Matern,
    Median,
    Riesz,
    Sum,
    pair_mean,
    stein_gram,
    stein_mean,
)
from ksivi.kernels import _median as median
from ksivi.kernels import _one_block as one_block
from ksivi.kernels import _pairwise as pairwise
from ksivi.kernels import _select as select

# A new kernel also enters `spread` and `profile` of truth.py, and SMOOTH if it has `radial`.
KERNELS = {
    "gaussian": Gaussian,
    "imq": IMQ,
    "laplace": Laplace,
    "riesz": Riesz,
    "matern12": lambda h=None: Matern(h, nu=0.5),
    "matern32": lambda h=None: Matern(h, nu=1.5),
    "matern52": lambda h=None: Matern(h, nu=2.5),
}
SMOOTH = ("gaussian", "imq", "matern52")
"""Kernels that are twice differentiable, so that they have a Stein kernel."""
TOLERANCE = {"float64": 1e-10, "float32": 1e-4}

every_kernel = pytest.mark.parametrize("name", KERNELS)
OF_A_DISTANCE = ("gaussian", "laplace", "riesz")
"""One kernel of each distance: what the others do with it is in a profile, which other tests look at."""


def with_slow(cases, is_quick):
    """Cases for `parametrize`, of which `make test` runs the quick ones and `make test-slow` the others."""
    return [
        pytest.param(*case, marks=[] if is_quick(*case) else [pytest.mark.slow]) for case in cases
    ]


def points(seed, n, m, d=5, dtype=np.float64):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)).astype(dtype), (0.3 + rng.normal(size=(m, d))).astype(dtype)


@every_kernel
def test_gram_equals_the_double_loop(name, dtype):
    x, y = points(0, 17, 23, dtype=dtype)
    gram = KERNELS[name](Fixed(1.7)).gram(jnp.asarray(x), jnp.asarray(y))
    assert gram.dtype == dtype
    np.testing.assert_allclose(
        gram, truth.gram(name, x, y, 1.7), rtol=TOLERANCE[dtype.name], atol=TOLERANCE[dtype.name]
    )


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


def tiled_cases():
    """Kernels and groups. The fast tests use one kernel per distance, and each kind of group."""
    for name in KERNELS:
        yield pytest.param(name, 0, marks=[] if name == "riesz" else [pytest.mark.slow])
    yield from [("imq", 1), ("laplace", 3)]


@pytest.mark.parametrize(("name", "group"), list(tiled_cases()))
def test_tiles_equal_one_block(monkeypatch, name, group, x64):
    x, other = (jnp.asarray(a) for a in points(6, 21, 21))

    def value(x):
        y = other if group == 0 else x
        kernel = KERNELS[name]().resolve(x, y, group)
        return pair_mean(kernel.gram, x, jnp.sin(x), y, jnp.cos(y), group)

    whole = jax.jit(jax.value_and_grad(value))(x)
    for tile, stored in ((21 * 4, 0), (21 * 4, 2**25)):
        monkeypatch.setattr(pairwise, "TILE", tile)
        monkeypatch.setattr(median, "_STORED", stored)
        jax.clear_caches()
        tiled = jax.jit(jax.value_and_grad(value))(x)
        np.testing.assert_allclose(tiled[0], whole[0], rtol=1e-11)
        np.testing.assert_allclose(tiled[1], whole[1], rtol=1e-9, atol=1e-14)


def test_a_value_in_tiles_is_the_same_without_its_gradient(monkeypatch, x64):
    x, y = (jnp.asarray(a) for a in points(6, 21, 21))
    value = lambda: pair_mean(Gaussian(Fixed(2.0)).gram, x, jnp.sin(x), y, jnp.cos(y))  # noqa: E731
    whole = value()
    monkeypatch.setattr(pairwise, "TILE", 21 * 4)
    np.testing.assert_allclose(value(), whole, rtol=1e-11)


def test_many_tiles_lose_no_digits(monkeypatch):
    """A running sum of 2,000 tiles has an error of 5e-7, as large as the MMD of exact samples."""
    monkeypatch.setattr(pairwise, "TILE", 2_000)
    x, y = (np.asarray(jax.random.normal(jax.random.key(i), (2_000, 2))) for i in (0, 1))
    found = pair_mean(
        Gaussian(Fixed(4.0)).gram,
        *(jnp.asarray(a) for a in (x, np.ones_like(x), y, np.ones_like(y))),
    )
    squared = sum(
        np.subtract.outer(x[:, i].astype(float), y[:, i].astype(float)) ** 2 for i in (0, 1)
    )
    np.testing.assert_allclose(float(found), 2 * np.mean(np.exp(-squared / 4)), rtol=2.5e-7)


def test_a_gradient_in_tiles_takes_six_matrix_products(monkeypatch):
    """⟨x, y⟩ and ⟨f, g⟩, and two for each gradient. The backward pass repeats none of them."""
    monkeypatch.setattr(pairwise, "TILE", 21 * 7)
    x, y = (jnp.asarray(a) for a in points(6, 21, 21))
    value = lambda x, y: pair_mean(Gaussian(Fixed(2.0)).gram, x, jnp.sin(x), y, jnp.cos(y))  # noqa: E731
    jaxpr = jax.make_jaxpr(jax.grad(value, argnums=(0, 1)))(x, y)
    assert str(jaxpr).count("dot_general[") == 6


@every_kernel
def test_no_tensor_of_pairs_times_dimensions(name):
    n, d = 128, 64
    x = jax.random.normal(jax.random.key(0), (n, d))

    def value(x):
        kernel = KERNELS[name]().resolve(x, x, 1)
        return pair_mean(kernel.gram, x, x, x, x, 1)

    shapes = [v.aval.shape for v in _all_values(jax.make_jaxpr(jax.value_and_grad(value))(x).jaxpr)]
    assert len(shapes) > 50
    assert max(np.prod(shape, dtype=int) for shape in shapes) <= n * n


def _all_values(jaxpr):
    for equation in jaxpr.eqns:
        yield from equation.outvars
        for parameter in jax.tree.leaves(
            equation.params, is_leaf=lambda p: hasattr(p, "eqns") or hasattr(p, "jaxpr")
        ):
            inner = getattr(parameter, "jaxpr", parameter)
            if hasattr(inner, "eqns"):
                yield from _all_values(inner)


@pytest.mark.parametrize("name", [name for name in KERNELS if name != "riesz"])
def test_an_offset_costs_no_digits(name):
    x, y = points(7, 30, 30, dtype=np.float32)
    here = KERNELS[name](Fixed(2.0)).gram(jnp.asarray(x), jnp.asarray(y))
    there = KERNELS[name](Fixed(2.0)).gram(jnp.asarray(x) + 1000, jnp.asarray(y) + 1000)
    np.testing.assert_allclose(here, there, atol=1e-3)


def test_sums_of_kernels(x64):
    x, y = (jnp.asarray(a) for a in points(8, 7, 9))
    parts = [Gaussian(Median(scale=0.5)), IMQ(), Laplace(Fixed(3.0))]
    total = Sum(parts, [1.0, 2.0, 0.5]).resolve(x, y).gram(x, y)
    expected = sum(
        w * k.resolve(x, y).gram(x, y) for w, k in zip([1.0, 2.0, 0.5], parts, strict=True)
    )
    np.testing.assert_allclose(total, expected, rtol=1e-12)


def test_a_kernel_can_be_called_on_two_points(x64):
    x, y = jnp.arange(3.0), jnp.ones(3)
    np.testing.assert_allclose(Gaussian(Fixed(2.0))(x, y), np.exp(-1.0))
    with pytest.raises(ValueError, match="resolve"):
        Gaussian()(x, y)


@pytest.mark.parametrize("name", [*SMOOTH, "sum"])
def test_stein_kernel_equals_autodiff(name, x64):
    x, y = (jnp.asarray(a) for a in points(9, 6, 8, d=3))
    kernel = (
        Sum([Gaussian(Fixed(2.0)), IMQ(Fixed(1.0))], [0.3, 0.7])
        if name == "sum"
        else KERNELS[name](Fixed(1.3))
    )
    s, t = jnp.sin(x), jnp.cos(y)

    def pair(x, s, y, t):
        grad_x, grad_y = jax.grad(kernel, argnums=0), jax.grad(kernel, argnums=1)
        mixed = jnp.trace(jax.jacfwd(grad_x, argnums=1)(x, y))
        return s @ t * kernel(x, y) + s @ grad_y(x, y) + t @ grad_x(x, y) + mixed

    expected = jax.jit(jax.vmap(lambda a, b: jax.vmap(lambda c, d: pair(a, b, c, d))(y, t)))(x, s)
    found = jax.jit(lambda *points: stein_gram(kernel, *points))(x, s, y, t)
    np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-10)


def test_stein_kernel_on_the_diagonal(x64):
    """The V-statistic needs uₚ(x, x) = ⟨s, s⟩ k(0) − 2 d φ′(0)."""
    x = jnp.zeros((1, 3))
    np.testing.assert_allclose(
        stein_mean(Matern(Fixed(2.0)), x, x + 1.0, group=0), 3 + 6 * 5 / 24, rtol=1e-12
    )


@pytest.mark.parametrize(
    "kernel", [Laplace(Fixed(1.0)), Riesz(Fixed(1.0)), Matern(Fixed(1.0), nu=1.5)]
)
def test_rough_kernels_refuse_to_be_stein_kernels(kernel):
    with pytest.raises(ValueError, match="twice differentiable"):
        ksivi.metrics.ksd(jnp.ones((3, 2)), lambda x: -x, kernel=kernel)


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: Fixed(0.0), "h must be one positive number, got 0.0"),
        (lambda: Fixed(-1), "h must be one positive number, got -1"),
        (lambda: Median(scale=0.0), "scale must be one positive number"),
        (lambda: Matern(nu=2.0), "nu must be one of"),
        (lambda: Sum([]), "weights"),
        (lambda: Sum([Gaussian()], [1.0, 2.0]), "weights must be one number for each of 1 kernels"),
        (lambda: Sum([Gaussian()], [-1.0]), "weights must be finite and not negative"),
    ],
)
def test_bad_arguments(make, match):
    with pytest.raises(ValueError, match=match):
        make()
