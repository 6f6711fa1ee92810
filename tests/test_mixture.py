"""Mixtures of Gaussians: as a family, as a posterior, in the checks, and fitted to draws."""

import logging

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal

import ksivi
from ksivi._core.mixtures import Mixture
from ksivi.auto._em import fit_mixture
from ksivi.diagnostics import discrepancy, importance, weighted, witness
from ksivi.diagnostics._discrepancy import _any_gram, _imq_gram
from ksivi.families import GaussianMixture
from ksivi.kernels import IMQ
from ksivi.targets import Affine, Evaluator

KEY = jax.random.key(0)
SHARES = np.array([0.7, 0.3])
MEANS = np.array([[-2.0, 0.5], [3.0, -1.0]])
ROOTS = np.array([[[1.0, 0.0], [0.5, 0.4]], [[0.3, 0.0], [-0.2, 1.5]]])
LAYOUT = (("x", (2,)),)
PARTS = [multivariate_normal(mean, root @ root.T) for mean, root in zip(MEANS, ROOTS, strict=True)]


def exact(x):
    logs = [np.log(w) + part.logpdf(x) for w, part in zip(SHARES, PARTS, strict=True)]
    return np.logaddexp(*logs)


def family():
    return GaussianMixture(SHARES, MEANS, ROOTS)


def target():
    """exp(2) times the mixture."""
    mixture = family()
    log_density = lambda x: 2.0 + mixture.log_prob(KEY, x[None], 1)[0]  # noqa: E731
    return ksivi.Target(log_density, dim=2)


def posterior(coordinates=None):
    return ksivi.Posterior(family(), coordinates, LAYOUT)


def affine():
    return Affine(jnp.array([1.0, -3.0]), jnp.array([[0.5, -2.0], [1.0, 3.0]]))


def compiled(caplog, function):
    """The names of the programs that are compiled during a call."""
    with jax.log_compiles(), caplog.at_level(logging.WARNING):
        caplog.clear()
        function()
    return [r.getMessage() for r in caplog.records if r.getMessage().startswith("Compiling")]


def assert_moments(x, mean, covariance):
    error = np.sqrt(np.diag(covariance) / len(x))
    assert np.all(np.abs(x.mean(axis=0) - mean) < 4 * error)
    np.testing.assert_allclose(np.cov(x, rowvar=False), covariance, rtol=0.05, atol=0.05)


def moments():
    mean = SHARES @ MEANS
    seconds = [r @ r.T + np.outer(m - mean, m - mean) for m, r in zip(MEANS, ROOTS, strict=True)]
    return mean, np.einsum("k,kij->ij", SHARES, np.array(seconds))


