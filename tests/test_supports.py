"""Constrained parameters: maps, Jacobians, densities, draws and errors."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import ksivi
from ksivi.families import Empirical

SUPPORTS = {
    "real": (ksivi.supports.real(), (3,), slice(None)),
    "positive": (ksivi.supports.positive(), (3,), slice(None)),
    "greater_than": (ksivi.supports.greater_than(jnp.array([1.0, -2.0, 0.0])), (3,), slice(None)),
    "less_than": (ksivi.supports.less_than(2.0), (3,), slice(None)),
    "interval": (ksivi.supports.interval(-1.0, 3.0), (3,), slice(None)),
    # A simplex of three has two free numbers; a Cholesky factor has those below its diagonal.
    "simplex": (ksivi.supports.simplex(), (2,), slice(0, 2)),
    "softmax_simplex": (ksivi.supports.Support("softmax_simplex"), (2,), slice(0, 2)),
    "ordered": (ksivi.supports.ordered(), (3,), slice(None)),
    "corr_cholesky": (ksivi.supports.corr_cholesky(), (3,), np.array([3, 6, 7])),
}


@pytest.mark.parametrize("name", SUPPORTS)
def test_the_determinant_is_that_of_the_map(name):
    support, shape, free = SUPPORTS[name]
    u = jax.random.normal(jax.random.key(0), shape)
    jacobian = jax.jacobian(lambda u: jnp.ravel(support(u))[free])(u)
    np.testing.assert_allclose(
        support.log_det(u), np.linalg.slogdet(jacobian)[1], rtol=1e-4, atol=1e-5
    )
    np.testing.assert_allclose(support.inverse(support(u)), u, rtol=1e-3, atol=1e-4)


def test_the_density_is_that_of_the_unconstrained_parameters():
    """A Gamma scale in logarithms and a Dirichlet in stick-breaking coordinates."""
    alpha = np.array([2.0, 3.0, 1.5])

    def log_density(p):
        gamma = 2 * jnp.log(p["rate"]) - p["rate"]
        return gamma + jnp.sum((alpha - 1) * jnp.log(p["shares"]))

    example = {"rate": jnp.ones(()), "shares": jnp.full(3, 1 / 3)}
    supports = {"rate": ksivi.supports.positive(), "shares": ksivi.supports.simplex()}
    target = ksivi.Target.from_pytree(log_density, example, supports=supports)
    assert target.layout == (("rate", ()), ("shares", (2,)))
    points = np.array([[0.3, -0.4, 0.8], [-1.0, 0.2, 0.1]], np.float32)
    values = [float(target.log_density(jnp.asarray(u))) for u in points]
    expected = []
    for u in points:
        shares = np.asarray(supports["shares"](u[1:]), np.float64)
        one = stats.gamma.logpdf(np.exp(u[0]), 3) + u[0]
        one += stats.dirichlet.logpdf(shares / shares.sum(), alpha) + float(
            supports["shares"].log_det(u[1:])
        )
        expected.append(one)
    np.testing.assert_allclose(values[0] - values[1], expected[0] - expected[1], rtol=1e-4)


def test_draws_are_where_parameters_live_and_survive_saving(tmp_path):
    example = {"a": {"low": jnp.zeros(2)}, "scale": jnp.ones(())}
    supports = {"a.low": ksivi.supports.less_than(1.0), "scale": ksivi.supports.positive()}
    target = ksivi.Target.from_pytree(
        lambda p: -p["scale"] - jnp.sum(p["a"]["low"] ** 2), example, supports=supports
    )
    points = jax.random.normal(jax.random.key(0), (40, 3))
    ksivi.Posterior.of(Empirical(points), target).save(tmp_path / "p.safetensors")
    draws = ksivi.load(tmp_path / "p.safetensors").draws(jax.random.key(1), 40)
    np.testing.assert_allclose(np.sort(draws["scale"]), np.sort(np.exp(points[:, 2])), rtol=1e-5)
    np.testing.assert_allclose(
        np.sort(draws["a.low"], axis=0), np.sort(1 - np.exp(points[:, :2]), axis=0), rtol=1e-4
    )


def test_what_cannot_be_is_refused():
    density = lambda p: -jnp.sum(p["x"])  # noqa: E731
    with pytest.raises(ValueError, match=r"supports must name parts of example, \['x'\], got 'y'"):
        ksivi.Target.from_pytree(
            density, {"x": jnp.ones(2)}, supports={"y": ksivi.supports.positive()}
        )
    with pytest.raises(
        ValueError, match=r"supports\['x'\] must be one of ksivi.supports, .* got 'positive'"
    ):
        ksivi.Target.from_pytree(density, {"x": jnp.ones(2)}, supports={"x": "positive"})
    with pytest.raises(ValueError, match=r"x must be greater than 0.0, got \[-1. 1.\]"):
        ksivi.Target.from_pytree(
            density, {"x": jnp.array([-1.0, 1.0])}, supports={"x": ksivi.supports.positive()}
        )
    with pytest.raises(
        ValueError, match="x must be a simplex, positive numbers that sum to 1, got"
    ):
        ksivi.Target.from_pytree(
            density, {"x": jnp.ones(3)}, supports={"x": ksivi.supports.simplex()}
        )
    on_the_edge = {"x": jnp.zeros(2)}
    with pytest.raises(ValueError, match="example must be inside its supports"):
        ksivi.Target.from_pytree(density, on_the_edge, supports={"x": ksivi.supports.positive()})
    with pytest.raises(ValueError, match=r"with at least 1 axes, got shape \(\)"):
        ksivi.Target.from_pytree(
            density, {"x": jnp.ones(())}, supports={"x": ksivi.supports.simplex()}
        )
    three = ksivi.supports.greater_than(jnp.array([0.1, 0.2, 0.3]))
    with pytest.raises(
        ValueError, match=r"bounds that broadcast to the shape \(\) of the .* got .* \(3,\)"
    ):
        ksivi.Target.from_pytree(density, {"x": jnp.ones(())}, supports={"x": three})
    with pytest.raises(ValueError, match="supports must be a dict with"):
        ksivi.Target.from_pytree(density, {"x": jnp.ones(2)}, supports=ksivi.supports.positive())
    for support, words in (
        (ksivi.supports.less_than(1), "less than 1.0, got 4"),
        (ksivi.supports.interval(0, 1), "between 0.0 and 1.0, got 4"),
    ):
        with pytest.raises(ValueError, match=f"x must be {words}"):
            ksivi.Target.from_pytree(density, {"x": jnp.array(4.0)}, supports={"x": support})
    with pytest.raises(ValueError, match="bounds must be real numbers, got 'a'"):
        ksivi.supports.less_than("a")
    with pytest.raises(ValueError, match="bounds must be finite, got nan"):
        ksivi.supports.greater_than(float("nan"))
    with pytest.raises(ValueError, match="lower must be below upper, got 2 and 1"):
        ksivi.supports.interval(2, 1)
