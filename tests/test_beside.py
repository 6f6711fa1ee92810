"""The second half of the demo: exact draws, the methods beside `fit`, the figure and the exit code."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ksivi
from ksivi import comparison, problems, report
from ksivi.comparison._beside import _advi


@pytest.mark.parametrize("name", ["two_lines", "eight_schools"])
def test_exact_draws_have_the_target_s_density(name):
    """E s = 0 and E (x − E x) s = −1 hold at the truth; each coordinate within five standard errors."""
    problem = getattr(problems, name)()
    draws = problem.reference(jax.random.key(0), 40_000)
    scores = np.asarray(jax.vmap(problem.target.score)(draws), np.float64)
    x = np.asarray(draws, np.float64)
    both = np.concatenate([scores, (x - x.mean(axis=0)) * scores + 1], axis=1)
    errors = both.std(axis=0) / np.sqrt(len(x))
    assert np.abs(both.mean(axis=0) / errors).max() < 5


def test_exact_draws_have_the_shares_of_both_lines():
    """By a sum over a grid of another size, in one direction at a time."""
    problem = problems.two_lines()
    a, b = np.meshgrid(np.linspace(-3, 11, 561), np.linspace(-4, 4, 321), indexing="ij")
    points = jnp.asarray(np.stack([a.ravel(), b.ravel()], axis=1), jnp.float32)
    mass = np.exp(np.asarray(jax.vmap(problem.target.log_density)(points), np.float64))
    share = mass[a.ravel() > 3.5].sum() / mass.sum()
    found = np.mean(np.asarray(problem.reference(jax.random.key(1), 40_000))[:, 0] > 3.5)
    assert 0.3 < share < 0.4
    np.testing.assert_allclose(found, share, atol=4 * np.sqrt(share * (1 - share) / 40_000))


def test_advi_finds_the_best_diagonal_gaussian():
    """For a Gaussian with precision Λ it has the mean, and the standard deviations Λᵢᵢ^(−1/2)."""
    precision, mean = jnp.array([[4.0, 3.0], [3.0, 4.0]]), jnp.array([1.0, -2.0])
    target = ksivi.Target(lambda x: -0.5 * (x - mean) @ precision @ (x - mean), dim=2)
    draws = np.asarray(_advi(jax.random.key(0), target).posterior.sample(jax.random.key(1), 40_000))
    np.testing.assert_allclose(draws.mean(axis=0), mean, atol=0.02)
    np.testing.assert_allclose(draws.std(axis=0), [0.5, 0.5], rtol=0.03)


@pytest.mark.slow
def test_only_fit_is_right_about_two_lines():
    pytest.importorskip("blackjax")
    answers = {one.method: one for one in comparison.confront("two-lines", 0).answers}
    assert list(answers) == list(comparison.SETTINGS)
    assert answers["ksivi.fit"].right
    assert answers["ksivi.fit"].says == "trusted"
    for name in ("NUTS", "ADVI"):
        assert answers[name].distance > 4
        assert not answers[name].warns
    assert answers["NUTS"].says == "R-hat 1.00, 0 divergences"


def test_the_figure_has_a_row_per_method(tmp_path):
    """Also where a method is missing, because the user stopped."""
    pytest.importorskip("matplotlib")
    draws = np.random.default_rng(0).normal(size=(2_000, 2))
    panels = [
        report.AnswerPanel(draws, True, False, "trusted"),
        report.AnswerPanel(draws + 2, False, True, "R-hat 1.30"),
    ]
    columns = [
        report.PosteriorColumn("one", ("x", "y"), draws, panels),
        report.PosteriorColumn("two", ("x", "y"), draws, panels[:1]),
    ]
    paths = [tmp_path / f"{i}.png" for i in range(2)]
    for path in paths:
        report.answers_and_truth(path, [("fit", "none"), ("NUTS", "four chains")], columns)
    assert paths[0].read_bytes() == paths[1].read_bytes()
    image = _pixels(paths[0])
    for colour in ((26, 127, 75), (180, 83, 9)):  # right, and wrong with a warning
        assert (np.abs(image - colour).sum(axis=-1) < 6).sum() > 500
    assert (np.abs(image - (192, 38, 45)).sum(axis=-1) < 6).sum() == 0  # nothing is wrong silently


def _pixels(path):
    from matplotlib.image import imread

    return (255 * imread(path)[..., :3]).round().astype(int)


@pytest.mark.parametrize(
    ("kinds", "toys", "code"),
    [
        (["converged", "not trusted", "step limit"], ["step limit"], 0),  # NUTS may fail
        (["not trusted", "converged", "step limit"], [], 3),  # fit may not
        (["converged", "interrupted"], [], 130),
        ([], ["diverged"], 3),
        ([], ["interrupted"], 130),
    ],
)
def test_the_exit_code_is_that_of_the_fits(kinds, toys, code):
    pytest.importorskip("typer")
    from ksivi.cli._demo import _exit_code

    beside = [SimpleNamespace(answers=[SimpleNamespace(kind=kind) for kind in kinds])]
    fits = [
        SimpleNamespace(fit=SimpleNamespace(status=SimpleNamespace(kind=kind))) for kind in toys
    ]
    assert _exit_code(beside if kinds else [], fits) == code
