"""SVGD, KSDD and MIED against float64 double loops, finite differences, and what they must do with one particle."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import ksivi
from ksivi.kernels import IMQ, Fixed, Gaussian, Laplace, Matern
from ksivi.methods._mied import interaction_energy

KEY = jax.random.key(0)


def log_density(x):
    """Correlated, skewed, nowhere simple."""
    return -0.5 * (x[0] ** 2 + (x[1] - 0.5 * x[0] ** 2) ** 2 + 0.3 * x[2] ** 4 + 0.2 * x[0] * x[2])


def target():
    return ksivi.Target(log_density, dim=3)


def points(n, seed=0):
    return np.random.default_rng(seed).normal(size=(n, 3))


def gaussian_gram(x, y, h):
    return np.exp(-np.sum((x - y) ** 2) / h)


def scores(x):
    return np.asarray(jax.jit(jax.vmap(jax.grad(log_density)))(jnp.asarray(x)))


def stein_loop(x, h):
    """KSD² as a V-statistic: uₚ by its four terms, pair by pair."""
    s, n, d = scores(x), *x.shape
    total = 0.0
    for i in range(n):
        for j in range(n):
            k, gap = gaussian_gram(x[i], x[j], h), x[i] - x[j]
            grad_x, grad_y = -2 / h * gap * k, 2 / h * gap * k
            trace = (2 * d / h - 4 * gap @ gap / h**2) * k
            total += s[i] @ s[j] * k + s[i] @ grad_y + s[j] @ grad_x + trace
    return total / n**2


def finite_differences(function, x, step=1e-5):
    gradient = np.zeros_like(x)
    for index in np.ndindex(*x.shape):
        up, down = x.copy(), x.copy()
        up[index] += step
        down[index] -= step
        gradient[index] = (function(up) - function(down)) / (2 * step)
    return gradient


def test_ksdds_loss_and_gradient(x64):
    """Against a double loop, and against finite differences of that loop."""
    method, x = ksivi.KSDD(num_particles=6, kernel=Gaussian(Fixed(1.7))), points(6)
    posterior = target()
    loss, gradient, score = jax.jit(lambda x: method.descent(KEY, x, posterior))(jnp.asarray(x))
    np.testing.assert_allclose(loss, stein_loop(x, 1.7), rtol=1e-10)
    np.testing.assert_allclose(
        gradient, finite_differences(lambda y: stein_loop(y, 1.7), x), rtol=1e-6, atol=1e-8
    )
    np.testing.assert_allclose(score, scores(x))


def test_ksdds_kernel_has_unit_variance(x64):
    x = points(5)
    posterior = target()
    loss = jax.jit(lambda x: ksivi.KSDD().loss(x, posterior))(jnp.asarray(x))
    np.testing.assert_allclose(loss, stein_loop(x, 2.0), rtol=1e-10)


def energy_loop(x, log_p, epsilon, own=None):
    """MIED's energy; `own` are squared distances of points to themselves, by the diagonal rule unless given."""
    n, d = x.shape
    own = diagonal(x) if own is None else own
    terms = []
    for i in range(n):
        for j in range(n):
            square = own[i] if i == j else np.sum((x[i] - x[j]) ** 2)
            terms.append(-(d + 1e-4) / 2 * np.log(square + epsilon) - 0.5 * (log_p[i] + log_p[j]))
    return np.log(np.sum(np.exp(terms)))


def diagonal(x):
    n, d = x.shape
    nearest = [min(np.linalg.norm(x[i] - x[j]) for j in range(n) if j != i) for i in range(n)]
    return (np.array(nearest) / (1.3 * d) ** (1 / d)) ** 2


def test_mieds_energy_and_its_diagonal_rule(x64):
    x = points(7)
    log_p = np.asarray(jax.vmap(log_density)(jnp.asarray(x)))
    value = interaction_energy(jnp.asarray(x), jnp.asarray(log_p), jnp.asarray(1e-8))
    np.testing.assert_allclose(value, energy_loop(x, log_p, 1e-8), rtol=1e-10)
    assert abs(value - energy_loop(x, log_p, 1e-8, own=np.zeros(7))) > 1


def test_mieds_gradient_leaves_the_diagonal_constant(x64):
    x, method = points(6), ksivi.MIED(num_particles=6)
    own = diagonal(x)
    values = lambda y: np.asarray(jax.vmap(log_density)(jnp.asarray(y)))  # noqa: E731
    expected = finite_differences(lambda y: energy_loop(y, values(y), 1e-8, own), x)
    np.testing.assert_allclose(
        method.descent(KEY, jnp.asarray(x), target()).gradient, expected, rtol=1e-5, atol=1e-7
    )