def test_the_density_is_exact():
    x = np.random.default_rng(0).normal(size=(50, 2)).astype(np.float32) * 3
    found = family().log_prob(KEY, jnp.asarray(x), 1)
    np.testing.assert_allclose(found, exact(x), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(family().on_host().log_density(x), exact(x), rtol=1e-6)
    drawn, log_q = family().sample_and_log_prob(KEY, 50, 1)
    np.testing.assert_allclose(log_q, exact(np.asarray(drawn)), rtol=1e-4, atol=1e-4)


def test_draws_have_the_moments_of_the_mixture():
    assert_moments(np.asarray(family().sample(KEY, 20_000)), *moments())
    assert_moments(posterior().host_draws(np.random.default_rng(0), 20_000), *moments())


def test_the_scores_are_those_of_the_chosen_gaussians():
    chosen, xi = noise = family().noise(KEY, 100)
    x, scores = family().transport(noise)
    for k, (mean, root) in enumerate(zip(MEANS, ROOTS, strict=True)):
        mine = np.asarray(chosen) == k
        assert mine.any()
        np.testing.assert_allclose(x[mine], mean + np.asarray(xi)[mine] @ root.T, atol=1e-5)
        expected = -np.linalg.solve(root @ root.T, (np.asarray(x)[mine] - mean).T).T
        np.testing.assert_allclose(scores[mine], expected, rtol=1e-3, atol=1e-3)


def test_one_gaussian_is_a_mixture_of_one_and_programs_can_make_mixtures():
    one = GaussianMixture(np.ones(1), MEANS[:1], ROOTS[:1])
    np.testing.assert_allclose(
        one.log_prob(KEY, jnp.zeros((3, 2)), 1), PARTS[0].logpdf(np.zeros((3, 2))), rtol=1e-5
    )
    make = jax.jit(lambda w: GaussianMixture(w, MEANS, ROOTS).log_prob(KEY, jnp.zeros((1, 2)), 1))
    np.testing.assert_allclose(make(7 * SHARES), exact(np.zeros((1, 2))), rtol=1e-4)


def test_a_wider_mixture_is_half_of_itself():
    x = np.random.default_rng(0).normal(size=(50, 2)) * 3
    wide = GaussianMixture(SHARES, MEANS, 2 * ROOTS).on_host().log_density(x)
    expected = np.logaddexp(exact(x), wide) - np.log(2)
    found = family().widened(2.0)
    np.testing.assert_allclose(found.on_host().log_density(x), expected, rtol=1e-5)
    np.testing.assert_allclose(family().on_host().widened(2.0).log_density(x), expected, rtol=1e-5)


def test_shares_that_vanish_in_single_precision_are_left_out():
    mixture = Mixture(np.array([1.0, 1e-60]), MEANS, ROOTS)
    assert GaussianMixture.of(mixture).shares.tolist() == [1.0]
    back = GaussianMixture.of(Mixture(SHARES, MEANS, ROOTS)).on_host()
    for found, given in zip(back, (SHARES, MEANS, ROOTS), strict=True):
        np.testing.assert_allclose(found, given, rtol=1e-6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"shares": [0.5, 0.0]}, "shares must be one positive number per Gaussian"),
        ({"shares": [0.5, np.nan]}, "shares must be one positive number per Gaussian"),
        ({"shares": [[1.0, 1.0]]}, "shares must be one positive number per Gaussian"),
        ({"shares": "half"}, "shares must be one positive number per Gaussian, got 'half'"),
        ({"means": MEANS[:1]}, r"means must be finite numbers of shape \(2, d\)"),
        ({"means": MEANS * np.inf}, "means must be finite numbers"),
        ({"roots": ROOTS[0]}, "roots must be lower triangular .*, of shape"),
        ({"roots": np.swapaxes(ROOTS, 1, 2)}, "roots must be lower triangular"),
        ({"roots": -ROOTS}, "roots must be lower triangular matrices with positive diagonals"),
    ],
)
def test_bad_arguments_are_refused(change, message):
    given = {"shares": SHARES, "means": MEANS, "roots": ROOTS} | change
    with pytest.raises(ValueError, match=message):
        GaussianMixture(**given)


def test_bad_calls_are_refused():
    with pytest.raises(ValueError, match="scale must be one positive number"):
        family().widened(0)
    with pytest.raises(ValueError, match=r"x must be an array of shape \(n, 2\)"):
        family().log_prob(KEY, jnp.zeros((3, 5)), 1)
    with pytest.raises(ValueError, match="n must be a whole number"):
        family().sample(KEY, 0)
    with pytest.raises(
        ValueError, match=r"family must be .*, a mixture of Gaussians, a warped Gaussian or"
    ):
        ksivi.Posterior.of(family().on_host(), target())


def test_a_saved_mixture_draws_the_same_numbers(tmp_path):
    kept = ksivi.Posterior.of(family(), target())
    kept.save(tmp_path / "post.safetensors")
    loaded = ksivi.load(tmp_path / "post.safetensors")
    np.testing.assert_array_equal(loaded.sample(KEY, 100), kept.sample(KEY, 100))
    x = kept.sample(KEY, 100)
    np.testing.assert_allclose(loaded.log_prob(KEY, x), exact(np.asarray(x)), rtol=1e-4, atol=1e-4)
    assert loaded.draws(KEY, 5)["x"].shape == (5, 2)


