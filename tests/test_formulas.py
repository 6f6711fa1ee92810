"""Compares the loss of every objective with its formula, written with loops, at given draws."""

import inspect

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy import stats
from scipy.special import logsumexp

import ksivi
from ksivi.objectives import (
    AISIVI,
    KPG,
    KPGIS,
    PVI,
    AbstractObjective,
    AmortizedSVGD,
    DenoisedScore,
)
from linear import KEY, LOG_CONSTANT, LOG_VAR, OFFSET, WEIGHT, linear_family, normal_target

N = 7
SIGMA = np.exp(0.5 * LOG_VAR)
POINTS = np.random.default_rng(0).normal(size=(11, 3))


def place(z, xi):
    return np.asarray(z) @ WEIGHT + OFFSET + SIGMA * np.asarray(xi)


def log_conditional(x, z):
    """log q(x|z) of one x for each z."""
    return stats.multivariate_normal(np.zeros(3), np.diag(SIGMA**2)).logpdf(
        x - np.asarray(z) @ WEIGHT - OFFSET
    )


def log_target(x):
    return LOG_CONSTANT + stats.multivariate_normal(np.zeros(3)).logpdf(x)


def log_mixing(z):
    return stats.multivariate_normal(np.zeros(2)).logpdf(np.asarray(z))


def log_mean_conditional(x, draws):
    """log 1/(K+1) Σₖ q(x|zₖ) over the z that made x and the K others, for each x."""
    own = zip(x, np.asarray(draws.z), strict=True)
    parts = [log_conditional(point, np.concatenate([z[None], draws.others])) for point, z in own]
    return logsumexp(parts, axis=1) - np.log(len(parts[0]))


def step_of(objective, step=0, target=None):
    """The draws of one step, the inner state, and the loss as a function of the family."""
    target, family, step = target or normal_target(), linear_family(), jnp.asarray(step, jnp.int32)
    before, draws = (
        objective.init(KEY, target, family),
        objective.draw(jax.random.key(5), target, family),
    )
    state = objective.prepare(before, draws, target, family, step)
    return draws, state, lambda family: objective.loss(family, state, draws, target, step)


def gradient_in_offset(loss):
    """In b, where x = Wᵀz + b + σξ."""
    return jax.tree.leaves(
        eqx.filter_grad(lambda family: loss(family)[0])(linear_family()).conditional.mean
    )[1]


def stein_ratio(x, score):
    return -np.mean(score * (x - x.mean(axis=0)))


def test_sivi(x64):
    draws, _, loss = step_of(ksivi.SIVI(N, num_mixing=5))
    value, records = loss(linear_family())
    x = place(draws.z, draws.xi)
    np.testing.assert_allclose(
        value, np.mean(log_mean_conditional(x, draws) - log_target(x)), rtol=1e-10
    )
    np.testing.assert_allclose(records["stein_ratio"], stein_ratio(x, -x), rtol=1e-10)


def test_an_annealed_target_is_raised_to_the_power_beta(x64):
    draws, _, loss = step_of(
        ksivi.SIVI(N, 5, annealing=ksivi.Annealing(start=0.2, horizon=10)), step=3
    )
    value, records = loss(linear_family())
    x = place(draws.z, draws.xi)
    np.testing.assert_allclose(
        value, np.mean(log_mean_conditional(x, draws) - 0.5 * log_target(x)), rtol=1e-8
    )
    np.testing.assert_allclose(records["inverse_temperature"], 0.5, rtol=1e-6)
    np.testing.assert_allclose(records["stein_ratio"], stein_ratio(x, -x), rtol=1e-8)


def test_annealing_from_a_gaussian_base(x64):
    """log p^β N(0, s² I)^(1−β); the record of the Stein ratio refers to the target itself."""
    annealing = ksivi.Annealing(start=0.2, horizon=10, base_scale=3.0)
    draws, _, loss = step_of(ksivi.SIVI(N, 5, annealing=annealing), step=3)
    value, records = loss(linear_family())
    x = place(draws.z, draws.xi)
    log_tempered = 0.5 * log_target(x) - 0.5 * np.sum(x**2, axis=1) / (2 * 3.0**2)
    np.testing.assert_allclose(
        value, np.mean(log_mean_conditional(x, draws) - log_tempered), rtol=1e-8
    )
    np.testing.assert_allclose(records["inverse_temperature"], 0.5, rtol=1e-6)
    np.testing.assert_allclose(records["stein_ratio"], stein_ratio(x, -x), rtol=1e-6)


