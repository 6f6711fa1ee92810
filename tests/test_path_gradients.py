"""Objectives along the path gradient: KPG, KPG-IS, amortized SVGD and the denoised score.

Their losses against formulas written with loops, and their expected gradients on a linear-Gaussian family.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy.special import expit
from scipy.stats import multivariate_normal

import ksivi
from ksivi.kernels import Fixed, Gaussian
from ksivi.kernels import _pairwise as pairwise
from ksivi.objectives import KPG, KPGIS, AmortizedSVGD, DenoisedScore
from linear import COVARIANCE, KEY, OFFSET, linear_family, normal_target
from test_formulas import SIGMA, N, gradient_in_offset, log_mixing, place, stein_ratio, step_of

H = 3.0
FIXED = Gaussian(Fixed(H))
PRECISION = np.linalg.inv(COVARIANCE)


def equals(objective, force, step=0, target=None):
    """The loss is the mean of ⟨f, x⟩, and its gradient holds f constant."""
    draws, state, loss = step_of(objective, step, target)
    value, records = loss(linear_family())
    force, scored = force(draws, state)
    x = place(*(np.asarray(a).reshape(-1, N, a.shape[-1])[0] for a in (draws.z, draws.xi)))
    np.testing.assert_allclose(value, np.mean(np.sum(force * x, axis=1)), rtol=1e-8)
    np.testing.assert_allclose(gradient_in_offset(loss), force.mean(axis=0), rtol=1e-8)
    np.testing.assert_allclose(records["stein_ratio"], stein_ratio(scored, -scored), rtol=1e-8)


def both_batches(draws):
    (x, others), noise = place(draws.z, draws.xi), np.asarray(draws.xi[1])
    return x, others, -noise / SIGMA


def kpgs_force(x, others, conditional_score, h, beta=1.0):
    force = np.zeros_like(x)
    for j in range(N):
        for i in range(N):
            k = np.exp(-np.sum((x[j] - others[i]) ** 2) / h)
            force[j] += k * (conditional_score[i] + beta * others[i]) / N
    return force


def median_bandwidth(x, y, pairs):
    squares = sorted(np.sum((x[j] - y[i]) ** 2) for j, i in pairs)
    return squares[(len(squares) - 1) // 2] / np.log(N + 1)


@pytest.mark.parametrize("tile", [None, 2 * N])
def test_kpg(tile, x64, monkeypatch):
    monkeypatch.setattr(pairwise, "TILE", tile)

    def force(draws, _):
        x, others, conditional_score = both_batches(draws)
        h = median_bandwidth(x, others, [(j, i) for j in range(N) for i in range(N)])
        return kpgs_force(x, others, conditional_score, h), others

    equals(KPG(N), force)


@pytest.mark.parametrize("tile", [None, 2 * N])
def test_amortized_svgd(tile, x64, monkeypatch):
    monkeypatch.setattr(pairwise, "TILE", tile)

    def force(draws, _):
        x, others, _ = both_batches(draws)
        force = np.zeros_like(x)
        for j in range(N):
            for i in range(N):
                k = np.exp(-np.sum((x[j] - others[i]) ** 2) / H)
                slope = 2 / H * (x[j] - others[i]) * k  # ∇ in the second argument
                force[j] += (k * others[i] - slope) / N
        return force, others

    equals(AmortizedSVGD(N, kernel=FIXED), force)


def test_an_annealed_score(x64):
    def force(draws, _):
        x, others, conditional_score = both_batches(draws)
        return kpgs_force(x, others, conditional_score, H, beta=0.5), others

    annealing = ksivi.Annealing(start=0.2, horizon=10)
    equals(KPG(N, kernel=FIXED, annealing=annealing), force, step=3)


def parameters_at(state, x):
    """m, s and α at one x, for two mixing variables and α_min = 0.3."""
    found = np.asarray(state.network(jnp.asarray(x)), float)
    return found[:2], np.exp(0.5 * found[2:4]), 0.3 + 0.7 * expit(found[4])


def test_kpg_is(x64):
    chosen = []

    def force(draws, state):
        x, noise, l = place(draws.z, draws.xi), draws.proposals, 4
        h = median_bandwidth(x, x, [(j, i) for j in range(N) for i in range(N) if i != j])
        force = np.zeros_like(x)
        for i in range(N):
            m, s, share = parameters_at(state, x[i])
            for j in range(l):
                from_mixing = noise.levels[i, j] < share
                z = np.asarray(noise.mixing[i, j] if from_mixing else m + s * noise.normal[i, j])
                local = multivariate_normal(m, np.diag(s**2)).pdf(z)
                density = np.exp(log_mixing(z))
                weight = density / (share * density + (1 - share) * local)
                other = place(z, draws.proposed_xi[i, j])
                k = np.exp(-np.sum((x[i] - other) ** 2) / h)
                score = -np.asarray(draws.proposed_xi[i, j]) / SIGMA
                force[i] += weight * k * (score + other) / l
                chosen.append(bool(from_mixing))
        return force, x

    equals(KPGIS(N, 4, min_share=0.3, proposal_hidden=(4,)), force)
    assert {True, False} == set(chosen)  # the draws must tell the cases apart


def test_kpg_is_fits_its_proposal_by_one_step(x64):
    objective = KPGIS(N, 2, proposal_hidden=(4,), proposal_optimizer=optax.sgd(1e-2), min_share=0.3)
    draws, state, _ = step_of(objective)
    before = objective.init(KEY, normal_target(), linear_family())
    x = place(draws.z, draws.xi)

    def loss(state):
        total = 0.0
        for i in range(N):
            m, s, share = parameters_at(state, x[i])
            local = multivariate_normal(m, np.diag(s**2)).pdf(draws.z[i])
            total -= np.log(share * np.exp(log_mixing(draws.z[i])) + (1 - share) * local) / N
        return total

    def nudged(state, eps):
        moved = jax.tree.map(lambda a, b: a + eps * (b - a), before.network, state.network)
        return state._replace(network=moved)

    # Along its own step, the loss falls by rate · ‖gradient‖², and the step is rate · gradient.
    leaves = zip(jax.tree.leaves(before.network), jax.tree.leaves(state.network), strict=True)
    squares = sum(float(jnp.sum((a - b) ** 2)) for a, b in leaves)
    slope = (loss(nudged(state, 1e-4)) - loss(nudged(state, -1e-4))) / 2e-4
    np.testing.assert_allclose(slope, -squares / 1e-2, rtol=1e-5)


def test_the_denoised_score(x64):
    def force(draws, state):
        x = place(draws.z, draws.xi)
        return np.asarray(jax.vmap(state.network)(jnp.asarray(x))) + x, x

    equals(DenoisedScore(N, (4,), network_samples=5), force)


def test_the_denoised_score_is_regressed(x64):
    """Two steps of plain descent, each on its own batch."""
    objective = DenoisedScore(
        N, (4,), network_steps=2, network_samples=5, network_optimizer=optax.sgd(1e-3)
    )
    draws, state, _ = step_of(objective)
    network = objective.init(KEY, normal_target(), linear_family()).network

    def error(network, batch):
        x = jnp.asarray(place(draws.network_z[batch], draws.network_xi[batch]))
        wanted = jnp.asarray(-np.asarray(draws.network_xi[batch]) / SIGMA)
        return jnp.mean(jnp.sum((jax.vmap(network)(x) - wanted) ** 2, axis=1))

    for batch in (0, 1):
        network = jax.tree.map(lambda a, g: a - 1e-3 * g, network, jax.grad(error)(network, batch))
    for a, b in zip(jax.tree.leaves(state.network), jax.tree.leaves(network), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-8)


def exact_score(state):
    """A linear network that is ∇ log q."""
    network = state.network
    weights = (jnp.asarray(-PRECISION, network.weights[0].dtype),)
    biases = (jnp.asarray(PRECISION @ OFFSET, network.biases[0].dtype),)
    leaves = jax.tree.leaves((weights, biases))
    return state._replace(network=jax.tree.unflatten(jax.tree.structure(network), leaves))


OBJECTIVES = {
    "kpg": KPG(50, kernel=FIXED),
    "amortized svgd": AmortizedSVGD(50, kernel=FIXED),
    "kpg-is": KPGIS(50, 5, kernel=FIXED, proposal_hidden=(8,)),
    "denoised": DenoisedScore(50, (), network_samples=2, network_steps=1),
}


def gradients(name, target, repeats=2_000):
    """The gradient in all parameters, for each of many draws: its means and their standard errors."""
    objective, family, step = OBJECTIVES[name], linear_family(), jnp.asarray(0)
    state = objective.init(KEY, target, family)
    state = exact_score(state) if name == "denoised" else state

    def gradient(key):
        draws = objective.draw(key, target, family)
        loss = lambda family: objective.loss(family, state, draws, target, step)[0]  # noqa: E731
        return jax.grad(loss)(family).conditional

    found = jax.jit(jax.vmap(gradient))(jax.random.split(jax.random.key(7), repeats))
    moments = lambda a: (a.mean(0), a.std(0) / np.sqrt(repeats))  # noqa: E731
    return jax.tree.map(lambda a: moments(np.asarray(a, float)), found)


def flat(moments):
    pairs = jax.tree.leaves(moments, is_leaf=lambda one: isinstance(one, tuple) and len(one) == 2)
    return (
        np.concatenate([np.ravel(part) for part in parts]) for parts in zip(*pairs, strict=True)
    )


@pytest.mark.parametrize("name", OBJECTIVES)
def test_the_expected_gradient_in_the_offset(name):
    """For q = N(b, C) and p = N(0, I) it is b E k(x, x′) = b det(I + 4C/h)^(−1/2), and b without a kernel."""
    mean, error = gradients(name, normal_target()).mean.biases[0]
    smoothing = np.linalg.det(np.eye(3) + 4 * COVARIANCE / H) ** -0.5
    expected = OFFSET if name == "denoised" else smoothing * OFFSET
    assert np.all(np.abs(mean - expected) < 4 * error)
    assert np.any(np.abs(mean) > 10 * error)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_at_the_truth_the_expected_gradient_is_zero(name):
    precision, centre = jnp.asarray(PRECISION, float), jnp.asarray(OFFSET, float)
    target = ksivi.Target(lambda x: -0.5 * (x - centre) @ precision @ (x - centre), dim=3)
    found = gradients(name, target)
    for mean, error in (found.mean.weights[0], found.mean.biases[0], found.log_var.value):
        assert np.all(np.abs(mean) < 4 * error + 1e-6)  # the exact score leaves rounding alone


@pytest.mark.parametrize("name", OBJECTIVES)
def test_minibatches_and_scores_alone_have_the_same_expected_loss(name):
    """The loss is linear in the target's score, so one minibatch per step is no bias."""
    rows = jnp.asarray(np.random.default_rng(0).normal(size=(10, 3)), float)
    parts = {
        "log_prior": lambda x: -0.5 * jnp.sum(x**2),
        "log_likelihood": lambda x, batch: -0.5 * jnp.sum((batch - x[None]) ** 2),
        "data": rows,
        "dim": 3,
    }
    whole, some = (ksivi.Target.from_data(**parts, batch_size=b) for b in (None, 2))
    blind = ksivi.Target.from_score(whole.score, dim=3)
    objective, family, step = OBJECTIVES[name], linear_family(), jnp.asarray(0)
    state, draws = objective.init(KEY, some, family), objective.draw(KEY, some, family)
    assert draws.rows.shape == (2,)

    def loss(target, rows):
        return objective.loss(family, state, draws._replace(rows=rows), target, step)[0]

    batches = some.draw_rows(jax.random.split(jax.random.key(3), 500))
    found = np.asarray(jax.jit(jax.vmap(lambda rows: loss(some, rows)))(batches), float)
    exact = float(loss(whole, None))
    assert abs(found.mean() - exact) < 4 * found.std() / np.sqrt(500)
    np.testing.assert_allclose(loss(blind, None), exact, rtol=1e-5)


