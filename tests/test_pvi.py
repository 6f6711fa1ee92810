"""PVI: a posterior that is a finite mixture over particles."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

import ksivi
from ksivi.families import ParticleMixing
from ksivi.objectives import PVI
from linear import KEY, LOG_VAR, OFFSET, WEIGHT, linear_family, normal_target

Z = np.random.default_rng(0).normal(size=(5, 2)).astype(np.float32)
X = np.random.default_rng(1).normal(size=(7, 3)).astype(np.float32)


def finite_mixture(z=Z):
    return linear_family().with_particles(jnp.asarray(z))


def log_mixture(x, z=Z):
    """log 1/M Σₘ N(x; Wᵀzₘ + b, σ²), with loops."""
    z = np.asarray(z, float)
    normals = [multivariate_normal(one @ WEIGHT + OFFSET, np.diag(np.exp(LOG_VAR))) for one in z]
    return logsumexp([normal.logpdf(x) for normal in normals], axis=0) - np.log(len(z))


def short(objective=None, num_steps=30, family=None, **options):
    objective = PVI(6) if objective is None else objective
    family = linear_family() if family is None else family
    return ksivi.train(KEY, normal_target(), family, objective, num_steps=num_steps, **options)


def test_the_density_of_a_finite_mixture_is_exact():
    """Whatever the key and the number of z."""
    family = finite_mixture()
    for seed, num_mixing in ((0, 1), (1, 1_000)):
        found = family.log_prob(jax.random.key(seed), jnp.asarray(X), num_mixing)
        np.testing.assert_allclose(found, log_mixture(X), rtol=1e-5)
    x, log_q = family.sample_and_log_prob(KEY, 50, num_mixing=1)
    np.testing.assert_allclose(log_q, log_mixture(np.asarray(x)), rtol=1e-5)


def test_particles_are_drawn_equally_often():
    family = finite_mixture(10 * Z)
    z, _ = family.noise(KEY, 10_000)
    counts = np.array([(np.asarray(z) == 10 * one).all(axis=1).sum() for one in Z])
    assert counts.sum() == 10_000
    assert np.all(np.abs(counts - 2_000) < 4 * np.sqrt(10_000 * 0.2 * 0.8))


def test_a_wider_finite_mixture_has_particles_further_out_too():
    wide = finite_mixture().widened(2.0)
    np.testing.assert_array_equal(wide.mixing.particles, np.concatenate([Z, 2 * Z]))


def test_importance_weights_know_the_density():
    posterior = ksivi.Posterior.of(finite_mixture(), normal_target())
    found = ksivi.diagnostics.importance(
        KEY, normal_target(), posterior, num_samples=1_000, num_mixing=1
    )
    log_p = 3 - 0.5 * np.sum(found.draws**2 + np.log(2 * np.pi), axis=1)
    np.testing.assert_allclose(found.log_weights, log_p - log_mixture(found.draws), atol=1e-4)


def test_the_posterior_draws_from_the_particles(tmp_path):
    fit = short()
    np.testing.assert_array_equal(fit.posterior.family.mixing.particles, fit.state.objective.z)
    fit.posterior.save(tmp_path / "p")
    loaded = ksivi.load(tmp_path / "p")
    x = fit.posterior.sample(KEY, 20)
    np.testing.assert_array_equal(loaded.sample(KEY, 20), x)
    first, second = (loaded.log_prob(jax.random.key(i), x) for i in range(2))
    np.testing.assert_array_equal(first, second)


def test_a_resumed_run_and_a_batch_of_keys_keep_their_particles():
    whole, half = short(num_steps=30), short(num_steps=20, chunk_size=10)
    resumed = short(num_steps=30, resume=half.state)
    np.testing.assert_array_equal(
        resumed.posterior.family.mixing.particles, whole.posterior.family.mixing.particles
    )
    keys = jax.random.split(KEY, 2)
    fits = ksivi.train(keys, normal_target(), linear_family(), PVI(6), num_steps=5)
    first, second = (fit.posterior.family.mixing.particles for fit in fits)
    assert first.shape == (6, 2)
    assert not np.array_equal(first, second)


def test_training_continues_from_a_family_with_particles():
    """The particles of an earlier fit are the start of the next; another number of them is refused."""
    start = PVI(5).init(KEY, normal_target(), finite_mixture())
    np.testing.assert_array_equal(start.z, Z)
    with pytest.raises(ValueError, match="num_particles must be that of the family's mixing, 5"):
        short(PVI(6), family=finite_mixture())


def test_without_temperature_noise_the_loss_falls():
    """The loss is the exact KL − log ∫p of a finite mixture."""
    history = short(PVI(20), num_steps=300, learning_rate=1e-2).history["loss"]
    assert history[-50:].mean() < history[:10].mean() - 0.1
    assert history[-50:].mean() > -3.1  # −log ∫p


def test_objectives_that_need_a_density_of_z_refuse_particles():
    with pytest.raises(ValueError, match="UIVI needs the density of the mixing"):
        ksivi.train(KEY, normal_target(), finite_mixture(), ksivi.UIVI(4), num_steps=1)


def test_scores_alone_are_enough():
    """The same particles and gradients with and without values."""
    blind = ksivi.Target.from_score(lambda x: -x, dim=3)
    known = short(num_steps=5)
    other = ksivi.train(KEY, blind, linear_family(), PVI(6), num_steps=5)
    np.testing.assert_allclose(
        other.state.objective.z, known.state.objective.z, rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: PVI(0), "num_particles must be a whole number of at least 1"),
        (lambda: PVI(noise_per_z=0), "noise_per_z must be a whole number of at least 1"),
        (lambda: PVI(step_size=0.0), "step_size must be one positive number"),
        (lambda: PVI(temperature=-1.0), "temperature must be one positive number"),
        (lambda: PVI(annealing=0.5), "annealing must be a function of the step"),
        (lambda: ParticleMixing(jnp.zeros(3)), "points must be one particle per row"),
        (lambda: ParticleMixing("z"), "points must be one particle per row"),
    ],
)
def test_bad_arguments_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