def test_the_score_of_a_target_with_a_base_is_the_gradient_of_its_density(x64):
    heated = normal_target().tempered(0.3, base_scale=2.0)
    point = jnp.asarray(POINTS[0])
    gradient = jax.grad(heated.log_density)(point)
    value, score = heated.log_density_and_score(point)
    np.testing.assert_allclose(heated.score(point), gradient, rtol=1e-6)
    np.testing.assert_allclose(score, gradient, rtol=1e-6)
    np.testing.assert_allclose(value, heated.log_density(point), rtol=1e-6)
    np.testing.assert_allclose(gradient, -(0.3 + 0.7 / 4) * POINTS[0], rtol=1e-6)


@pytest.mark.parametrize("base_dof", [None, 2.0])
def test_a_base_is_weighed_by_what_is_left(base_dof, x64):
    """β log p + (1 − β) log b, with a Gaussian b or a product of Student-t; its gradient; p's score."""
    target, point = normal_target(), jnp.asarray(POINTS[0])
    heated = target.tempered(0.3, base_scale=2.0, base_dof=base_dof)
    base = stats.norm(scale=2) if base_dof is None else stats.t(base_dof, scale=2)
    log_base = base.logpdf(POINTS[0]) - base.logpdf(0)
    expected = 0.3 * target.log_density(point) + 0.7 * np.sum(log_base)
    np.testing.assert_allclose(heated.log_density(point), expected, rtol=1e-6)
    np.testing.assert_allclose(heated.score(point), jax.grad(heated.log_density)(point), rtol=1e-6)
    restored = heated.temperature.undone(heated.score(point)[None], point[None])
    np.testing.assert_allclose(restored[0], target.score(point), rtol=1e-6)


def test_schedules():
    annealing = ksivi.Annealing(start=0.2, horizon=10)
    found = [float(annealing(jnp.asarray(step))) for step in (0, 3, 8, 100)]
    np.testing.assert_allclose(found, [0.2, 0.5, 1.0, 1.0], rtol=1e-6)
    decay = ksivi.Decay(start=2.0, factor=0.5, every=10)
    found = [float(decay(jnp.asarray(step))) for step in (0, 9, 10, 35)]
    np.testing.assert_allclose(found, [2.0, 2.0, 1.0, 0.25], rtol=1e-6)


def test_uivis_loss_and_gradient(x64):
    draws, state, loss = step_of(ksivi.UIVI(N, num_burn_in=1, num_kept=2))
    x = place(draws.z, draws.xi)
    force = np.asarray(state.score) + x  # ∇ log q − s_p, with s_p = −x
    np.testing.assert_allclose(
        loss(linear_family())[0], np.mean(np.sum(force * x, axis=1)), rtol=1e-10
    )
    np.testing.assert_allclose(gradient_in_offset(loss), force.mean(axis=0), rtol=1e-8)


def test_uivis_chains(x64):
    """Hamiltonian Monte Carlo on q(z|x), chain by chain. The step size adapts in burn-in."""
    objective = ksivi.UIVI(N, num_burn_in=3, num_kept=2, num_leapfrog=4, step_size=0.9)
    draws, state, _ = step_of(objective)
    x, z, size = place(draws.z, draws.xi), np.array(draws.z), 0.9
    energy = lambda x, z: log_conditional(x, z) + log_mixing(z)  # noqa: E731
    slope = lambda x, z: (x - z @ WEIGHT - OFFSET) / SIGMA**2 @ WEIGHT.T - z  # noqa: E731
    total, rejected, downhill = np.zeros_like(x), 0, 0
    for t in range(5):
        acceptance = np.zeros(N)
        for i in range(N):
            at, p = z[i], np.asarray(draws.momenta[t, i])
            start = energy(x[i], at) - 0.5 * p @ p
            for _ in range(4):
                p = p + 0.5 * size * slope(x[i], at)
                at = at + size * p
                p = p + 0.5 * size * slope(x[i], at)
            gain = energy(x[i], at) - 0.5 * p @ p - start
            acceptance[i], downhill = min(1.0, np.exp(gain)), downhill + (gain < 0)
            if draws.levels[t, i] < acceptance[i]:
                z[i] = at
            else:
                rejected += 1
        if t < 3:
            size *= 1 + 0.01 * (acceptance.mean() - 0.9) / 0.9
        else:
            total -= (x - z @ WEIGHT - OFFSET) / SIGMA**2
    assert rejected > 0  # the draws must tell the cases apart
    assert 0 < downhill < 5 * N
    np.testing.assert_allclose(state.score, total / 2, rtol=1e-8)
    np.testing.assert_allclose(state.step_size, size, rtol=1e-10)


