"""Targets from NumPyro models: names, shapes, supports, densities and errors."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats

import ksivi
from ksivi.families import Empirical


def regression(x, y=None):
    slope = numpyro.sample("slope", dist.Normal(0, 2).expand([x.shape[1]]))
    noise = numpyro.sample("noise", dist.HalfNormal(1.5))
    share = numpyro.sample("share", dist.Uniform(-1, 3))
    numpyro.sample("y", dist.Normal(x @ slope + share, noise), obs=y)


def data():
    rng = np.random.default_rng(0)
    return rng.normal(size=(7, 2)), rng.normal(size=7)


def test_the_density_is_the_models_with_the_jacobian():
    x, y = data()
    target = ksivi.from_numpyro(regression, x, y=y)
    assert target.layout == (("noise", ()), ("share", ()), ("slope", (2,)))
    u = np.array([0.3, -0.4, 0.5, -1.2])
    noise, sigmoid, slope = np.exp(u[0]), 1 / (1 + np.exp(-u[1])), u[2:]
    share = -1 + 4 * sigmoid
    expected = stats.halfnorm.logpdf(noise, scale=1.5) + u[0] + stats.norm.logpdf(slope, 0, 2).sum()
    expected += np.log(1 / 4) + np.log(4 * sigmoid * (1 - sigmoid))
    expected += stats.norm.logpdf(y, x @ slope + share, noise).sum()
    np.testing.assert_allclose(target.log_density(jnp.asarray(u, jnp.float32)), expected, rtol=1e-5)


def test_draws_are_on_the_models_scale_and_survive_saving(tmp_path):
    x, y = data()
    target = ksivi.from_numpyro(regression, x, y=y)
    points = jax.random.normal(jax.random.key(0), (50, 4))
    posterior = ksivi.Posterior.of(Empirical(points), target)
    posterior.save(tmp_path / "p.safetensors")
    for one in (posterior, ksivi.load(tmp_path / "p.safetensors")):
        draws = one.draws(jax.random.key(1), 50)
        assert draws["slope"].shape == (50, 2)
        np.testing.assert_allclose(
            np.sort(draws["noise"]), np.sort(np.exp(points[:, 0])), rtol=1e-5
        )
        assert bool(jnp.all((draws["share"] > -1) & (draws["share"] < 3)))


def test_new_data_of_the_same_shapes_does_not_trace_again():
    traces = []

    def model(y):
        traces.append(1)
        numpyro.sample("y", dist.Normal(numpyro.sample("mu", dist.Normal(0, 1)), 1), obs=y)

    evaluate = eqx.filter_jit(lambda target, x: target.log_density(x))
    targets = [ksivi.from_numpyro(model, np.full(3, value)) for value in (0.0, 1.0)]
    values = [evaluate(targets[0], jnp.zeros(1))]
    count = len(traces)
    values.append(evaluate(targets[1], jnp.zeros(1)))
    assert len(traces) == count
    np.testing.assert_allclose(values[0] - values[1], 1.5, rtol=1e-5)


def special():
    numpyro.sample("weights", dist.Dirichlet(jnp.ones(3)))
    numpyro.sample("root", dist.LKJCholesky(3, 2.0))
    numpyro.sample("flat", dist.ImproperUniform(dist.constraints.real, (), (2,)))
    numpyro.sample("rates", dist.Gamma(2, 1).expand([2, 2]))
    numpyro.factor("finite", -0.5)


@pytest.mark.slow
def test_simplices_correlations_and_flat_priors():
    target = ksivi.from_numpyro(special)
    assert dict(target.layout) == {"weights": (2,), "root": (3,), "flat": (2,), "rates": (2, 2)}
    posterior = ksivi.Posterior.of(
        Empirical(jax.random.normal(jax.random.key(0), (20, target.dim))), target
    )
    draws = posterior.draws(jax.random.key(1), 20)
    np.testing.assert_allclose(draws["weights"].sum(axis=1), 1, rtol=1e-5)
    np.testing.assert_allclose((draws["root"] ** 2).sum(axis=2), 1, rtol=1e-5)
    assert draws["rates"].shape == (20, 2, 2)
    assert bool(jnp.all(draws["rates"] > 0))


def discrete():
    numpyro.sample("count", dist.Poisson(2.0))


def local():
    with numpyro.plate("rows", 10, subsample_size=3):
        numpyro.sample("x", dist.Normal(0, 1))


def crossed():
    mu = numpyro.sample("mu", dist.Normal(0, 1))
    with (
        numpyro.plate("left", 10, subsample_size=3, dim=-1),
        numpyro.plate("right", 8, subsample_size=2, dim=-2),
    ):
        numpyro.sample("y", dist.Normal(mu, 1), obs=jnp.zeros((2, 3)))


def one_batch():
    mu = numpyro.sample("mu", dist.Normal(0, 1))
    with numpyro.plate("rows", 10, subsample_size=3):
        numpyro.sample("y", dist.Normal(mu, 1), obs=jnp.zeros(3))


def never_a_batch():
    slope = numpyro.sample("slope", dist.Normal(0, 1))
    with numpyro.plate("rows", 10, subsample_size=3):
        numpyro.sample("y", dist.Normal(slope, 1), obs=jnp.zeros(10))


def one_batch_of_means():
    slope = numpyro.sample("slope", dist.Normal(0, 1))
    with numpyro.plate("rows", 10, subsample_size=3):
        numpyro.sample("y", dist.Normal(slope * jnp.ones(3), 1), obs=jnp.zeros(3))


def outside():
    mu = numpyro.sample("mu", dist.Normal(0, 1))
    with numpyro.plate("rows", 10, subsample_size=3) as rows:
        y = jnp.zeros(10)[rows]
    numpyro.sample("y", dist.Normal(mu, 1), obs=y)


def of_two_sizes():
    mu = numpyro.sample("mu", dist.Normal(0, 1))
    for name, size in (("first", 10), ("second", 12)):
        with numpyro.plate("rows", size, subsample_size=3) as rows:
            numpyro.sample(name, dist.Normal(mu, 1), obs=jnp.zeros(size)[rows])


def dependent():
    numpyro.sample("below", dist.Uniform(0, numpyro.sample("top", dist.HalfNormal(1.0))))


def observed():
    numpyro.sample("y", dist.Normal(0, 1), obs=1.0)


def unlearned():
    numpyro.param("w", 1.0)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (discrete, "'count' is discrete"),
        (local, "'x' is a parameter inside the subsampled plate 'rows'"),
        (crossed, "at most one subsampled plate, got 'left' and 'right'"),
        (one_batch, r"given all 10 rows of plate 'rows', .* with 10 rows sample site 'y' has 3"),
        (never_a_batch, "with 3 rows sample site 'y' has 10"),
        (
            one_batch_of_means,
            r"select the rows of a minibatch itself, with numpyro.* with 10 rows it failed",
        ),
        (
            outside,
            r"'y' is outside the subsampled plate 'rows', but its shape depends .*, \(3,\)",
        ),
        (of_two_sizes, "plate 'rows' must have one size"),
        (dependent, "'below' has a support that depends"),
        (observed, "parameter to infer"),
        (unlearned, "'w' has no prior"),
        ("model", "model must be a function"),
    ],
)
def test_what_cannot_be_approximated_is_refused_with_the_reason(model, words):
    with pytest.raises(ValueError, match=words):
        ksivi.from_numpyro(model)


N, B = 40, 8


def many_rows():
    rng = np.random.default_rng(3)
    x = rng.normal(size=(N, 2))
    return x, x @ np.array([1.0, -0.5]) + 0.5 * rng.normal(size=N)


def by_index(x, y=None, batch_size=B):
    slope = numpyro.sample("slope", dist.Normal(0, 2).expand([2]))
    noise = numpyro.sample("noise", dist.HalfNormal(1))
    with numpyro.plate("rows", len(x), subsample_size=batch_size) as rows:
        mean = numpyro.deterministic("mean", x[rows] @ slope)
        numpyro.sample("y", dist.Normal(mean, noise), obs=None if y is None else y[rows])


def by_subsample(x, y=None, batch_size=B):
    slope = numpyro.sample("slope", dist.Normal(0, 2).expand([2]))
    noise = numpyro.sample("noise", dist.HalfNormal(1))
    with numpyro.plate("rows", len(x), subsample_size=batch_size):
        mean = numpyro.deterministic("mean", numpyro.subsample(x, event_dim=1) @ slope)
        numpyro.sample(
            "y",
            dist.Normal(mean, noise),
            obs=None if y is None else numpyro.subsample(y, event_dim=0),
        )


def in_plates(x, y, batch_size=B):
    """Rows are the second axis of the data. Each is an event of two numbers."""
    slope = numpyro.sample("slope", dist.Normal(0, 2).expand([2]))
    noise = numpyro.sample("noise", dist.HalfNormal(1))
    with (
        numpyro.plate("rows", len(x), subsample_size=batch_size, dim=-2) as rows,
        numpyro.plate("twice", 2, dim=-1),
    ):
        mean = (x[rows] @ slope)[:, None, None] + jnp.zeros((1, 2, 3))
        numpyro.sample(
            "y",
            dist.Normal(mean, noise).to_event(1),
            obs=jnp.zeros((1, 2, 3)) + y[rows][:, None, None],
        )


@pytest.fixture(scope="module", params=[by_index, by_subsample, in_plates])
def subsampled(request):
    """Targets of a model with a subsampled plate, and of the same model without subsampling."""
    x, y = many_rows()
    return tuple(ksivi.from_numpyro(request.param, x, y, batch_size=size) for size in (B, None))


POINTS = np.random.default_rng(4).normal(size=(5, 3)).astype(np.float32)


def test_without_rows_a_subsampled_plate_has_all_of_them(subsampled):
    target, whole = subsampled
    assert target.is_minibatched
    assert not whole.is_minibatched
    assert target.layout == whole.layout
    found, expected = (jax.jit(jax.vmap(one.log_density_and_score))(POINTS) for one in subsampled)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-4), found, expected
    )


def test_minibatches_of_a_plate_are_unbiased(subsampled):
    target, whole = subsampled
    rows = jax.vmap(target.draw_rows)(jax.random.split(jax.random.key(0), 4_000))
    assert rows.shape == (4_000, B)
    for point in POINTS[:2]:
        drawn = jax.jit(
            jax.vmap(lambda r, x: target.on_rows(r).log_density_and_score(x), (0, None))
        )(rows, point)
        for found, expected in zip(drawn, whole.log_density_and_score(point), strict=True):
            found = np.asarray(found, np.float64)
            assert np.all(found.std(axis=0) > 0)
            error = found.std(axis=0) / np.sqrt(len(found))
            np.testing.assert_array_less(np.abs(found.mean(axis=0) - expected), 4 * error)


@pytest.mark.parametrize("model", [by_index, by_subsample])
@pytest.mark.parametrize("batch_size", [B, N])
def test_predictions_are_for_as_many_rows_as_are_given(model, batch_size):
    """Of fewer rows than a minibatch, of more, and also if the data of the fit are one minibatch."""
    x, y = (jnp.asarray(one) for one in many_rows())
    target = ksivi.from_numpyro(model, x, y, batch_size=batch_size)
    draws = {"noise": jnp.full(6, 1e-3), "slope": jnp.ones((6, 2))}
    for new in (x[:1], x[: B - 1], x[:B], x, jnp.concatenate([x, x])):
        found = target.model.predictive(jax.random.key(0), draws, new, batch_size=batch_size)
        expected = jnp.broadcast_to(new.sum(axis=1), (6, len(new)))
        np.testing.assert_allclose(found["y"], expected, atol=0.01)


def test_a_minibatch_of_more_rows_than_there_are_is_named():
    x, y = many_rows()

    def model(x, y):
        with pytest.warns(UserWarning, match="subsample_size does not match"):
            by_index(x, y, N + 1)

    words = f"plate 'rows' must have a subsample_size of at most its {N} rows, got {N + 1}"
    with pytest.raises(ValueError, match=words):
        ksivi.from_numpyro(model, x, y)


def test_one_minibatch_is_weighed_by_hand():
    x, y = many_rows()
    target, rows = ksivi.from_numpyro(by_index, x, y), np.array([3, 3, 17, 39])
    u = np.array([-0.3, 0.7, 0.2])
    noise, slope = np.exp(u[0]), u[1:]
    expected = stats.halfnorm.logpdf(noise) + u[0] + stats.norm.logpdf(slope, 0, 2).sum()
    expected += N / 4 * stats.norm.logpdf(y[rows], x[rows] @ slope, noise).sum()
    found = target.on_rows(jnp.asarray(rows)).log_density(jnp.asarray(u, jnp.float32))
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.slow
def test_a_subsampled_model_trains_to_the_right_mean():
    """The noise is known, so that the posterior is a known Gaussian."""

    def model(x, y):
        slope = numpyro.sample("slope", dist.Normal(0, 2).expand([2]))
        with numpyro.plate("rows", N, subsample_size=20) as rows:
            numpyro.sample("y", dist.Normal(x[rows] @ slope, 0.5), obs=y[rows])

    x, y = many_rows()
    family = ksivi.SemiImplicit.mlp(
        jax.random.key(0), dim=2, mixing_dim=2, hidden=(16,), log_var=-4.0
    )
    target = ksivi.from_numpyro(model, x, y)
    fit = ksivi.train(
        jax.random.key(1),
        target,
        family,
        ksivi.KSIVI(num_samples=50),
        num_steps=3_000,
        progress=False,
    )
    precision = x.T @ x / 0.5**2 + np.eye(2) / 2**2
    mean = np.linalg.solve(precision, x.T @ y / 0.5**2)
    draws = np.asarray(fit.posterior.sample(jax.random.key(2), 4_000))
    widths = np.sqrt(np.diag(np.linalg.inv(precision)))
    np.testing.assert_array_less(np.abs(draws.mean(axis=0) - mean) / widths, 0.3)


def test_what_a_subsampled_model_knows_is_of_all_rows():
    x, y = many_rows()
    posteriors = [
        ksivi.Posterior.of(
            Empirical(jnp.asarray(POINTS)), ksivi.from_numpyro(by_subsample, x, y, batch_size=size)
        )
        for size in (B, None)
    ]
    model, whole = (posterior.target.model for posterior in posteriors)
    draws = posteriors[0].constrain(jnp.asarray(POINTS))
    for name in ("deterministics", "log_likelihood"):
        found, expected = (getattr(one, name)(draws) for one in (model, whole))
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), found, expected
        )
    np.testing.assert_allclose(model.observed()["y"], y, rtol=1e-6)
    assert posteriors[0].predictive(jax.random.key(0), 3)["y"].shape == (3, N)
    assert posteriors[0].predictive(jax.random.key(0), 3, np.ones((5, 2)))["y"].shape == (3, 5)


def test_more_rows_than_the_plate_has_are_refused():
    target = ksivi.from_numpyro(by_subsample, *many_rows())
    with pytest.raises(ValueError, match="rows must be fewer than the 40 of plate 'rows', got 40"):
        target.on_rows(jnp.arange(N)).log_density(jnp.zeros(3))
