"""Calls of the public API with arguments that are right, and values that are wrong for most of them."""

import dataclasses
import functools
import inspect
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax

import ksivi
from ksivi import diagnostics, kernels, metrics, objectives, problems
from ksivi.families import Empirical, ParticleMixing, SampledMixing, SemiImplicit
from ksivi.results import FitDiagnostics

KEY = jax.random.key(0)
FOLDER = Path(tempfile.mkdtemp(prefix="ksivi-fuzz-"))


def normal(x):
    return -0.5 * jnp.sum(x**2)


def likelihood(x, rows):
    return -0.5 * jnp.sum((rows - x[None]) ** 2)


def minus(x):
    return -x


def model_of_rows(y):
    means = numpyro.sample("means", dist.Normal(0, 1).expand([2]).to_event(1))
    numpyro.sample("y", dist.Normal(means[None], 1), obs=y)


ROWS = jnp.asarray(np.random.default_rng(0).normal(size=(12, 2)), jnp.float32)
TARGET = ksivi.Target(normal, dim=2)
FAMILY = SemiImplicit.location_scale(2)
POSTERIOR = ksivi.Posterior.of(FAMILY, TARGET)
OBJECTIVE = ksivi.KSIVI(num_samples=4)
POSTERIOR.save(FOLDER / "posterior")
FIT = ksivi.Fit(
    POSTERIOR,
    ksivi.Status("converged", "exact"),
    True,
    FitDiagnostics(),
    {},
    ksivi.Cost(0, 0, 0),
    None,
)
TABLE = FIT.table()
MODELLED = ksivi.from_numpyro(model_of_rows, ROWS)
OF_MODEL = ksivi.Posterior.of(FAMILY, MODELLED)
FEW = ksivi.Recipe(
    num_samples=4, num_mixing=4, hidden=(4,), num_pretraining=20, max_steps=60, chunk=20
)


@dataclasses.dataclass(frozen=True)
class Call:
    """A function, and arguments by name that it takes."""

    function: Callable
    arguments: dict[str, Any]

    def __call__(self, **changes: Any) -> Any:
        return self.function(**(self.arguments | changes))


def call(function: Callable, /, **arguments: Any) -> Call:
    """With the defaults of all arguments that are not given."""
    parameters = inspect.signature(function).parameters.values()
    return Call(
        function, {p.name: p.default for p in parameters if p.default is not p.empty} | arguments
    )


_posterior = {"target": TARGET, "posterior": POSTERIOR}
_two = {"x": ROWS, "y": ROWS + 0.5}

