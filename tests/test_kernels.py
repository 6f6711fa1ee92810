"""Kernels against double loops in NumPy, sums over pairs in tiles, Stein kernels."""

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
from ksivi.kernels import _pairwise as pairwise

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


@pytest.mark.parametrize("group", [1, 2])
def test_the_mean_of_stein_kernels_leaves_out_pairs_of_one_group(group, x64):
    x, _ = (jnp.asarray(a) for a in points(10, 8, 1, d=3))
    kernel, score = IMQ(Fixed(1.3)), jnp.sin(x)
    gram = np.asarray(stein_gram(kernel, x, score, x, score))
    apart = np.arange(8)[:, None] // group != np.arange(8)[None] // group
    np.testing.assert_allclose(
        stein_mean(kernel, x, score, group=group), gram[apart].mean(), rtol=1e-10
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