def test_coordinates_move_draws_and_density_alike():
    moved = posterior(affine())
    matrix, loc = np.asarray(affine().scale, np.float64), np.asarray(affine().loc)
    mean, covariance = moments()
    draws = moved.host_draws(np.random.default_rng(0), 20_000)
    assert_moments(draws @ np.linalg.inv(matrix).T, np.linalg.solve(matrix, loc) + mean, covariance)
    x = moved.sample(KEY, 100)
    host = moved.on_host().log_density(np.asarray(x, np.float64))
    np.testing.assert_allclose(moved.log_prob(KEY, x), host, rtol=1e-3, atol=1e-3)


def test_host_draws_of_a_mixture_compile_nothing(caplog):
    mixture = posterior()
    assert not compiled(caplog, lambda: mixture.host_draws(np.random.default_rng(0), 77))


def test_stored_draws_are_drawn_on_the_host():
    points = jnp.asarray(np.arange(10.0).reshape(5, 2), float)
    stored = ksivi.Posterior(ksivi.families.Empirical(points), None, LAYOUT)
    draws = stored.host_draws(np.random.default_rng(0), 5)
    assert draws.dtype == np.float64
    np.testing.assert_array_equal(np.sort(draws[:, 0]), points[:, 0])


def test_arviz_has_the_exact_density():
    pytest.importorskip("arviz")
    data = ksivi.Posterior.of(family(), target()).to_arviz(KEY, 100)
    np.testing.assert_allclose(np.asarray(data["sample_stats"]["log_weight"]), 2, atol=1e-3)


@pytest.mark.parametrize("moved", [False, True])
def test_weights_of_the_right_mixture_are_equal(moved):
    view = posterior(affine()) if moved else posterior()
    mixture = GaussianMixture.of(view.on_host())
    right = ksivi.Target(lambda x: 2.0 + mixture.log_prob(KEY, x[None], 1)[0], dim=2)
    result = importance(KEY, right, view, num_samples=1_000)
    np.testing.assert_allclose(result.log_weights, 2, atol=2e-3)
    wide = weighted(np.random.default_rng(0), Evaluator(right), view, 4_000, 1, 1.5)
    assert abs(wide.log_evidence - 2) < 4 * wide.log_evidence_error
    assert wide.log_weights.max() < 2 + np.log(2) + 1e-2
    draws, effective = wide.resampled(KEY)
    assert draws.shape == (4_000, 2)
    assert 1_000 < effective <= 4_000


def test_weights_refuse_infinite_densities():
    endless = ksivi.Target(lambda x: jnp.where(x[0] > 0, jnp.inf, -0.5 * x @ x), dim=2)
    with pytest.raises(ValueError, match="target must not be NaN or"):
        importance(KEY, endless, posterior())


def test_weights_of_a_mixture_compile_only_the_evaluator(caplog):
    view, evaluate, rng = posterior(), Evaluator(target()), np.random.default_rng(0)
    evaluate(np.zeros((1_000, 2)))
    assert not compiled(caplog, lambda: weighted(rng, evaluate, view, 1_000, 10, 1.5))


def test_ksd_does_not_depend_on_the_units_of_a_mixture():
    wrong = Mixture(SHARES[::-1], MEANS, ROOTS)
    found = []
    for scale in (1.0, 1e-3):
        mixture = GaussianMixture(SHARES, scale * MEANS, scale * ROOTS)
        scaled = ksivi.Target(lambda x, m=mixture: m.log_prob(KEY, x[None], 1)[0], dim=2)
        moved = GaussianMixture(wrong.shares, scale * MEANS, scale * ROOTS)
        found.append(discrepancy(KEY, scaled, ksivi.Posterior(moved, None, LAYOUT)).ksd2)
        right = discrepancy(KEY, scaled, ksivi.Posterior(mixture, None, LAYOUT))
        assert right.p_value > 0.01
    np.testing.assert_allclose(found[0], found[1], rtol=1e-3)