CALLS: dict[str, Call] = {
    "Target": call(ksivi.Target, log_density=normal, dim=2),
    "Target.from_score": call(ksivi.Target.from_score, score=minus, dim=2),
    "Target.from_data": call(
        ksivi.Target.from_data,
        log_prior=normal,
        log_likelihood=likelihood,
        data=ROWS,
        dim=2,
        batch_size=4,
    ),
    "Target.from_pytree": call(
        ksivi.Target.from_pytree, log_density=lambda p: normal(p["a"]), example={"a": ROWS[0]}
    ),
    "Target.tempered": call(TARGET.tempered, inverse_temperature=0.5),
    "Target.whitened": call(TARGET.whitened, loc=jnp.zeros(2), scale=jnp.ones(2)),
    "from_callback": call(
        ksivi.from_callback, value_and_gradient=lambda x: (-0.5 * np.sum(x**2), -x), dim=2
    ),
    "Rows": call(ksivi.Rows, arrays=np.asarray(ROWS)),
    "SemiImplicit": call(SemiImplicit, mixing=FAMILY.mixing, conditional=FAMILY.conditional),
    "SemiImplicit.mlp": call(SemiImplicit.mlp, key=KEY, dim=2, mixing_dim=2, hidden=(4,)),
    "SemiImplicit.location_scale": call(SemiImplicit.location_scale, dim=2),
    "SemiImplicit.sample": call(FAMILY.sample, key=KEY, n=3),
    "SemiImplicit.log_prob": call(FAMILY.log_prob, key=KEY, x=ROWS, num_mixing=3),
    "SampledMixing": call(SampledMixing, sampler=lambda key: jax.random.normal(key, (2,))),
    "ParticleMixing": call(ParticleMixing, points=ROWS),
    "Empirical": call(Empirical, points=ROWS),
    "KSIVI": call(ksivi.KSIVI, num_samples=4),
    "SIVI": call(ksivi.SIVI, num_samples=4),
    "SIVISM": call(ksivi.SIVISM, num_samples=4, critic_hidden=(4,)),
    "UIVI": call(ksivi.UIVI, num_samples=4),
    "KPG": call(objectives.KPG, num_samples=4),
    "KPGIS": call(objectives.KPGIS, num_samples=4, num_proposals=2),
    "AmortizedSVGD": call(objectives.AmortizedSVGD, num_samples=4),
    "DenoisedScore": call(objectives.DenoisedScore, num_samples=4, network_samples=4),
    "PVI": call(objectives.PVI, num_particles=4),
    "AISIVI": call(objectives.AISIVI, num_samples=4, num_mixing=4, proposal_hidden=(4,)),
    "Wake": call(ksivi.Wake, num_samples=4),
    "MaximumLikelihood": call(ksivi.MaximumLikelihood, points=ROWS),
    "MeanPrediction": call(
        ksivi.MeanPrediction, predict=lambda x, rows: rows @ x, inputs=ROWS, outputs=ROWS[:, 0]
    ),
    "Jeffreys": call(ksivi.Jeffreys, reverse=ksivi.SIVI(4), forward=ksivi.Wake(4)),
    "Annealing": call(ksivi.Annealing, horizon=10),
    "Decay": call(ksivi.Decay, factor=0.5),
    "kernels.Gaussian": call(kernels.Gaussian, bandwidth=kernels.Median()),
    "kernels.IMQ": call(kernels.IMQ, bandwidth=kernels.Fixed(1.0)),
    "kernels.Matern": call(kernels.Matern),
    "kernels.Median": call(kernels.Median),
    "kernels.Fixed": call(kernels.Fixed, h=1.0),
    "kernels.Sum": call(kernels.Sum, kernels=[kernels.IMQ(), kernels.Gaussian()]),
    "train": call(
        ksivi.train,
        key=KEY,
        target=TARGET,
        family=FAMILY,
        objective=OBJECTIVE,
        num_steps=2,
        progress=False,
    ),
    "Recipe": call(ksivi.Recipe),
    "fit": call(
        ksivi.fit, key=KEY, target=TARGET, init=POSTERIOR, num_steps=20, recipe=FEW, progress=False
    ),
    "run": call(
        ksivi.run,
        key=KEY,
        target=TARGET,
        method=ksivi.SVGD(num_particles=3, num_steps=2),
        progress=False,
    ),
    "SVGD": call(ksivi.SVGD),
    "KSDD": call(ksivi.KSDD),
    "MIED": call(ksivi.MIED),
    "MALA": call(ksivi.MALA),
    "SGLD": call(ksivi.SGLD),
    "NUTS": call(ksivi.NUTS),
    "reference_draws": call(
        ksivi.reference_draws,
        key=KEY,
        target=TARGET,
        method=ksivi.NUTS(4, 200, 200),
        progress=False,
    ),
    "Posterior.of": call(ksivi.Posterior.of, family=FAMILY, target=TARGET),
    "Posterior.sample": call(POSTERIOR.sample, key=KEY, n=3),
    "Posterior.draws": call(POSTERIOR.draws, key=KEY, n=3),
    "Posterior.log_prob": call(POSTERIOR.log_prob, key=KEY, x=ROWS, num_mixing=3),
    "Posterior.save": call(POSTERIOR.save, path=FOLDER / "other"),
    "Posterior.to_arviz": call(POSTERIOR.to_arviz, key=KEY, n=3),
    "plugins.blackjax": call(
        ksivi.plugins.blackjax, logdensity_fn=normal, objective=OBJECTIVE, family=FAMILY
    ),
    "plugins.numpyro_guide": call(ksivi.plugins.numpyro_guide, model=lambda: None),
    "load": call(ksivi.load, path=FOLDER / "posterior"),
    "read_record": call(ksivi.read_record, folder=FOLDER),
    "metrics.mmd": call(metrics.mmd, **_two),
    "metrics.ksd": call(metrics.ksd, x=ROWS, score=minus),
    "metrics.wasserstein": call(metrics.wasserstein, **_two),
    "metrics.sliced_wasserstein": call(
        metrics.sliced_wasserstein, key=KEY, **_two, num_projections=5
    ),
    "metrics.kl_knn": call(metrics.kl_knn, **_two, k=2),
    "metrics.rmse": call(metrics.rmse, predictions=ROWS.T, y=ROWS[:, 0]),
    "metrics.nll": call(metrics.nll, predictions=ROWS.T, y=ROWS[:, 0], precision=1.0),
    "metrics.boxed_wasserstein": call(metrics.boxed_wasserstein, **_two, half_width=3.0),
    "Fit.trusted_for": call(FIT.trusted_for, names="x"),
    "Table[]": call(TABLE.__getitem__, name="x[0]"),
    "diagnostics.discrepancy": call(diagnostics.discrepancy, key=KEY, **_posterior, num_samples=8),
    "diagnostics.importance": call(
        diagnostics.importance, key=KEY, **_posterior, num_samples=50, num_mixing=5
    ),
    "diagnostics.movement": call(
        diagnostics.movement, key=KEY, **_posterior, num_chains=4, num_transitions=2
    ),
    "diagnostics.witness": call(diagnostics.witness, key=KEY, **_posterior, num_samples=8),
    "diagnostics.difference": call(
        diagnostics.difference, first=np.asarray(ROWS), second=np.asarray(ROWS) + 1
    ),
    "diagnostics.pareto_khat": call(diagnostics.pareto_khat, log_weights=np.linspace(0, 1, 50)),
    "diagnostics.gradient_variance": call(
        diagnostics.gradient_variance,
        key=KEY,
        objective=OBJECTIVE,
        target=TARGET,
        family=FAMILY,
        num_repeats=3,
    ),
    "diagnostics.compare_models": call(
        diagnostics.compare_models, key=KEY, fits={"a": FIT, "b": FIT}, loo=False
    ),
    "Target.prior_predictive": call(MODELLED.prior_predictive, key=KEY, n=3),
    "problems.diffusion": call(problems.diffusion, dim=5),
    "problems.banana": call(problems.banana),
    "calibration.calibrate": call(
        ksivi.calibration.calibrate,
        key=KEY,
        simulate=lambda key: ({"x": jax.random.normal(key, (2,))}, TARGET),
        num_replications=2,
        fit=lambda key, target: ksivi.train(key, target, FAMILY, OBJECTIVE, num_steps=2),
        progress=False,
    ),
    "calibration.simulate_around": call(ksivi.calibration.simulate_around, posterior=OF_MODEL),
}


