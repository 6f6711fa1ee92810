import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ksivi
from ksivi import problems

KEY = jax.random.key(0)
TOYS = {
    "banana": problems.banana,
    "banana, released": lambda: problems.banana("released"),
    "multimodal": problems.multimodal,
    "x-shaped": problems.x_shaped,
    "eight-gaussians": problems.eight_gaussians,
}


@pytest.mark.parametrize("name", TOYS)
def test_toys_are_normalised_and_their_samplers_exact(name):
    """The density integrates to 1, and its mean and covariance on a grid are those of the draws."""
    problem = TOYS[name]()
    axis = np.linspace(-16, 16, 1_201)
    points = np.stack(np.meshgrid(axis, axis), -1).reshape(-1, 2)
    density = np.exp(
        np.asarray(jax.vmap(problem.target.log_density)(jnp.asarray(points)), np.float64)
    )
    weights = density * (axis[1] - axis[0]) ** 2
    np.testing.assert_allclose(weights.sum(), 1.0, rtol=1e-3)
    draws = np.asarray(problem.reference(KEY, 100_000), np.float64)
    for moment in (lambda x: x, lambda x: x**2, lambda x: x[:, :1] * x[:, 1:], np.abs):
        exact, samples = weights @ moment(points), moment(draws)
        assert np.all(
            np.abs(samples.mean(0) - exact) < 4.5 * samples.std(0) / np.sqrt(len(samples)) + 1e-3
        )


def test_the_ring_has_eight_equal_modes():
    """Draws by their nearest centre: an eighth each, and the stated width around it."""
    draws = np.asarray(problems.eight_gaussians().reference(KEY, 40_000), np.float64)
    angles = np.arange(8) * np.pi / 4
    offsets = draws[:, None] - 4 * np.stack([np.cos(angles), np.sin(angles)], -1)
    nearest = np.argmin((offsets**2).sum(-1), axis=1)
    np.testing.assert_allclose(np.bincount(nearest) / 40_000, 1 / 8, atol=4.5 * 0.0017)
    np.testing.assert_allclose(offsets[np.arange(40_000), nearest].std(), 0.5, rtol=0.02)


def test_the_paper_writes_the_banana_upwards():
    assert problems.banana().reference(KEY, 1_000)[:, 1].mean() > 1
    assert problems.banana("released").reference(KEY, 1_000)[:, 1].mean() < -1


def test_waveform_recipe_looks_like_the_data(data):
    """The generator's 5,000 rows against the UCI file: class shares and feature correlations."""
    rows = np.loadtxt(data / "waveform.data", delimiter=",")
    from ksivi.problems._waveform import _generate

    features, label = _generate(seed=0)
    assert np.all(
        np.abs(np.bincount(label) - np.bincount(rows[:, 21].astype(int)))
        < 5 * np.sqrt(2 * 5_000 * 2 / 9)
    )
    for of_class in range(3):
        ours, theirs = features[label == of_class], rows[rows[:, 21] == of_class, :21]
        error = np.sqrt(ours.var(0) / len(ours) + theirs.var(0) / len(theirs))
        assert np.all(np.abs(ours.mean(0) - theirs.mean(0)) < 4.5 * error)


def test_waveform_posterior_has_the_known_mean(data):
    """The score averages to zero over reference draws of the posterior (Stein's identity)."""
    draws = np.load(data / "reference" / "waveform.npz")["draws"].astype(np.float32)
    problem = problems.waveform(data / "waveform.mat", reference=draws)
    scores = np.asarray(jax.jit(jax.vmap(problem.target.score))(jnp.asarray(draws)))
    assert np.all(np.abs(scores.mean(0)) < 5 * scores.std(0) / np.sqrt(len(scores)))
    assert problem.reference(KEY, 10).shape == (10, 22)
    assert problem.x_test.shape == (4_600, 22)


def test_waveform_without_data():
    problem = problems.waveform()
    assert problem.target.dim == 22
    beta = jnp.linspace(-1, 1, 22)
    assert problem.target.log_density(beta) == problems.waveform(seed=0).target.log_density(beta)
    assert problem.target.log_density(beta) != problems.waveform(seed=1).target.log_density(beta)


@pytest.mark.parametrize("dim", [50, 53])
@pytest.mark.parametrize("drift", ["paper", "released"])
def test_diffusion_density(dim, drift):
    """Against its definition, written as a loop."""
    problem = problems.diffusion(dim, drift=drift)
    x = np.random.default_rng(0).normal(size=dim) * 0.3
    path, value = np.concatenate([[0.0], x]), 0.0
    for t in range(dim):
        slope = 10 * path[t] * (1 - path[t] ** 2) / (1 if drift == "paper" else 1 + path[t] ** 2)
        value -= (path[t + 1] - path[t] - slope / dim) ** 2 * dim / 2
    for k, y in enumerate(np.asarray(problem.observations)):
        value -= (y - path[5 * (k + 1)]) ** 2 / (2 * 0.1**2)
    np.testing.assert_allclose(
        problem.target.log_density(jnp.asarray(x, jnp.float32)), value, rtol=1e-4
    )


def test_diffusion_takes_other_observations(data):
    authors = np.load(data / "diffusion_authors.npz")
    problem = problems.diffusion(100, observations=authors["y100"].ravel())
    np.testing.assert_allclose(problem.observations, authors["y100"].ravel(), rtol=1e-6)


@pytest.mark.parametrize("dim", [50, 100, 200])
def test_diffusion_makes_the_authors_observations(dim, data):
    """What PyTorch drew for them, without PyTorch, to the last digits of float32."""
    problem = problems.diffusion(dim, observations="authors")
    np.testing.assert_allclose(
        problem.observations, np.load(data / "diffusion_authors.npz")[f"y{dim}"], rtol=0, atol=5e-7
    )


def test_the_authors_observations_are_known():
    known = {50: -0.82909405, 100: -0.49225676, 200: -0.5060747}
    for dim, first in known.items():
        assert abs(problems.diffusion(dim, observations="authors").observations[0] - first) < 5e-7
    with pytest.raises(ValueError, match="observations must be one of 'authors', got 'mine'"):
        problems.diffusion(50, observations="mine")


@pytest.mark.parametrize("sizes", [(16, 17), (31, 3, 20, 2), (5, 1, 15, 1000)])
def test_normal_numbers_are_those_of_pytorch(sizes):
    """Blocks of 16, tails that are drawn anew, and the odd number that short calls keep for the
    next."""
    torch = pytest.importorskip("torch")
    from ksivi.problems._torch_normals import TorchNormals

    torch.manual_seed(7)
    ours = TorchNormals(7)
    for n in sizes:
        np.testing.assert_allclose(ours.draw(n), torch.randn(n).numpy(), rtol=0, atol=2e-6)


def test_problems_have_names():
    made = [
        problems.banana(),
        problems.multimodal(),
        problems.x_shaped(),
        problems.eight_gaussians(),
        problems.waveform(),
        problems.diffusion(50),
    ]
    assert [problem.name for problem in made] == [
        "banana",
        "multimodal",
        "x-shaped",
        "eight-gaussians",
        "waveform",
        "diffusion",
    ]
    assert all(isinstance(problem.target, ksivi.Target) for problem in made)