def test_the_proposal_is_a_density_that_it_draws_from():
    """The mean weight is 1, none is above 1/α_min, and E_τ[w g(z)] = E_q[g(z)]."""
    objective, family = KPGIS(2, 20_000, min_share=0.25, proposal_hidden=(8,)), linear_family()
    state = objective.init(KEY, normal_target(), family)
    noise = jax.tree.map(lambda a: a[0], objective.draw(KEY, normal_target(), family).proposals)
    proposal, x = objective._proposal(family, state.network), jnp.array([1.0, -2.0, 0.5])
    z = proposal.sample(noise, x)
    weights = np.asarray(jnp.exp(jax.vmap(proposal.log_weight, (0, None))(z, x)), float)
    assert weights.max() < 4
    assert weights.std() > 0.1
    z = np.asarray(z, float)
    for values, expected in ((np.ones(len(z)), 1.0), (z[:, 0], 0.0), (z[:, 1] ** 2, 1.0)):
        weighed = weights * values
        assert abs(weighed.mean() - expected) < 4 * weighed.std() / np.sqrt(len(z))


def test_the_regression_finds_the_score():
    """With a linear network it is least squares, whose answer is −C⁻¹(x − b)."""
    rate = optax.cosine_decay_schedule(2e-2, 2_000)
    objective = DenoisedScore(2, (), network_samples=500, network_optimizer=optax.adam(rate))
    still = {"optimizer": optax.set_to_zero(), "num_steps": 400, "progress": False}
    fit = ksivi.train(KEY, normal_target(), linear_family(), objective, **still)
    network = fit.state.objective.network
    assert fit.cost.score_evals == 400 * 2
    np.testing.assert_allclose(network.weights[0], -PRECISION, atol=0.05)
    np.testing.assert_allclose(network.biases[0], PRECISION @ OFFSET, atol=0.05)