def test_mied_in_tiles_is_mied_in_one(x64, monkeypatch):
    from ksivi.kernels import _pairwise as pairwise

    x, log_p = jnp.asarray(points(10)), jnp.arange(10.0) / 10
    whole = jax.value_and_grad(interaction_energy)(x, log_p, jnp.asarray(1e-8))
    monkeypatch.setattr(pairwise, "TILE", 40)
    tiled = jax.jit(jax.value_and_grad(interaction_energy))(x, log_p, jnp.asarray(1e-8))
    for a, b in zip(whole, tiled, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


@pytest.mark.parametrize(
    ("kernel", "tile"),
    [(Gaussian(), 2**22), (Gaussian(), 25), (IMQ(), 2**22), (Matern(nu=2.5), 25)],
    ids=["gaussian", "gaussian-tiled", "imq", "matern-tiled"],
)
def test_svgds_direction(x64, monkeypatch, kernel, tile):
    """Against the definition by automatic differentiation, pair by pair; the median bandwidth included."""
    from ksivi.kernels import _pairwise as pairwise

    monkeypatch.setattr(pairwise, "TILE", tile)
    x = jnp.asarray(points(8))
    method, posterior = ksivi.SVGD(8, kernel=kernel), target()
    descent = jax.jit(lambda x: method.descent(KEY, x, posterior))(x)
    fixed, s = kernel.resolve(x, x, 1), scores(x)
    values, pushes = jax.jit(jax.vmap(jax.vmap(jax.value_and_grad(fixed), (None, 0)), (0, None)))(
        x, x
    )
    expected = np.zeros(x.shape)
    for i in range(8):
        for j in range(8):
            # Matérn kernels have no derivative to automatic differentiation where the points coincide; it is 0.
            push = 0 if i == j else np.asarray(pushes)[j, i]
            expected[i] += (np.asarray(values)[j, i] * s[j] + push) / 8
    np.testing.assert_allclose(-descent.gradient, expected, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(descent.loss, np.mean(np.sum(expected**2, axis=1)), rtol=1e-8)


@pytest.mark.parametrize("method", [ksivi.SVGD, ksivi.MIED], ids=["svgd", "mied"])
def test_one_particle_climbs_to_the_mode(method):
    """The median of no distances, or of one that is 0, makes no NaN."""
    fit = ksivi.run(KEY, target(), method(num_particles=1, num_steps=2_000))
    point = fit.posterior.family.points[0]
    assert np.isfinite(fit.history["loss"]).all()
    assert np.abs(jax.grad(log_density)(point)).max() < 1e-3


def test_particles_that_start_together_do_not_make_nan():
    start = jnp.ones((20, 3))
    for method in (ksivi.SVGD, ksivi.KSDD, ksivi.MIED):
        fit = ksivi.run(KEY, target(), method(20, 20, start=start), chunk_size=20)
        assert np.isfinite(fit.posterior.family.points).all(), method


def test_svgd_uses_minibatches():
    rows = jax.random.normal(KEY, (1_000, 2)) + jnp.array([[1.0, -2.0]])
    log_likelihood = lambda x, batch: -0.5 * jnp.sum((batch - x[None]) ** 2)  # noqa: E731
    data = ksivi.Target.from_data(lambda x: 0.0 * x[0], log_likelihood, rows, dim=2, batch_size=50)
    schedule = optax.adam(optax.cosine_decay_schedule(0.05, 1_000))
    draws = ksivi.run(KEY, data, ksivi.SVGD(50, 1_000, optimizer=schedule)).posterior.family.points
    assert np.abs(draws.mean(0) - rows.mean(0)).max() < 0.02


def test_svgd_and_ksdd_need_the_score_alone():
    score_only = ksivi.Target.from_score(lambda x: -x, dim=2)
    for method in (ksivi.SVGD(20, 20), ksivi.KSDD(20, 20)):
        assert ksivi.run(KEY, score_only, method).status.kind == "step limit"
    with pytest.raises(
        ValueError, match="MIED needs log-density values, but this target has only a score"
    ):
        ksivi.run(KEY, score_only, ksivi.MIED(20, 20))


def test_a_longer_run_resumes():
    unbroken = ksivi.run(KEY, target(), ksivi.SVGD(20, 60), chunk_size=20)
    first = ksivi.run(KEY, target(), ksivi.SVGD(20, 40), chunk_size=20)
    rest = ksivi.run(KEY, target(), ksivi.SVGD(20, 60), resume=first.state, chunk_size=20)
    assert np.array_equal(rest.posterior.family.points, unbroken.posterior.family.points)
    assert rest.cost.steps == 20
    with pytest.raises(ValueError, match="resume must come from a run of fewer than 60 steps"):
        ksivi.run(KEY, target(), ksivi.SVGD(20, 60), resume=unbroken.state)
    with pytest.raises(ValueError, match="resume must come from a run of the same SVGD"):
        ksivi.run(KEY, target(), ksivi.SVGD(21, 60), resume=first.state)


def test_a_callback_ends_a_run_and_sees_the_posterior():
    seen = []

    def callback(chunk):
        seen.append(chunk)
        return chunk.step >= 40

    fit = ksivi.run(KEY, target(), ksivi.SVGD(20, 100), callbacks=[callback], chunk_size=20)
    assert str(fit.status) == "interrupted: stopped by a callback after 40 of 100 steps"
    assert [chunk.step for chunk in seen] == [20, 40]
    assert seen[-1].posteriors()[0].sample(KEY, 5).shape == (5, 3)


def test_ctrl_c_keeps_what_there_is():
    def callback(chunk):
        if chunk.step >= 40:
            raise KeyboardInterrupt

    fit = ksivi.run(KEY, target(), ksivi.SVGD(20, 100), callbacks=[callback], chunk_size=20)
    assert str(fit.status) == "interrupted: stopped by the user after 40 of 100 steps"
    assert fit.posterior.sample(KEY, 20).shape == (20, 3)


def test_stored_draws_resample_save_and_refuse_a_density(tmp_path):
    posterior = ksivi.run(KEY, target(), ksivi.SVGD(20, 20), chunk_size=20).posterior
    once = np.asarray(posterior.sample(KEY, 20))
    assert len(np.unique(once, axis=0)) == 20
    counts = np.unique(np.asarray(posterior.sample(KEY, 50)), axis=0, return_counts=True)[1]
    assert set(counts) == {2, 3}
    posterior.save(tmp_path / "points.safetensors")
    same = ksivi.load(tmp_path / "points.safetensors")
    assert np.array_equal(same.sample(KEY, 50), posterior.sample(KEY, 50))
    assert posterior.draws(KEY, 4)["x"].shape == (4, 3)
    with pytest.raises(ValueError, match="this posterior is a set of stored draws"):
        posterior.log_prob(KEY, jnp.zeros((1, 3)))
    with pytest.raises(ValueError, match="stored draws have no density and no weights"):
        ksivi.diagnostics.importance(KEY, target(), posterior)


def test_whitened_targets_give_draws_in_the_original_coordinates():
    far = ksivi.Target(lambda x: -0.5 * jnp.sum((x - 100.0) ** 2 / 25.0), dim=2)
    fit = ksivi.run(KEY, far.whitened(jnp.full(2, 100.0), jnp.full(2, 5.0)), ksivi.SVGD(100, 500))
    draws = fit.posterior.sample(KEY, 100)
    np.testing.assert_allclose(draws.mean(0), 100, atol=0.5)
    np.testing.assert_allclose(draws.std(0), 5, rtol=0.1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ksivi.SVGD(0), "num_particles must be a whole number of at least 1"),
        (lambda: ksivi.SVGD(num_steps=0), "num_steps must be a whole number of at least 1"),
        (lambda: ksivi.SVGD(optimizer=0.1), "optimizer must be an Optax transformation"),
        (lambda: ksivi.SVGD(kernel="gaussian"), "kernel must be one of ksivi.kernels"),
        (
            lambda: ksivi.SVGD(kernel=Laplace()),
            "a Stein kernel needs a twice differentiable function",
        ),
        (
            lambda: ksivi.SVGD(5, start=jnp.zeros((4, 2))),
            "start must have 5 points, one per particle or chain, got 4",
        ),
        (lambda: ksivi.MIED(epsilon=0.0), "epsilon must be one positive number"),
        (lambda: ksivi.KSDD(start=jnp.full((200, 2), jnp.nan)), "start must be finite"),
        (lambda: ksivi.run(KEY, target(), "nuts"), "method must be one of ksivi's methods"),
        (lambda: ksivi.run(KEY, log_density, ksivi.SVGD()), "target must be a ksivi.Target"),
        (
            lambda: ksivi.run(jax.random.split(KEY, (2, 2)), target(), ksivi.SVGD()),
            "key must be one key or a flat",
        ),
        (
            lambda: ksivi.run(KEY, target(), ksivi.SVGD(2, start=jnp.zeros((2, 2)))),
            "start must have the target's 3",
        ),
        (
            lambda: ksivi.run(KEY, target(), ksivi.SVGD(), resume=3),
            "resume must be the state of a Fit made by ksivi",
        ),
        (
            lambda: ksivi.run(KEY, target(), ksivi.SVGD(optimizer=optax.lbfgs())),
            "SVGD has no loss to search along",
        ),
        (
            lambda: ksivi.run(
                KEY,
                ksivi.Target(lambda x: jnp.log(x[0]), 1, test_point=jnp.ones(1)),
                ksivi.SVGD(50),
            ),
            "target must be finite where the points start",
        ),
    ],
)
def test_bad_arguments_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
