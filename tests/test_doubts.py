"""What a correction by chains or by weights makes of draws: which doubts, about which coordinates."""

import re

import jax.numpy as jnp
import numpy as np
import pytest

import ksivi
from ksivi.auto._doubts import Correction, chains_move, too_unlikely, weights_move
from ksivi.auto._measured import Measured, some_log_densities
from ksivi.diagnostics import Importance, chains, difference
from ksivi.targets import Evaluator


def _changed(shift, turn=False):
    """A sample, and one that is shifted in the first of six coordinates, or correlates two of them."""
    rng = np.random.default_rng(0)
    before, after = rng.normal(size=(2, 5_000, 6))
    after[:, 0] += shift
    if turn:
        after[:, 1] = 0.8 * after[:, 2] + 0.6 * after[:, 1]
    axes = np.linalg.eigh(np.corrcoef(after, rowvar=False))[1]
    return Correction(difference(before, after), before, after, axes)


def test_a_doubt_names_the_coordinates_that_move():
    assert chains_move(_changed(0.0)) == []
    moved = chains_move(_changed(0.8))[0]
    assert moved.code == "chains-move"
    assert moved.coordinates == (0,)
    (turned,) = chains_move(_changed(0.0, turn=True))
    assert turned.code == "chains-move-axes"
    assert set(turned.coordinates) >= {1, 2}
    assert len(turned.coordinates) < 6
    both = chains_move(_changed(0.8, turn=True))
    assert [one.code for one in both] == ["chains-move", "chains-move-axes"]
    assert set(both[1].coordinates) >= {1, 2}


def test_an_axis_of_one_coordinate_is_a_doubt_about_that_coordinate():
    """Changes of the axes are not averaged with those of other coordinates, which are right."""
    rng = np.random.default_rng(0)
    before, after = rng.normal(size=(2, 50_000, 6))
    after[:, 0] += 0.2
    axis = np.array([[0.99, *[0.06] * 5]]).T
    found = Correction(difference(before, after), before, after, axis)
    assert found.change.is_small()
    (doubt,) = chains_move(found)
    assert (doubt.code, doubt.coordinates) == ("chains-move", (0,))
    assert "along their principal axes" in str(doubt)


def test_a_sentence_gives_the_limits_of_what_is_too_large():
    """And nothing else: a reader sees at once what is wrong."""
    sentence = str(chains_move(_changed(0.8))[0])
    assert re.fullmatch(
        r"chains of HMC move the draws: means 0\.1\d \(0\.\d\d\) sd, at most 0\.10 \(0\.30\)",
        sentence,
    )
    wide = np.random.default_rng(0).normal(size=(20_000, 2))
    said = difference(wide, wide * np.exp([0.5, 0.0])).too_large()
    assert said.startswith("log widths 0.25 (0.50), at most 0.10 (0.30), tails 0.")
    assert said.endswith(", within 0.6% to 2%")
    assert difference(wide, wide).too_large() == ""
    assert difference(wide, wide + 0.1 * wide.std(axis=0) + 1e-3).too_large() == (
        "means 0.101 (0.10) sd, at most 0.100 (0.30)"
    )
    shifted = difference(wide, wide + 0.35).too_large(error=0.03)
    assert shifted.startswith("means 0.35 (0.35) sd, at most 0.16 (0.36), tails")


def _of_two_modes(share, shift, seed):
    """Draws around (5, 5) and (−5, −5), and around (5, −5) and (−5, 5), and one more coordinate.

    All coordinates but the last have the same marginals, whatever the share of the first two modes.
    """
    rng = np.random.default_rng(seed)
    first = rng.choice([-5.0, 5.0], 8_000)
    second = first * np.where(rng.random(8_000) < share, 1, -1)
    third = np.full(8_000, shift)
    return np.stack([first, second, third], axis=1) + rng.normal(size=(8_000, 3))


