"""What `ksivi.fit` is compared with on large posteriors: NumPyro's NUTS, minibatch guides, and HMCECS.

Each is a generator, as in `contestants`: it yields after a slice of work, with a function that makes 1,000 draws, or
None while it has none. So a run can be ended at any slice, and its accuracy at that time is known. All have the prior,
the likelihood and the rows of the target.
"""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree
from numpyro.infer import HMCECS, NUTS, SVI, Trace_ELBO, autoguide, init_to_uniform
from scipy.optimize import minimize

import ksivi

Draws = Float[Array, "n d"]
Slices = Iterator[Callable[[], Draws] | None]
Rival = Callable[[PRNGKeyArray, ksivi.Target], Slices]

NUM_DRAWS = 1_000
_STEPS, _SLICE = 10_000, 100
_CHAINS, _WARMUP, _PER_CHAIN, _ITERATIONS = 4, 500, 500, 10
_WARMUP_ECS, _ITERATIONS_ECS, _PER_CHAIN_ECS, _BLOCKS = 1_000, 100, 4_000, 20
_HIGH_DIM = 100
"""Above this dimension the proxy of HMCECS is of first order: the other has a Hessian for each row of a minibatch."""


def rows_of(target: ksivi.Target) -> PyTree:
    """All rows, in memory, also those that a target leaves on the host."""
    source = target.host_rows
    if source is None:
        return target.density.data  # type: ignore[attr-defined]
    blocks = [source.block(i) for i in range(source.num_blocks)]
    return jax.tree.map(lambda *leaves: jnp.asarray(np.concatenate(leaves)), *blocks)


def model_of(target: ksivi.Target, batch_size: int | None) -> Callable[[PyTree], None]:
    """The posterior as a NumPyro model of its rows, with a subsampled plate if there is a batch size.

    A proper prior that is taken away again is needed by what draws from the model.
    """
    density: Any = target.density

    def row_term(x: Array, row: PyTree) -> Array:
        return density.log_likelihood(x, jax.tree.map(lambda leaf: leaf[None], row))

    def likelihood(x: Array, rows: PyTree) -> None:
        if batch_size is None:
            numpyro.factor("likelihood", density.log_likelihood(x, rows))
            return
        with numpyro.plate("rows", len(jax.tree.leaves(rows)[0]), subsample_size=batch_size):
            batch = jax.tree.map(lambda a: numpyro.subsample(a, event_dim=a.ndim - 1), rows)
            numpyro.factor("likelihood", jax.vmap(row_term, (None, 0))(x, batch))

    def model(rows: PyTree) -> None:
        proper = dist.Normal(0, 1).expand([target.dim]).to_event(1)
        x = numpyro.sample("x", proper)
        with jax.default_matmul_precision("highest"):  # as `Target` has it
            numpyro.factor("prior", density.log_prior(x) - proper.log_prob(x))
            likelihood(x, rows)

    return model


def _batch_size(target: ksivi.Target) -> int | None:
    return getattr(target.density, "batch_size", None)


def nuts(key: PRNGKeyArray, target: ksivi.Target) -> Slices:
    """Four vectorized chains on all rows, 500 draws each after a warm-up of 500. Slices are short: a step is dear."""
    kernel, rows = NUTS(model_of(target, None)), rows_of(target)
    start_key, run_key = jax.random.split(key)
    start = jax.random.uniform(start_key, (_CHAINS, target.dim), minval=-2.0, maxval=2.0)
    keys = jax.random.split(run_key, _CHAINS)
    state = kernel.init(keys, _WARMUP, {"x": start}, (rows,), {})
    yield from _chains(kernel, state, rows, _WARMUP, _PER_CHAIN, _ITERATIONS)


