"""AISIVI and its proposal, a conditional RealNVP."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import ksivi
from ksivi.families import SampledMixing
from ksivi.objectives import AISIVI
from ksivi.objectives._real_nvp import RealNVP
from linear import COVARIANCE, KEY, OFFSET, linear_family, normal_target

X = jnp.array([0.3, -1.2, 0.7])


def flow_of(dim, seed=0, size=0.7):
    """A flow far from N(0, I)."""
    flow = RealNVP(jax.random.key(seed), dim, 3, 4, (8,))
    leaves, structure = jax.tree.flatten(flow)
    keys = jax.random.split(jax.random.key(seed + 1), len(leaves))
    normals = [
        size * jax.random.normal(k, a.shape, a.dtype) for k, a in zip(keys, leaves, strict=True)
    ]
    return jax.tree.unflatten(structure, normals)


@pytest.mark.parametrize("dim", [1, 2, 5])
def test_the_flow_and_its_inverse(dim, x64):
    """z ↦ u ↦ z, with the determinant of the Jacobian."""
    flow, u = flow_of(dim), jax.random.normal(KEY, (dim,))
    z, log_prob = flow.sample_and_log_prob(u, X)
    jacobian = jax.jacfwd(lambda u: flow.sample_and_log_prob(u, X)[0])(u)
    exact = -0.5 * np.sum(u**2 + np.log(2 * np.pi)) - np.linalg.slogdet(jacobian)[1]
    assert np.all(np.abs(z - u) > 1e-3)
    np.testing.assert_allclose(log_prob, exact, rtol=1e-10)
    np.testing.assert_allclose(flow.log_prob(z, X), exact, rtol=1e-10)
    for layer in flow.layers:
        moved, log_det = layer(u, X)
        back, other = layer.inverse(moved, X)
        np.testing.assert_allclose(back, u, rtol=1e-10)
        np.testing.assert_allclose(log_det, -other, rtol=1e-10)


def test_the_density_of_the_flow_integrates_to_one(x64):
    """In the plane, for two values of x."""
    axis, flow = jnp.linspace(-12, 12, 241), flow_of(2, size=0.25)
    grid = jnp.stack(jnp.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    for x in (X, -2 * X):
        values = jax.jit(jax.vmap(flow.log_prob, (0, None)))(grid, x)
        np.testing.assert_allclose(jnp.sum(jnp.exp(values)) * 0.1**2, 1, rtol=1e-3)


def test_a_new_flow_is_a_standard_normal():
    flow, u = RealNVP(KEY, 4, 3, 3, (8,)), jnp.arange(4.0)
    z, log_prob = flow.sample_and_log_prob(u, X)
    np.testing.assert_array_equal(z, u)
    np.testing.assert_allclose(log_prob, -0.5 * jnp.sum(u**2 + jnp.log(2 * jnp.pi)), rtol=1e-6)


def still(objective, num_steps):
    """A run in which the proposal alone is trained."""
    options = {"optimizer": optax.set_to_zero(), "num_steps": num_steps}
    return ksivi.train(KEY, normal_target(), linear_family(), objective, **options)


def test_the_proposal_approaches_z_given_x():
    """The weights become equal, and the gradient ∇ log q(x) exact: q(x) is a known normal."""
    optimizer = optax.adam(optax.cosine_decay_schedule(1e-2, 600))
    objective = AISIVI(200, 20, 4, (16,), proposal_optimizer=optimizer)
    fit = still(objective, 600)
    efficiency = fit.history["proposal_efficiency"]
    assert efficiency[0] < 0.6
    assert efficiency[-50:].mean() > 0.9
    draws = objective.draw(KEY, normal_target(), linear_family())

    def total(family, flow):
        return objective.loss(family, flow, draws, normal_target(), jnp.asarray(0))[0]

    def in_offset(state):
        return jax.tree.leaves(eqx.filter_grad(total)(linear_family(), state).conditional.mean)[1]

    x, _ = linear_family().transport((draws.z, draws.xi))
    score = -np.linalg.solve(COVARIANCE, (np.asarray(x) - OFFSET).T).T
    exact = np.mean(score + np.asarray(x), axis=0)
    start = objective.init(KEY, normal_target(), linear_family())
    trained, untrained = (in_offset(state) - exact for state in (fit.state.objective, start))
    assert np.linalg.norm(trained) < 0.05
    assert np.linalg.norm(trained) < 0.5 * np.linalg.norm(untrained)


def test_the_family_waits_for_the_proposal():
    cold, warm = (
        ksivi.train(KEY, normal_target(), linear_family(), AISIVI(8, 4, warm_up=5), num_steps=n)
        for n in (5, 7)
    )
    start, first, second = (
        jax.tree.leaves(family)
        for family in (linear_family(), cold.posterior.family, warm.posterior.family)
    )
    assert all(map(np.array_equal, start, first))
    assert not all(map(np.array_equal, start, second))
    assert cold.cost.score_evals == 5 * 8


def test_a_family_without_z_needs_no_proposal():
    family = ksivi.SemiImplicit.location_scale(3)
    fit = ksivi.train(KEY, normal_target(), family, AISIVI(8, 4), num_steps=5)
    np.testing.assert_allclose(fit.history["proposal_efficiency"], 1, rtol=1e-6)


def test_families_without_known_q_of_x_and_z_are_refused():
    sampler = SampledMixing(lambda key: jax.random.laplace(key, (2,)))
    with pytest.raises(ValueError, match="AISIVI needs the density of the mixing, since it weighs"):
        ksivi.train(KEY, normal_target(), linear_family(sampler), AISIVI(), num_steps=1)
    plain = linear_family()
    layered = ksivi.SemiImplicit(
        plain.mixing, plain.conditional, ksivi.families.Triangular.identity(3)
    )
    with pytest.raises(ValueError, match="AISIVI needs a family without an affine layer"):
        ksivi.train(KEY, normal_target(), layered, AISIVI(), num_steps=1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: AISIVI(0), "num_samples must be a whole number of at least 1"),
        (lambda: AISIVI(num_mixing=0), "num_mixing must be a whole number of at least 1"),
        (lambda: AISIVI(proposal_layers=0), "proposal_layers must be a whole number of at least 1"),
        (lambda: AISIVI(proposal_hidden=5), "proposal_hidden must be a list of widths"),
        (lambda: AISIVI(proposal_optimizer=1), "proposal_optimizer must be an Optax"),
        (lambda: AISIVI(proposal_steps=0), "proposal_steps must be a whole number of at least 1"),
        (lambda: AISIVI(warm_up=-1), "warm_up must be a whole number of at least 0"),
        (lambda: AISIVI(annealing=0.5), "annealing must be a function of the step"),
    ],
)
def test_bad_arguments_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