def sivi_sms_value(draws, batch, network, weight):
    x = place(draws.z[batch], draws.xi[batch])
    g = np.asarray(jax.vmap(network)(jnp.asarray(x))) - weight * x
    return np.mean(np.sum(g * (2 * (-x + np.asarray(draws.xi[batch]) / SIGMA) - g), axis=1))


@pytest.mark.parametrize("weight", [0.0, 0.25])
def test_sivi_sms_value(weight, x64):
    decay = {"score_weight": ksivi.Decay(start=1.0, factor=0.5, every=2)} if weight else {}
    draws, state, loss = step_of(ksivi.SIVISM(N, (4,), critic_steps=2, **decay), step=5)
    assert draws.z.shape == (3, N, 2)
    np.testing.assert_allclose(
        loss(linear_family())[0], sivi_sms_value(draws, -1, state.network, weight), rtol=1e-6
    )


def test_sivi_sms_critic_climbs(x64):
    """Two steps of plain ascent, each on its own batch."""
    objective = ksivi.SIVISM(N, (4,), critic_steps=2, critic_optimizer=optax.sgd(1e-3))
    draws, state, _ = step_of(objective)
    network = objective.init(KEY, normal_target(), linear_family()).network

    def value(network, batch):
        x = jnp.asarray(place(draws.z[batch], draws.xi[batch]))
        g, noise = jax.vmap(network)(x), jnp.asarray(np.asarray(draws.xi[batch]) / SIGMA)
        return jnp.mean(jnp.sum(g * (2 * (-x + noise) - g), axis=1))

    for batch in (0, 1):
        network = jax.tree.map(lambda a, g: a + 1e-3 * g, network, jax.grad(value)(network, batch))
    for found, expected in zip(
        jax.tree.leaves(state.network), jax.tree.leaves(network), strict=True
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-8)


def test_sivi_sm_holds_the_family_still_in_its_warm_up():
    for step, moves in ((0, False), (2, False), (3, True), (4, True), (9, True)):
        _, _, loss = step_of(ksivi.SIVISM(N, (4,), warm_up=3), step)
        assert np.any(np.asarray(gradient_in_offset(loss)) != 0) == moves


def wakes_value(draws, scale):
    """−Σ w log q / Σ w with w = p/m, and the points.

    All means are over the K draws and the z that made x.
    """
    x = place(draws.z, draws.xi)

    def wide(z):
        wider = log_mixing(np.asarray(z) / scale) - 2 * np.log(scale)
        return np.logaddexp(log_mixing(z), wider) - np.log(2)

    log_w, log_q = np.zeros(N), np.zeros(N)
    for i in range(N):
        z = np.concatenate([draws.z[i : i + 1], draws.others])
        parts = log_conditional(x[i], z)
        log_q[i] = logsumexp(parts + log_mixing(z) - wide(z)) - np.log(len(z))
        log_w[i] = log_target(x[i]) - logsumexp(parts) + np.log(len(z))
    w = np.exp(log_w - log_w.max())
    w = np.minimum(w, w.mean() * np.sqrt(N))
    return -np.sum(w * log_q) / w.sum(), x


def test_wake(x64):
    draws, _, loss = step_of(ksivi.Wake(N, num_mixing=5, scale=1.7))
    value, x = wakes_value(draws, 1.7)
    found, records = loss(linear_family())
    np.testing.assert_allclose(found, value, rtol=1e-6)
    np.testing.assert_allclose(records["stein_ratio"], stein_ratio(x, -x), rtol=1e-8)


