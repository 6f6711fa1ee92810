"""Methods that run in slices, for `benchmarks.race`.

Each is a generator: what it does up to its first `yield` is compilation, and each further `yield` ends a slice of work
with a function that makes 1,000 draws, or None while it has none yet. Drawing is not timed.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
import optax
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray
from numpyro.infer import SVI, Trace_ELBO, autoguide

import ksivi
from ksivi.comparison import training_plan

Draws = Float[Array, "n d"]
Slices = Iterator[Callable[[], Draws] | None]

NUM_DRAWS = 1_000
_STEPS, _ITERATIONS, _WARM_UP, _CHAINS, _PARTICLES = 500, 100, 500, 4, 200
_SCHEDULE = 10_000
"""Steps over which a cosine takes the learning rate of NumPyro's guides to 0."""


@dataclasses.dataclass(frozen=True)
class Arena:
    """What all are given: a target, and where chains and particles start."""

    name: str
    target: ksivi.Target
    start: Callable[[PRNGKeyArray, int], Draws]


Contestant = Callable[[PRNGKeyArray, Arena], Slices]


def ksivi_fit(key: PRNGKeyArray, arena: Arena) -> Slices:
    """`ksivi.fit` as it is called: one slice, compilation and checks included."""
    yield None
    fit = ksivi.fit(key, arena.target, progress=False)
    yield lambda: fit.posterior.sample(key, NUM_DRAWS)


def ksivi_paper(key: PRNGKeyArray, arena: Arena) -> Slices:
    """KSIVI at the paper's settings."""
    plan = training_plan("ksivi", arena.name, arena.target.dim, "paper")
    options = {"chunk_size": _STEPS}
    plan.train(key, arena.target, num_steps=_STEPS, **options)
    yield None
    state = None
    for steps in range(_STEPS, plan.num_steps + 1, _STEPS):
        fit = plan.train(key, arena.target, num_steps=steps, resume=state, **options)
        state = fit.state
        yield lambda fit=fit: fit.posterior.sample(key, NUM_DRAWS)


