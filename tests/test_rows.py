"""Rows that stay on the host: epochs, files, control variates, and training from them."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import ksivi

COEFFICIENTS = np.array([1.0, -2.0, 0.5])


def log_prior(beta):
    return -0.5 * jnp.sum(beta**2)


def log_likelihood(beta, batch):
    return -0.5 * jnp.sum((batch["y"] - batch["x"] @ beta) ** 2)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(20_000, 3)).astype(np.float32)
    return {"x": x, "y": (x @ COEFFICIENTS + rng.normal(size=len(x))).astype(np.float32)}


def exact(data):
    precision = data["x"].T.astype(float) @ data["x"] + np.eye(3)
    covariance = np.linalg.inv(precision)
    return covariance @ (data["x"].T.astype(float) @ data["y"]), np.sqrt(np.diag(covariance))


def target_of(rows, batch_size=500):
    return ksivi.Target.from_data(log_prior, log_likelihood, rows, dim=3, batch_size=batch_size)


@pytest.mark.parametrize("num_rows", [1, 7, 100, 103])
@pytest.mark.parametrize(("block_size", "pool"), [(1, 1), (1, 64), (10, 3), (1_000, 64)])
def test_an_epoch_has_every_row_once(num_rows, block_size, pool):
    rows = ksivi.Rows(np.arange(num_rows), block_size=block_size, pool=pool)
    for epoch in range(3):
        found = rows.take(5, epoch * num_rows, num_rows)
        np.testing.assert_array_equal(np.sort(found), np.arange(num_rows))


def test_rows_depend_on_seed_and_position_alone():
    rows = ksivi.Rows(np.arange(103), block_size=10, pool=3)
    whole = rows.take(5, 0, 300)
    parts = [rows.take(5, start, 25) for start in range(0, 300, 25)]
    np.testing.assert_array_equal(np.concatenate(parts), whole)
    assert not np.array_equal(whole[:100], rows.take(6, 0, 100))
    assert not np.array_equal(whole[:103], whole[103:206])


def test_single_rows_are_in_uniform_order():
    """The mean and spread of the position of row 0 over many epochs."""
    rows = ksivi.Rows(np.arange(50), block_size=1, pool=50)
    places = np.array([np.argmin(rows.take(0, 50 * epoch, 50)) for epoch in range(2_000)])
    error = np.sqrt((50**2 - 1) / 12 / 2_000)
    assert abs(places.mean() - 24.5) < 4 * error
    assert abs(places.std() - np.sqrt((50**2 - 1) / 12)) < 4 * error


def test_parquet_and_memory_maps_give_the_rows_of_arrays(tmp_path):
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    parquet = pytest.importorskip("pyarrow.parquet")
    values = {"a": np.arange(95), "b": np.linspace(0, 1, 95)}
    parquet.write_table(pyarrow.table(values), tmp_path / "rows.parquet", row_group_size=10)
    np.save(tmp_path / "a.npy", values["a"])
    expected = ksivi.Rows(values, block_size=10).take(3, 40, 200)
    found = ksivi.Rows.parquet(tmp_path / "rows.parquet").take(3, 40, 200)
    mapped = ksivi.Rows(np.load(tmp_path / "a.npy", mmap_mode="r"), block_size=10).take(3, 40, 200)
    jax.tree.map(np.testing.assert_array_equal, found, expected)
    np.testing.assert_array_equal(mapped, expected["a"])
    some = ksivi.Rows.parquet(tmp_path / "rows.parquet", columns=["b"])
    assert list(some.block(0)) == ["b"]


def test_zarr_arrays_are_rows(tmp_path):
    zarr = pytest.importorskip("zarr", reason="zarr is not installed")
    stored = zarr.create_array(str(tmp_path / "x.zarr"), shape=(95, 2), chunks=(10, 2), dtype="f4")
    stored[:] = np.arange(190).reshape(95, 2)
    expected = ksivi.Rows(np.arange(190, dtype="f4").reshape(95, 2), block_size=10).take(3, 0, 95)
    np.testing.assert_array_equal(ksivi.Rows(stored, block_size=10).take(3, 0, 95), expected)


def test_bad_rows_are_refused(tmp_path):
    with pytest.raises(ValueError, match="arrays must have a shape, a dtype and rows, got"):
        ksivi.Rows([1, 2, 3])
    with pytest.raises(
        ValueError, match=r"arrays must have the same number of rows, at least 1, got \[2, 3\]"
    ):
        ksivi.Rows({"x": np.zeros(2), "y": np.zeros(3)})
    with pytest.raises(ValueError, match="block_size must be a whole number"):
        ksivi.Rows(np.zeros(3), block_size=0)
    with pytest.raises(ValueError, match="batch_size must be given for the 10 rows of ksivi"):
        target_of(ksivi.Rows({"x": np.zeros((10, 3)), "y": np.zeros(10)}), batch_size=None)


def test_what_needs_all_rows_says_so(data):
    target = target_of(ksivi.Rows(data))
    with pytest.raises(
        ValueError,
        match="run needs all rows in memory, and the rows of this target stay on the host",
    ):
        ksivi.run(jax.random.key(0), target, ksivi.SVGD(num_particles=5, num_steps=5))


def test_a_control_variate_leaves_the_estimate_unbiased_and_quiet(data, x64):
    """Compares with the score of all rows, near the anchor, over many minibatches."""
    wide = {name: jnp.asarray(column, float) for name, column in data.items()}
    target, whole = target_of(wide), target_of(wide, batch_size=None)
    mean, sd = exact(data)
    anchored = target.with_control_variate(mean + 2 * sd)
    x = jnp.asarray(mean - 2 * sd)
    keys = jax.random.split(jax.random.key(0), 400)
    errors = {
        name: np.asarray(jax.vmap(lambda key, t=t: t.minibatch(key).score(x))(keys))
        - np.asarray(whole.score(x))
        for name, t in {"plain": target, "anchored": anchored}.items()
    }
    for error in errors.values():
        assert np.all(np.abs(error.mean(axis=0)) < 4 * error.std(axis=0) / np.sqrt(400))
    assert np.all(errors["anchored"].std(axis=0) < 0.1 * errors["plain"].std(axis=0))


def test_newton_and_the_anchor_are_the_same_from_the_host(data):
    mean, sd = exact(data)
    from_host = target_of(ksivi.Rows(data)).with_control_variate(jnp.zeros(3), num_newton=3)
    in_memory = target_of(jax.tree.map(jnp.asarray, data)).with_control_variate(
        jnp.zeros(3), num_newton=1
    )
    assert np.all(np.abs((from_host.anchor - mean) / sd) < 0.1)
    assert np.all(np.abs((in_memory.anchor - mean) / sd) < 0.1)
    at = jnp.asarray(mean, jnp.float32)
    host, memory = (
        target_of(rows).with_control_variate(at).density.control_variate
        for rows in (ksivi.Rows(data), in_memory.density.data)
    )
    np.testing.assert_allclose(host.value, memory.value, rtol=1e-5)
    np.testing.assert_allclose(host.score, memory.score, atol=0.05 / sd.min())


def trained(data, **options):
    target = target_of(ksivi.Rows(data)).with_control_variate(jnp.zeros(3), num_newton=3)
    hessian = jax.hessian(target.log_density)(target.anchor)
    view = target.whitened(target.anchor, jnp.linalg.cholesky(jnp.linalg.inv(-hessian)))
    family = ksivi.SemiImplicit.mlp(jax.random.key(1), dim=3, mixing_dim=3, hidden=(16, 16))
    steps = options.pop("num_steps", 1_000)
    optimizer = optax.adam(optax.cosine_decay_schedule(3e-3, 1_000))
    return ksivi.train(
        jax.random.key(2),
        view,
        family,
        ksivi.KSIVI(num_samples=50),
        num_steps=steps,
        optimizer=optimizer,
        **options,
    )


@pytest.mark.slow
def test_training_from_the_host_finds_the_posterior(data):
    mean, sd = exact(data)
    draws = np.asarray(trained(data).posterior.sample(jax.random.key(3), 20_000))
    assert np.all(np.abs(draws.mean(axis=0) - mean) < 0.1 * sd)
    assert np.all(np.abs(np.log(draws.std(axis=0) / sd)) < 0.15)


def test_training_depends_on_neither_chunks_nor_resuming(data):
    whole = trained(data, num_steps=40, chunk_size=40)
    chunks = trained(data, num_steps=40, chunk_size=10)
    first = trained(data, num_steps=20, chunk_size=7)
    resumed = trained(data, num_steps=40, chunk_size=20, resume=first.state)
    np.testing.assert_array_equal(whole.history["loss"], chunks.history["loss"])
    np.testing.assert_array_equal(whole.history["loss"][20:], resumed.history["loss"])