def test_kpg_is_refuses_a_mixing_without_density():
    sampler = ksivi.families.SampledMixing(lambda key: jax.random.laplace(key, (2,)))
    with pytest.raises(ValueError, match="KPGIS needs the density of the mixing"):
        ksivi.train(KEY, normal_target(), linear_family(sampler), KPGIS(), num_steps=1)
    known = ksivi.families.SampledMixing(
        sampler.sampler, lambda z: -jnp.sum(jnp.abs(z) + jnp.log(2.0))
    )
    ksivi.train(KEY, normal_target(), linear_family(known), KPGIS(4, 2), num_steps=1)
    # The others only need the sampler.
    ksivi.train(KEY, normal_target(), linear_family(sampler), KPG(10), num_steps=1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: KPG(0), "num_samples must be a whole number of at least 1"),
        (lambda: KPG(kernel="gaussian"), "kernel must be one of ksivi.kernels"),
        (lambda: KPG(annealing=0.5), "annealing must be a function of the step"),
        (lambda: AmortizedSVGD(kernel=ksivi.kernels.Riesz()), "twice differentiable"),
        (lambda: AmortizedSVGD(num_samples=1.5), "num_samples must be a whole number"),
        (lambda: KPGIS(1), "num_samples must be a whole number of at least 2"),
        (lambda: KPGIS(num_proposals=0), "num_proposals must be a whole number of at least 1"),
        (lambda: KPGIS(min_share=1.0), "min_share must be between 0 and 1, got 1.0"),
        (lambda: KPGIS(min_share=-0.1), "min_share must be one positive number"),
        (lambda: KPGIS(proposal_hidden=5), "proposal_hidden must be a list of widths"),
        (lambda: KPGIS(proposal_optimizer=0.1), "proposal_optimizer must be an Optax"),
        (lambda: DenoisedScore(network_hidden=5), "network_hidden must be a list of widths"),
        (lambda: DenoisedScore(network_optimizer="adam"), "network_optimizer must be an Optax"),
        (lambda: DenoisedScore(network_steps=0), "network_steps must be a whole number"),
        (lambda: DenoisedScore(network_samples=0), "network_samples must be a whole number"),
    ],
)
def test_bad_arguments_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