def test_jeffreys_weighs_both_divergences(x64):
    reverse, forward = ksivi.SIVI(N, 5), ksivi.Wake(N, 6)
    draws, _, loss = step_of(ksivi.Jeffreys(reverse, forward, share=0.3))
    step, target, family = jnp.asarray(0), normal_target(), linear_family()
    parts = [
        half.loss(family, None, own, target, step)[0]
        for half, own in ((reverse, draws.reverse), (forward, draws.forward))
    ]
    value, records = loss(family)
    np.testing.assert_allclose(value, 0.7 * parts[0] + 0.3 * parts[1], rtol=1e-6)
    np.testing.assert_allclose(records["bound"], parts[0], rtol=1e-10)


def test_maximum_likelihood(x64):
    draws, _, loss = step_of(ksivi.MaximumLikelihood(POINTS, num_samples=300, num_mixing=5))
    assert set(np.asarray(draws.chosen)) == set(range(len(POINTS)))
    log_q = [
        logsumexp(log_conditional(POINTS[i], draws.z)) - np.log(5) for i in np.asarray(draws.chosen)
    ]
    value, records = loss(linear_family())
    np.testing.assert_allclose(value, -np.mean(log_q), rtol=1e-8)
    assert records["stein_ratio"] == 0


def test_mean_prediction(x64):
    inputs, outputs = POINTS, np.arange(11.0)
    draws, _, loss = step_of(
        ksivi.MeanPrediction(lambda x, inputs: inputs @ x, inputs, outputs, num_samples=N)
    )
    x = place(draws.z, draws.xi)
    value, records = loss(linear_family())
    np.testing.assert_allclose(
        value, np.mean((outputs - (inputs @ x.T).mean(axis=1)) ** 2), rtol=1e-8
    )
    np.testing.assert_allclose(records["stein_ratio"], stein_ratio(x, -x), rtol=1e-8)


def mixture_score(x, z):
    """∇ₓ log 1/M Σₘ q(x|zₘ), for each x."""
    scores = []
    for point in x:
        parts = np.exp(log_conditional(point, z))
        slopes = (np.asarray(z) @ WEIGHT + OFFSET - point) / SIGMA**2
        scores.append(parts @ slopes / parts.sum())
    return np.array(scores)


def pvis_batch(z, xi, beta):
    """The x of each particle in turn, and the path gradients ∇ log q − β s_p there."""
    x = np.concatenate([place(z[m : m + 1], xi[2 * m : 2 * m + 2]) for m in range(len(z))])
    return x, mixture_score(x, z) + beta * x


def test_pvis_loss_and_gradient(x64):
    draws, state, loss = step_of(PVI(4, noise_per_z=2))
    z, xi = np.asarray(state.z), np.asarray(draws.batches[0][1])
    x, force = pvis_batch(z, xi, 1)
    log_q = [logsumexp(log_conditional(point, z)) - np.log(4) for point in x]
    value, records = loss(linear_family())
    np.testing.assert_allclose(value, np.mean(log_q - log_target(x)), rtol=1e-10)
    np.testing.assert_allclose(records["stein_ratio"], stein_ratio(x, -x), rtol=1e-10)
    # Not the gradient of the value, in which ∇ log q cancels: b moves x and q alike.
    np.testing.assert_allclose(gradient_in_offset(loss), force.mean(axis=0), rtol=1e-8)


def test_pvis_particles(x64):
    """A preconditioned Langevin step along the path gradient, with an annealed target."""
    options = {"annealing": ksivi.Annealing(start=0.2, horizon=10)}
    objective = PVI(4, 2, step_size=0.05, temperature=0.3, **options)
    draws, state, _ = step_of(objective, step=3)
    z = np.asarray(objective.init(KEY, normal_target(), linear_family()).z)
    _, force = pvis_batch(z, np.asarray(draws.batches[0][0]), 0.5)
    slope = force.reshape(4, 2, 3).mean(axis=1) @ WEIGHT.T
    squares = 0.1 * np.mean(slope**2, axis=0)
    moved = z - 0.05 * (slope / np.sqrt(squares) + 0.3 * z)
    moved += np.sqrt(2 * 0.05 * 0.3) * np.asarray(draws.langevin)
    np.testing.assert_allclose(state.squares, squares, rtol=1e-7)
    np.testing.assert_allclose(state.z, moved, rtol=1e-7)