def test_the_default_stein_kernel_is_that_of_the_kernels():
    rng = np.random.default_rng(0)
    x, score = rng.normal(size=(2, 60, 3))
    np.testing.assert_allclose(
        _imq_gram(x + 5, score), _any_gram(IMQ(), x + 5, score), rtol=1e-3, atol=1e-3
    )
    same = np.ones((5, 2))
    np.testing.assert_allclose(_imq_gram(same, same), _any_gram(IMQ(), same, same), rtol=1e-5)


def test_ksd_of_a_target_without_values():
    alone = ksivi.Target.from_score(lambda x: -x, dim=2)
    one = GaussianMixture(np.ones(1), np.zeros((1, 2)), np.eye(2)[None])
    assert discrepancy(KEY, alone, ksivi.Posterior(one, None, LAYOUT)).p_value > 0.01


def test_the_witness_of_a_mixture_points_to_the_mass():
    moved = ksivi.Posterior(
        GaussianMixture(SHARES, MEANS + np.array([0.5, 0]), ROOTS), None, LAYOUT
    )
    f = witness(KEY, target(), moved)
    assert np.mean(np.asarray(f(moved.sample(KEY, 200)))[:, 0] < 0) > 0.9


def test_em_finds_the_mixture_that_made_the_draws():
    rng = np.random.default_rng(0)
    truth = Mixture(SHARES, MEANS, ROOTS)
    found = fit_mixture(rng, truth.draws(rng, 4_000)[0])
    order = np.argsort(found.means[:, 0])
    np.testing.assert_allclose(found.shares[order], SHARES, atol=0.04)
    np.testing.assert_allclose(found.means[order], MEANS, atol=0.2)
    fresh = truth.draws(rng, 4_000)[0]
    assert np.mean(truth.log_density(fresh) - found.log_density(fresh)) < 0.01


def test_em_keeps_one_gaussian_for_gaussian_draws_of_any_scale():
    rng, scales = np.random.default_rng(0), np.array([1e-6, 1.0, 1e6])
    draws = 1e3 * scales + scales * rng.normal(size=(2_000, 3))
    found = fit_mixture(rng, draws)
    assert len(found.shares) == 1
    np.testing.assert_allclose(found.means[0], draws.mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(np.diag(found.roots[0]) / scales, np.ones(3), rtol=0.1)


def test_em_separates_far_modes_and_bends_round_a_ring():
    rng = np.random.default_rng(0)
    angles, radii = rng.uniform(0, 2 * np.pi, 4_000), 3 + 0.1 * rng.normal(size=4_000)
    ring = np.stack([radii * np.cos(angles), radii * np.sin(angles)], axis=1)
    far = rng.normal(size=(2_000, 2)) + 200.0 * rng.integers(0, 2, (2_000, 1))
    found = fit_mixture(rng, far)
    assert len(found.shares) == 2
    np.testing.assert_allclose(np.diagonal(found.roots, axis1=1, axis2=2), 1, rtol=0.15)
    bent = fit_mixture(rng, ring).draws(rng, 2_000)[0]
    assert np.mean(np.abs(np.linalg.norm(bent, axis=1) - 3) < 0.5) > 0.97


def test_em_takes_weights_and_repeated_draws_alike():
    rng = np.random.default_rng(0)
    draws = rng.normal(size=(3_000, 2))
    weights = np.where(draws[:, 0] > 0, 2.0, 0.0)
    repeated = np.concatenate([draws[weights > 0]] * 2)
    ours = fit_mixture(np.random.default_rng(1), draws, weights)
    theirs = fit_mixture(np.random.default_rng(1), repeated)
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-9)
    assert np.mean(ours.draws(rng, 2_000)[0][:, 0] > 0) > 0.95


@pytest.mark.parametrize("number", [3, 30])
def test_em_survives_few_draws(number):
    """Fewer than the dimension, and one that is repeated very often."""
    rng = np.random.default_rng(0)
    draws = np.concatenate([rng.normal(size=(number, 8)), np.zeros((number, 8))])
    found = fit_mixture(rng, draws)
    assert len(found.shares) == 1
    assert np.isfinite(found.log_density(draws)).all()