def hmcecs(key: PRNGKeyArray, target: ksivi.Target) -> Slices:
    """One chain of HMC on minibatches, 4,000 draws after a warm-up of 1,000, with a Taylor proxy at the mode."""
    size, rows = _batch_size(target), rows_of(target)
    if size is None:
        raise ValueError("HMCECS needs a target with minibatches, got one without")
    mode = _mode(target, rows)
    yield None
    proxy = HMCECS.taylor_proxy({"x": mode}, degree=2 if target.dim <= _HIGH_DIM else 1)
    kernel = HMCECS(NUTS(model_of(target, size)), num_blocks=_BLOCKS, proxy=proxy)
    state = kernel.init(key, _WARMUP_ECS, {"x": mode}, (rows,), {})
    yield from _chains(kernel, state, rows, _WARMUP_ECS, _PER_CHAIN_ECS, _ITERATIONS_ECS)


def _mode(target: ksivi.Target, rows: PyTree) -> Float[Array, " d"]:
    """The mode by L-BFGS over all rows."""
    density: Any = target.density

    @jax.jit
    def loss(x: Array, rows: PyTree) -> tuple[Array, Array]:
        with jax.default_matmul_precision("highest"):
            negative = lambda x: -density.log_prior(x) - density.log_likelihood(x, rows)  # noqa: E731
            return jax.value_and_grad(negative)(x)

    def on_host(x: np.ndarray) -> tuple[float, np.ndarray]:
        value, slope = loss(jnp.asarray(x, jnp.float32), rows)
        return float(value), np.asarray(slope, float)

    found = minimize(on_host, np.zeros(target.dim), jac=True, method="L-BFGS-B")
    return jnp.asarray(found.x, jnp.float32)


def _chains(kernel, state, rows, num_warmup: int, num_kept: int, per_slice: int) -> Slices:
    """Slices of one chain or several, until all draws are there."""

    @jax.jit
    def advance(state, rows):
        def step(state, _):
            state = kernel.sample(state, (rows,), {})
            return state, state.z["x"].reshape(-1, state.z["x"].shape[-1])

        return lax.scan(step, state, None, length=per_slice)

    kept: list[np.ndarray] = []
    for i in range((num_warmup + num_kept) // per_slice):
        state, positions = jax.block_until_ready(advance(state, rows))
        kept += [np.asarray(positions)] if i >= num_warmup // per_slice else []
        yield functools.partial(_thinned, tuple(kept)) if kept else None


def _thinned(kept: tuple[np.ndarray, ...]) -> Draws:
    """1,000 draws, evenly from all; some of them twice while there are fewer."""
    flat = np.concatenate(kept).reshape(-1, kept[0].shape[-1])
    return flat[np.linspace(0, len(flat) - 1, NUM_DRAWS).astype(int)]


def guided(make: Callable, rate: float = 1e-2) -> Rival:
    """A NumPyro guide, trained on minibatches, if the target has them, for 10,000 steps of Adam."""

    def run(key: PRNGKeyArray, target: ksivi.Target) -> Slices:
        model, rows = model_of(target, _batch_size(target)), rows_of(target)
        guide = make(model, init_loc_fn=init_to_uniform(radius=0.5))
        optimizer = optax.adam(optax.cosine_decay_schedule(rate, _STEPS))
        svi = SVI(model, guide, optimizer, Trace_ELBO())
        state = svi.init(key, rows)

        @jax.jit
        def advance(state, rows):
            step = lambda state, _: (svi.stable_update(state, rows)[0], None)  # noqa: E731
            return lax.scan(step, state, None, length=_SLICE)[0]

        def draws(state) -> Draws:
            params, shape = svi.get_params(state), (NUM_DRAWS,)
            return guide.sample_posterior(key, params, rows, sample_shape=shape)["x"]

        for _ in range(_STEPS // _SLICE):
            state = jax.block_until_ready(advance(state, rows))
            yield functools.partial(draws, state)

    return run


RIVALS: dict[str, Rival] = {
    "NUTS": nuts,
    "mean-field": guided(autoguide.AutoNormal),
    "low-rank": guided(autoguide.AutoLowRankMultivariateNormal),
    "HMCECS": hmcecs,
}