def test_aisivis_loss_and_gradient(x64):
    """After steps that take the proposal away from N(0, I)."""
    options = {"proposal_optimizer": optax.sgd(0.3), "proposal_steps": 3}
    draws, state, loss = step_of(AISIVI(N, 5, 2, (4,), **options))
    x = place(draws.z, draws.xi)
    log_q, force = np.zeros(N), np.zeros((N, 3))
    for i in range(N):
        parts, slopes = np.zeros(5), np.zeros((5, 3))
        for k in range(5):
            z, log_tau = state.network.sample_and_log_prob(draws.proposed[i, k], jnp.asarray(x[i]))
            assert abs(log_tau - log_mixing(draws.proposed[i, k])) > 1e-3
            parts[k] = log_mixing(z) + log_conditional(x[i], z[None]) - log_tau
            slopes[k] = (np.asarray(z) @ WEIGHT + OFFSET - x[i]) / SIGMA**2
        log_q[i] = logsumexp(parts) - np.log(5)
        force[i] = np.exp(parts - logsumexp(parts)) @ slopes + x[i]
    value, records = loss(linear_family())
    np.testing.assert_allclose(value, np.mean(log_q - log_target(x)), rtol=1e-8)
    np.testing.assert_allclose(records["stein_ratio"], stein_ratio(x, -x), rtol=1e-8)
    assert 1 / 5 < records["proposal_efficiency"] < 1
    np.testing.assert_allclose(gradient_in_offset(loss), force.mean(axis=0), rtol=1e-6)


def test_aisivis_proposal_climbs(x64):
    """Two steps of plain ascent on E log τ(z|x), each on its own batch."""
    options = {"proposal_optimizer": optax.sgd(1e-2), "proposal_steps": 2}
    objective = AISIVI(N, 5, 2, (4,), **options)
    draws, state, _ = step_of(objective)
    flow = objective.init(KEY, normal_target(), linear_family()).network
    for z, xi in zip(*draws.joint, strict=True):
        x = place(z, xi)

        def value(flow, z=z, x=x):
            return sum(flow.log_prob(z[i], jnp.asarray(x[i])) for i in range(N)) / N

        flow = jax.tree.map(lambda a, g: a + 1e-2 * g, flow, jax.grad(value)(flow))
    for found, expected in zip(jax.tree.leaves(state.network), jax.tree.leaves(flow), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-12)


# Small instances of every objective, with score evaluations and minibatches per step.
MADE = {
    "KSIVI": (lambda: ksivi.KSIVI(num_samples=6), 12, 2),
    "KSIVI, u-statistic": (lambda: ksivi.KSIVI(estimator="u-statistic", num_samples=6), 6, 2),
    "KSIVI, combined": (lambda: ksivi.KSIVI(estimator="combined", num_samples=6), 12, 2),
    "KSIVI, mixture": (lambda: ksivi.KSIVI(estimator="mixture", num_samples=6), 12, 2),
    "KSIVI, shared rows": (lambda: ksivi.KSIVI(num_samples=6, shared_rows=True), 12, 1),
    "SIVI": (lambda: ksivi.SIVI(6, 5), 6, 1),
    "SIVISM": (lambda: ksivi.SIVISM(6, (4,), critic_steps=3), 24, 4),
    "UIVI": (lambda: ksivi.UIVI(6), 6, 1),
    "KPG": (lambda: KPG(6), 6, 1),
    "KPGIS": (lambda: KPGIS(6, 5, proposal_hidden=(4,)), 36, 1),
    "AmortizedSVGD": (lambda: AmortizedSVGD(6), 6, 1),
    "DenoisedScore": (lambda: DenoisedScore(6, (4,), network_steps=3), 6, 1),
    "PVI": (lambda: PVI(4, 2), 16, 2),
    "AISIVI": (lambda: AISIVI(6, 5, 2, (4,)), 6, 1),
    "Wake": (lambda: ksivi.Wake(6, 5), 6, 1),
    "Jeffreys": (lambda: ksivi.Jeffreys(ksivi.SIVI(6, 5), ksivi.Wake(7, 5)), 13, 1),
    "MaximumLikelihood": (lambda: ksivi.MaximumLikelihood(POINTS), 0, 1),
    "MeanPrediction": (
        lambda: ksivi.MeanPrediction(lambda x, i: i @ x, POINTS, POINTS[:, 0], 6),
        6,
        1,
    ),
}