def pytorch(key: PRNGKeyArray, arena: Arena) -> Slices:
    """The direct translation of Algorithm 1 to eager PyTorch; it has the density of the diffusion alone."""
    import numpy as np
    import torch

    from .torch_ksivi import Translation

    torch.set_default_device(
        "cuda" if torch.cuda.is_available() and jax.default_backend() == "gpu" else "cpu"
    )
    run = Translation(
        np.asarray(ksivi.problems.diffusion(arena.target.dim).observations),
        arena.target.dim,
        128,
        (128, 128),
    )
    run.step()
    yield None
    while True:
        for _ in range(_STEPS // 5):
            run.step()
        yield lambda: jnp.asarray(run.draw(NUM_DRAWS))


def _model(target: ksivi.Target) -> Callable[[], None]:
    def model() -> None:
        # SteinVI draws from its model, so that an improper one will not do.
        proper = dist.Normal(0, 1).expand([target.dim]).to_event(1)
        x = numpyro.sample("x", proper)
        numpyro.factor("p", target.log_density(x) - proper.log_prob(x))

    return model


def guided(make: Callable, rate: float = 1e-2, particles: int = 10) -> Contestant:
    """A NumPyro guide, trained on the evidence bound."""

    def run(key: PRNGKeyArray, arena: Arena) -> Slices:
        model = _model(arena.target)
        guide = make(model, init_loc_fn=numpyro.infer.init_to_uniform(radius=0.5))
        optimizer = optax.adam(optax.cosine_decay_schedule(rate, _SCHEDULE))
        svi = SVI(model, guide, optimizer, Trace_ELBO(num_particles=particles))
        state = svi.init(key)
        update = _compiled(
            lambda s: lax.scan(
                lambda s, _: (svi.stable_update(s)[0], None), s, None, length=_STEPS
            )[0],
            state,
        )
        yield None
        for _ in range(_SCHEDULE // _STEPS):
            state = jax.block_until_ready(update(state))
            yield lambda state=state: guide.sample_posterior(
                key, svi.get_params(state), sample_shape=(NUM_DRAWS,)
            )["x"]

    return run


def stein_vi(key: PRNGKeyArray, arena: Arena) -> Slices:
    """NumPyro's SteinVI: ten Gaussians that repel each other, and ten draws of each a step, as by default."""
    from numpyro.contrib.einstein import MixtureGuidePredictive, RBFKernel, SteinVI

    model = _model(arena.target)
    guide = autoguide.AutoNormal(model, init_loc_fn=numpyro.infer.init_to_uniform(radius=0.5))
    optimizer = numpyro.optim.optax_to_numpyro(
        optax.adam(optax.cosine_decay_schedule(1e-2, _SCHEDULE))
    )
    stein = SteinVI(model, guide, optimizer, RBFKernel())
    state = stein.init(key)
    update = _compiled(
        lambda s: lax.scan(lambda s, _: (stein.update(s)[0], None), s, None, length=_STEPS // 10)[
            0
        ],
        state,
    )
    yield None

    def draw(state) -> Draws:
        predictive = MixtureGuidePredictive(
            model,
            guide,
            stein.get_params(state),
            stein.guide_sites,
            num_samples=NUM_DRAWS,
            return_sites=["x"],
        )
        return predictive(key)["x"].reshape(NUM_DRAWS, -1)

    for _ in range(10 * _SCHEDULE // _STEPS):
        state = jax.block_until_ready(update(state))
        yield lambda state=state: draw(state)


def numpyro_nuts(key: PRNGKeyArray, arena: Arena) -> Slices:
    """Four chains of NumPyro's NUTS, vectorised; draws are taken evenly from all after the warm-up."""
    kernel = numpyro.infer.NUTS(potential_fn=lambda x: -arena.target.log_density(x))
    start = arena.start(key, _CHAINS)
    state = kernel.init(jax.random.split(key, _CHAINS), _WARM_UP, start, (), {})

    def step(state, _):
        state = kernel.sample(state, (), {})
        return state, state.z

    run = _compiled(lambda s: lax.scan(step, s, None, length=_ITERATIONS), state)
    yield None
    yield from _chains(run, state, _WARM_UP // _ITERATIONS)


def blackjax_nuts(key: PRNGKeyArray, arena: Arena) -> Slices:
    """Four chains of BlackJAX's NUTS after its window adaptation; draws are taken evenly."""
    import blackjax

    log_density = arena.target.log_density
    start, keys = arena.start(key, _CHAINS), jax.random.split(key, _CHAINS)
    adaptation = blackjax.window_adaptation(blackjax.nuts, log_density)
    adapt = _compiled(
        jax.vmap(
            lambda k, x: (lambda r: (r.state, r.parameters))(adaptation.run(k, x, _WARM_UP)[0])
        ),
        keys,
        start,
    )
    shapes = jax.eval_shape(adapt.function, keys, start)
    kernel = blackjax.nuts.build_kernel()

    def one_chain(key, state, parameters):
        step = lambda s, k: (lambda n: (n, n.position))(kernel(k, s, log_density, **parameters)[0])  # noqa: E731
        return lax.scan(step, state, jax.random.split(key, _ITERATIONS))

    run = _compiled(jax.vmap(one_chain), keys, *shapes)
    yield None
    state, parameters = jax.block_until_ready(adapt(keys, start))
    yield None

    def advance(carry):
        state, i = carry
        state, positions = run(
            jax.vmap(lambda k: jax.random.fold_in(k, i))(keys), state, parameters
        )
        return (state, i + 1), jnp.swapaxes(positions, 0, 1)

    yield from _chains(advance, (state, 0), 0)


def blackjax_svgd(key: PRNGKeyArray, arena: Arena) -> Slices:
    """BlackJAX's SVGD with 200 particles and Adam."""
    import blackjax

    particles = arena.start(key, _PARTICLES)
    algorithm = blackjax.svgd(
        jax.grad(arena.target.log_density), optax.adam(optax.cosine_decay_schedule(5e-2, _SCHEDULE))
    )
    state = algorithm.init(particles)
    # A step takes gradient functions' arguments besides; there are none.
    step = lambda s, _: (algorithm.step(s), None)  # noqa: E731
    run = _compiled(lambda s: lax.scan(step, s, None, length=_STEPS)[0], state)
    yield None
    for _ in range(_SCHEDULE // _STEPS):
        state = jax.block_until_ready(run(state))
        yield lambda state=state: jnp.tile(state.particles, (NUM_DRAWS // _PARTICLES, 1))


def _chains(run: Callable, state, warm_up: int) -> Slices:
    """Slices of chains: positions by iteration, chain and coordinate, of which 1,000 in all are the draws."""
    kept: list[Array] = []
    for i in itertools.count():
        state, positions = jax.block_until_ready(run(state))
        kept += [positions] if i >= warm_up else []
        yield (lambda kept=tuple(kept): _thinned(jnp.concatenate(kept))) if kept else None


def _thinned(positions: Float[Array, "t c d"]) -> Draws:
    flat = positions.reshape(-1, positions.shape[-1])
    return flat[jnp.linspace(0, len(flat) - 1, NUM_DRAWS).astype(int)]


class _compiled:
    """A function compiled for arguments like these, before its first call."""

    def __init__(self, function: Callable, *like):
        self.function = function
        self._program = jax.jit(function).lower(*like).compile()

    def __call__(self, *args):
        return self._program(*args)


CONTESTANTS: dict[str, Contestant] = {
    "ksivi.fit": ksivi_fit,
    "KSIVI": ksivi_paper,
    "KSIVI in PyTorch": pytorch,
    "NumPyro mean-field": guided(autoguide.AutoNormal),
    "NumPyro full rank": guided(autoguide.AutoMultivariateNormal),
    "NumPyro IAF": guided(autoguide.AutoIAFNormal, rate=1e-3),
    "NumPyro SteinVI": stein_vi,
    "NumPyro NUTS": numpyro_nuts,
    "BlackJAX NUTS": blackjax_nuts,
    "BlackJAX SVGD": blackjax_svgd,
}