@pytest.mark.parametrize(
    ("share", "shift", "codes"),
    [
        (0.5, 0.0, []),
        (0.5, 0.5, ["weights-move"]),
        (0.95, 0.0, ["shares-wrong"]),
        (0.95, 0.5, ["weights-move", "shares-wrong"]),
    ],
)
def test_a_doubt_about_one_coordinate_does_not_hide_wrong_shares(share, shift, codes):
    draws, exact = _of_two_modes(0.5, 0.0, 0), _of_two_modes(share, shift, 1)
    weighed = Importance(exact, np.zeros(8_000), 0.0, 0.0, 0.0, 0.0, 0)
    weights = np.full(8_000, 1 / 8_000)
    change = difference(draws, exact, weights)
    found = weights_move(draws, weighed, change, np.eye(3))
    assert [one.code for one in found] == codes


def test_an_axis_of_many_coordinates_is_about_all_draws():
    dim = 200
    axis = np.full((dim, 1), dim**-0.5)
    rng = np.random.default_rng(0)
    draws = rng.normal(size=(5_000, dim))
    exact = draws + 0.5 * (draws @ axis) @ axis.T  # 1.5 times as wide along the axis
    (doubt,) = chains_move(Correction(difference(draws, exact), draws, exact, axis))
    assert doubt.code == "chains-move-axes"
    assert doubt.coordinates is None


def test_a_doubt_about_one_coordinate_does_not_hide_wrong_axes_of_all_others():
    rng, dim = np.random.default_rng(0), 80
    draws, noise = rng.normal(size=(2, 10_000, dim))
    exact = 0.7**0.5 * noise + 0.3**0.5 * rng.normal(size=(10_000, 1))  # all correlations are 0.3
    exact[:, 0] += 1.0
    axes = np.linalg.eigh(np.corrcoef(exact, rowvar=False))[1]
    first, second = chains_move(Correction(difference(draws, exact), draws, exact, axes))
    assert (first.code, first.coordinates) == ("chains-move", (0,))
    assert second.code == "chains-move-axes"
    assert set(second.coordinates) == set(range(1, dim))


def test_a_doubt_about_one_coordinate_is_not_one_about_the_axes_that_it_is_part_of():
    rng, dim = np.random.default_rng(0), 80
    draws = rng.normal(size=(10_000, dim)) + rng.normal(size=(10_000, 1))
    exact = draws + np.eye(dim)[0] * 1.5
    axes = np.linalg.eigh(np.corrcoef(exact, rowvar=False))[1]
    (doubt,) = chains_move(Correction(difference(draws, exact), draws, exact, axes))
    assert doubt.coordinates == (0,)


@pytest.mark.parametrize("is_right", [True, False])
def test_draws_beside_a_bent_posterior_are_unlikely(is_right):
    """Their means, widths and tails are right in every coordinate."""
    rng = np.random.default_rng(0)
    log_density = lambda x: -0.5 * (x[0] ** 2 + ((x[1] - x[0] ** 2) / 0.3) ** 2)  # noqa: E731
    evaluate = Evaluator(ksivi.Target(log_density, 2))
    first, noise = rng.normal(size=(2, 8_000))
    second = first**2 + 0.3 * noise
    draws = np.stack([first, second if is_right else rng.permutation(second)], axis=1)
    moved = chains(rng, evaluate, draws[:1_000])
    assert difference(draws, moved.settled).is_small()
    likely = some_log_densities(evaluate, draws)
    share = Measured(draws, None, None, moved, log_densities=likely).unlikely
    doubt = too_unlikely(share)
    if is_right:
        assert share == pytest.approx(0.05, abs=0.03)
        assert doubt is None
    else:
        assert share > 0.4
        assert doubt.code == "joint-shape"


def test_nobody_vouches_for_the_joint_shape_in_many_dimensions():
    evaluate = Evaluator(ksivi.Target(lambda x: -0.5 * jnp.sum(x**2), 151))
    assert some_log_densities(evaluate, np.zeros((3, 151))) is None
    assert too_unlikely(None) is None