@pytest.mark.parametrize("name", MADE)
def test_what_a_step_costs(name):
    make, score_evals, num_minibatches = MADE[name]
    assert (make().score_evals, make().num_minibatches) == (score_evals, num_minibatches)


@pytest.mark.parametrize("name", MADE)
def test_numbers_are_arrays_and_counts_are_not(name):
    """A new learning rate or scale does not compile again. A new count does."""
    leaves = jax.tree.leaves(MADE[name][0]())
    assert all(eqx.is_array(leaf) or callable(leaf) for leaf in leaves)


# The default arguments of every objective, and of a few other classes.
DEFAULTS = {
    ksivi.KSIVI: {
        "estimator": "vanilla",
        "num_samples": 100,
        "noise_per_z": 1,
        "inverse_covariance": False,
        "shared_rows": False,
    },
    ksivi.SIVI: {"num_samples": 100, "num_mixing": 100},
    ksivi.SIVISM: {
        "num_samples": 100,
        "critic_hidden": (128, 128),
        "critic_steps": 1,
        "warm_up": 0,
    },
    ksivi.UIVI: {
        "num_samples": 100,
        "num_burn_in": 5,
        "num_kept": 5,
        "num_leapfrog": 5,
        "step_size": 0.2,
    },
    KPG: {"num_samples": 100},
    KPGIS: {
        "num_samples": 100,
        "num_proposals": 10,
        "min_share": 0.1,
        "proposal_hidden": (128, 128),
    },
    AmortizedSVGD: {"num_samples": 100},
    DenoisedScore: {
        "num_samples": 100,
        "network_hidden": (128, 128),
        "network_steps": 5,
        "network_samples": 2_048,
    },
    PVI: {
        "num_particles": 100,
        "noise_per_z": 1,
        "step_size": 1e-2,
        "temperature": 1e-8,
    },
    AISIVI: {
        "num_samples": 100,
        "num_mixing": 64,
        "proposal_layers": 4,
        "proposal_hidden": (32, 32),
        "proposal_steps": 1,
        "warm_up": 0,
    },
    ksivi.Wake: {"num_samples": 64, "num_mixing": 256, "scale": 1.5},
    ksivi.Jeffreys: {"share": 0.5},
    ksivi.MaximumLikelihood: {"num_samples": 100, "num_mixing": 500},
    ksivi.MeanPrediction: {"num_samples": 100},
    ksivi.Annealing: {"start": 0.1},
    ksivi.Decay: {"start": 1.0, "every": 1},
    ksivi.kernels.Median: {"stop_gradient": False, "all_pairs": False, "scale": 1.0},
}


@pytest.mark.parametrize("kind", DEFAULTS, ids=lambda kind: kind.__name__)
def test_defaults_are_part_of_the_interface(kind):
    """Except None, which stands for a default that is made in the function."""
    given = {name: p.default for name, p in inspect.signature(kind).parameters.items()}
    given = {
        name: value for name, value in given.items() if value not in (None, inspect.Parameter.empty)
    }
    assert given == DEFAULTS[kind]


def kinds(objective):
    """The class of an objective, and those of the objectives that it holds."""
    held = [one for one in vars(objective).values() if isinstance(one, AbstractObjective)]
    return {type(objective)}.union(*map(kinds, held))


def kinds_in(table):
    if table == "DEFAULTS":
        return set(DEFAULTS)
    makers = [make for make, *_ in MADE.values()]
    if table != "MADE":
        pytest.importorskip("blackjax")
        import test_conformance as conformance

        makers = [*conformance.OBJECTIVES.values(), *conformance.STARTS.values()]
    return set().union(*(kinds(make()) for make in makers))


@pytest.mark.parametrize("table", ["MADE", "DEFAULTS", "OBJECTIVES or STARTS of test_conformance"])
def test_every_objective_is_in_each_table(table):
    """What is in no table is not tested."""
    public = [*vars(ksivi.objectives).values(), *(getattr(ksivi, name) for name in ksivi.__all__)]
    classes = {
        one for one in public if isinstance(one, type) and issubclass(one, AbstractObjective)
    }
    missing = classes - kinds_in(table) - {AbstractObjective}
    assert not missing, f"add to {table}: {sorted(one.__name__ for one in missing)}"
