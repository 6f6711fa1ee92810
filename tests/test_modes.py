"""Separate modes: annealed particles keep their shares, and a mode without draws is a doubt."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import norm

import ksivi
from ksivi.auto._anneal import Annealed
from ksivi.auto._measured import with_weighed_shares
from ksivi.auto._modes import Blobs, Modes, misses_modes, modes_of, separate
from ksivi.auto._recipe import Recipe
from ksivi.families import GaussianMixing, ModeMixing, PerMode
from ksivi.targets import Evaluator

SHARE, PLACE = 0.3, np.array([12.0, 0.0])


def log_density(x):
    """0.7 of a Gaussian at the origin, and 0.3 of a strongly bent banana at (12, 0)."""
    u, v = x[0] - 12, x[1]
    banana = norm.logpdf(u) + norm.logpdf(v - 1.5 * (u**2 - 1))
    return jnp.logaddexp(jnp.log(1 - SHARE) + jnp.sum(norm.logpdf(x)), jnp.log(SHARE) + banana)


def target():
    return ksivi.Target(log_density, dim=2)


def test_points_that_the_density_connects_are_one_mode():
    points = np.array([[0.0, 0.0], [0.5, -0.5], [12.0, -1.5], [np.nan, 0.0], [0.0, 50.0]])
    np.testing.assert_allclose(separate(Evaluator(target()), points), [[0, 0], [12, -1.5]])


def test_a_mode_without_draws_is_a_doubt_that_names_the_place():
    rng = np.random.default_rng(0)
    particles = np.concatenate([rng.normal(size=(700, 2)), PLACE + rng.normal(size=(300, 2))])
    modes = Modes(np.stack([np.zeros(2), PLACE]), particles, np.repeat([0, 1], [700, 300]))
    np.testing.assert_allclose(modes.shares, [0.7, 0.3])
    at_one = rng.normal(size=(1_000, 2))
    doubt = misses_modes(at_one, modes, target())
    assert doubt.code == "missed-mode"
    assert "a mode with about 30% of the mass holds 0.0% of the draws" in str(doubt)
    assert "near x[0] = 12, x[1] = 0" in str(doubt)
    some = np.concatenate([at_one, PLACE + rng.normal(size=(200, 2))])
    assert misses_modes(some, modes, target()) is None
    assert misses_modes(at_one, None, target()) is None


def two_gaussians(shares, centres, width=1.0):
    """A mixture of Gaussians in two dimensions as a target, and a family that is exact for it."""
    log_shares, centres = jnp.log(jnp.asarray(shares)), jnp.asarray(centres)

    def log_density(x):
        parts = jnp.sum(norm.logpdf(x[None], centres, width), axis=1)
        return jax.nn.logsumexp(log_shares + parts)

    # Without a network, z only chooses the mode.
    still = lambda z: jnp.zeros(2)  # noqa: E731
    mean, log_var = PerMode(still, centres), PerMode(still, jnp.full((2, 2), 2 * np.log(width)))
    conditional = ksivi.families.DiagonalGaussian(mean, log_var)
    mixing = ModeMixing(GaussianMixing(1), jnp.asarray(shares))
    return ksivi.Target(log_density, dim=2), ksivi.SemiImplicit(mixing, conditional)


def test_a_mixing_of_modes_draws_them_by_their_shares_and_has_that_density():
    mixing = ModeMixing(GaussianMixing(2), jnp.array([3.0, 1.0]))
    z = np.asarray(mixing.sample(jax.random.key(0), 20_000), np.float64)
    share = z[:, 0].mean()
    assert abs(share - 0.75) < 4 * np.sqrt(0.75 * 0.25 / len(z))
    np.testing.assert_array_equal(z[:, 0] + z[:, 1], 1)
    at = jnp.array([0.0, 1.0, 0.5, -1.0])
    expected = np.log(0.25) + np.sum(norm.logpdf(at[2:]))
    np.testing.assert_allclose(mixing.log_prob(at), expected, rtol=1e-6)


def test_a_wider_mixing_of_modes_keeps_the_modes():
    mixing = ModeMixing(GaussianMixing(2), jnp.array([0.75, 0.25]))
    wide = mixing.widened(jnp.asarray(3.0))
    z = wide.sample(jax.random.key(0), 50_000)
    np.testing.assert_array_equal(np.sort(np.unique(np.asarray(z[:, :2]))), [0, 1])
    ratio = np.exp(np.asarray(jax.vmap(mixing.log_prob)(z) - jax.vmap(wide.log_prob)(z)))
    assert abs(ratio.mean() - 1) < 4 * ratio.std() / np.sqrt(len(ratio))
    assert np.asarray(z[:, 2:]).std() > 1.8


def test_shares_that_are_no_shares_are_refused():
    for shares in ([0.5, -0.5], [], 0.5, [0.5, 0.0]):
        with pytest.raises(ValueError, match="shares must be one positive number per mode"):
            ModeMixing(GaussianMixing(2), jnp.asarray(shares))


def test_maps_per_mode_have_their_own_coordinates():
    matrices = jnp.stack([jnp.eye(2), jnp.array([[2.0, 0.0], [1.0, 3.0]])])
    offsets = jnp.array([[0.0, 0.0], [10.0, 20.0]])
    net = lambda z: z[2:]  # noqa: E731
    of = PerMode(net, offsets, matrices)
    np.testing.assert_allclose(of(jnp.array([1.0, 0.0, 1.0, 2.0])), [1, 2])
    np.testing.assert_allclose(of(jnp.array([0.0, 1.0, 1.0, 2.0])), [12, 27])
    np.testing.assert_allclose(PerMode(net, offsets)(jnp.array([0.0, 1.0, 1.0, 2.0])), [11, 22])


def test_importance_weights_put_the_shares_of_modes_right():
    """A sampler with shares of ½ for a target with 0.8 and 0.2.

    It is a little too wide, because an exact one has equal weights in each block of draws, and no
    Pareto distribution fits their tail.
    """
    centres = [[0.0, 0.0], [20.0, 0.0]]
    target = two_gaussians([0.8, 0.2], centres)[0]
    family = two_gaussians([0.5, 0.5], centres, width=1.1)[1]
    particles = np.asarray(family.sample(jax.random.key(1), 2_000), np.float64)
    modes = Modes(np.asarray(centres), particles, (particles[:, 0] > 10).astype(int))
    posterior = ksivi.Posterior.of(family, target)
    found = with_weighed_shares(np.random.default_rng(0), Evaluator(target), posterior, modes)
    # 8,000 draws, half of them in each mode: the error of the odds is 1% of a share.
    np.testing.assert_allclose(found.family.mixing.shares, [0.8, 0.2], atol=0.02)
    unchanged = with_weighed_shares(np.random.default_rng(0), Evaluator(target), posterior, None)
    assert unchanged is posterior


def test_a_family_of_the_recipe_starts_at_the_modes_and_is_saved(tmp_path):
    roots = jnp.stack([jnp.eye(3), 0.1 * jnp.eye(3)])
    blobs = Blobs(jnp.array([0.6, 0.4]), jnp.array([[0.0] * 3, [5.0] * 3]), roots)
    family = Recipe().family(jax.random.key(0), 3, False, blobs)
    draws = np.asarray(family.sample(jax.random.key(1), 5_000))
    is_far = draws.mean(axis=1) > 2.5
    assert abs(is_far.mean() - 0.4) < 4 * np.sqrt(0.24 / len(draws))
    assert draws[is_far].std(axis=0).max() < 0.3 < draws[~is_far].std(axis=0).min()
    posterior = ksivi.Posterior.of(family, ksivi.Target(lambda x: -0.5 * jnp.sum(x**2), dim=3))
    posterior.save(tmp_path / "modes.safetensors")
    loaded = ksivi.load(tmp_path / "modes.safetensors")
    again, before = (one.sample(jax.random.key(2), 1_000) for one in (loaded, posterior))
    np.testing.assert_array_equal(again, before)


def test_modes_without_mass_are_left_out_and_their_particles_belong_to_none():
    """Two Gaussians lie in the banana, and none at a place far from all mass."""
    means = np.array([[0.0, 0.0], [12.0, -1.5], [12.3, -1.0]])
    places = np.array([[0.0, 0.0], [12.0, -1.5], [500.0, 0.0]])

    def modes_with(*counts):
        origins = np.repeat([0, 1, 2], counts)
        found = Annealed(means[origins], origins, 0.0)
        return modes_of(Evaluator(target()), places, means, found)

    modes = modes_with(700, 200, 100)
    np.testing.assert_array_equal(modes.places, places[:2])
    np.testing.assert_allclose(modes.shares, [0.7, 0.3])
    some = modes._replace(labels=np.where(np.arange(1_000) < 100, -1, modes.labels))
    np.testing.assert_allclose(some.shares.sum(), 0.9)
    without = modes_with(990, 5, 5)
    np.testing.assert_array_equal(without.places, places[:1])
    np.testing.assert_array_equal(without.labels, np.repeat([0, -1], [990, 10]))


def test_one_mode_needs_no_evaluation_to_label_its_particles():
    evaluate = Evaluator(target())
    annealed = Annealed(np.zeros((10, 2)), np.arange(10) % 3, 0.0)
    modes = modes_of(evaluate, np.zeros((1, 2)), np.zeros((3, 2)), annealed)
    np.testing.assert_array_equal(modes.labels, 0)
    assert evaluate.count == 0


def test_equal_ends_of_paths_cost_nothing_and_near_ones_a_line_each():
    evaluate = Evaluator(target())
    np.testing.assert_array_equal(separate(evaluate, np.zeros((24, 2))), [[0, 0]])
    assert evaluate.count == 24
    near = np.random.default_rng(0).normal(size=(24, 2)) * 1e-3
    evaluate = Evaluator(target())
    assert len(separate(evaluate, near)) == 1
    assert evaluate.count == 24 + 23 * 15


def test_paths_that_ran_far_out_do_not_unite_modes_of_the_same_height():
    two, _ = two_gaussians([0.5, 0.5], [[-4.0, 0.0], [4.0, 0.0]])
    flat = ksivi.Target(lambda x: jnp.logaddexp(two.log_density(x), -12.0), dim=2)
    points = np.array([[-4.0, 0.0], [4.0, 0.0]] * 5 + [[1e6, 1e6], [-1e6, 1e6]])
    found = separate(Evaluator(flat), points)
    np.testing.assert_array_equal(np.sort(found[:2, 0]), [-4, 4])


@pytest.mark.filterwarnings("error")
def test_points_of_no_density_are_no_modes():
    nowhere = ksivi.Target(lambda x: jnp.where(x[0] > 1, jnp.nan, -0.5 * jnp.sum(x**2)), dim=2)
    evaluate = Evaluator(nowhere)
    beyond = np.array([[2.0, 0.0], [np.nan, 0.0], [np.inf, 0.0]])
    assert separate(evaluate, beyond).shape == (0, 2)
    np.testing.assert_array_equal(separate(evaluate, np.append(beyond, [[0, 0]], axis=0)), [[0, 0]])
    annealed = Annealed(np.zeros((10, 2)), np.repeat([0, 1], 5), 0.0)
    places = np.array([[0.0, 0.0], [0.5, 0.0]])
    modes = modes_of(evaluate, places, np.array([[2.0, 0.0], [0.5, 0.0]]), annealed)
    assert len(modes.labels) == 10