THEIRS = "of the user's own"


def failing(*_: Any) -> Any:
    raise ValueError(THEIRS)


JUNK: list[Any] = [
    *(
        None,
        True,
        False,
        0,
        1,
        2,
        3,
        5,
        -1,
        -7,
        0.0,
        0.5,
        1.0,
        -0.5,
        1e-30,
        1e300,
        float("nan"),
        float("inf"),
        1j,
    ),
    *(
        "",
        "text",
        "a/b\0c",
        "../..",
        b"bytes",
        [],
        [1],
        [1, -2],
        ["a"],
        (),
        (2.5,),
        {},
        {"a": 1},
        {"a": ROWS},
        {1, 2},
    ),
    *(
        object(),
        object,
        int,
        print,
        normal,
        minus,
        failing,
        lambda: 0,
        lambda *a: None,
        lambda *a: "text",
    ),
    *(
        np.float64(0.5),
        np.int64(2),
        np.zeros(0),
        np.zeros(3),
        np.ones((2, 2)),
        np.full(2, np.nan),
        np.full((12, 2), np.inf),
    ),
    *(
        np.array("a"),
        np.array([None, 1], dtype=object),
        np.arange(2),
        np.ones((12, 2), bool),
        np.ones((12, 3)),
    ),
    *(
        np.ones((12, 2), complex),
        jnp.zeros(2),
        jnp.zeros((0, 2)),
        jnp.ones((1, 1, 1)),
        ROWS,
        ROWS[:1],
        ROWS[0],
        ROWS * 1e30,
    ),
    *(KEY, jax.random.split(KEY, 2), jnp.zeros(2, jnp.uint32), np.zeros((2, 2), np.uint32)),
    *(
        TARGET,
        FAMILY,
        POSTERIOR,
        OBJECTIVE,
        [OBJECTIVE, OBJECTIVE],
        kernels.IMQ(),
        kernels.Fixed(1.0),
        FEW,
    ),
    *(
        ksivi.Target(normal, dim=3),
        SemiImplicit.location_scale(3),
        ksivi.SIVI(4),
        ksivi.Wake(4),
        ksivi.NUTS(1, 20, 4),
    ),
    *(
        optax.sgd(1e-3),
        optax.adam,
        optax.constant_schedule(0.1),
        FOLDER,
        Path("missing"),
        FOLDER / "posterior",
    ),
    functools.partial(jax.random.normal, shape=(2,)),
]


def places(argument: str) -> list[int]:
    """Where in `JUNK` is what may be given to an argument: optimisers are tuples of functions, but no callbacks."""
    fits = [
        argument != "callbacks" or not isinstance(one, optax.GradientTransformation) for one in JUNK
    ]
    return [i for i, fit in enumerate(fits) if fit]


PARTNERS: dict[tuple[str, str], tuple[str, ...]] = {
    ("Target.from_data", "dim"): ("log_likelihood",),
    ("Target.from_data", "data"): ("log_likelihood",),
    ("Target.from_pytree", "example"): ("log_density",),
    ("from_callback", "batched"): ("value_and_gradient",),
    ("from_callback", "dim"): ("value_and_gradient",),
    ("metrics.boxed_wasserstein", "half_width"): ("x",),
    ("metrics.rmse", "predictions"): ("y",),
    ("metrics.nll", "predictions"): ("y",),
    ("diagnostics.difference", "first"): ("second",),
    ("diagnostics.difference", "second"): ("weights",),
    **{
        (f"metrics.{name}", "x"): ("y",)
        for name in ("mmd", "wasserstein", "sliced_wasserstein", "kl_knn")
    },
    ("metrics.boxed_wasserstein", "x"): ("y",),
}
"""Arguments by call, and which others do not go with them once they are changed: a message may name those instead."""
