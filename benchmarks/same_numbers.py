"""Whether two checkouts compute the same numbers, bit for bit, on this machine.

`python -m benchmarks.same_numbers --before FOLDER` runs the same script with the package of another checkout and with
this one, and compares digests of all draws, parameters and histories.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def digest(*trees) -> str:
    import jax
    import numpy as np

    found = hashlib.sha256()
    for leaf in jax.tree.leaves(trees):
        array = np.asarray(leaf)
        found.update(f"{array.dtype}{array.shape}".encode() + np.ascontiguousarray(array).tobytes())
    return found.hexdigest()[:16]


def of_fit(fit) -> str:
    import jax

    history = dict(fit.history)
    return digest(
        history,
        fit.posterior.sample(jax.random.key(9), 500),
        fit.posterior.sample(jax.random.key(8), 37),
    )


def trainings():
    import jax
    import jax.numpy as jnp
    import optax

    import ksivi

    key = jax.random.key(0)
    rows = jax.random.normal(jax.random.key(5), (40, 3))
    plain = ksivi.Target(lambda x: -0.5 * jnp.sum((x - 1) ** 2 / jnp.arange(1.0, 4.0)), dim=3)
    prior, likelihood = (
        lambda x: -0.5 * jnp.sum(x**2),
        lambda x, b: -0.5 * jnp.sum((b - x[None]) ** 2),
    )
    batches = ksivi.Target.from_data(prior, likelihood, rows, dim=3, batch_size=10)
    family = ksivi.SemiImplicit.mlp(key, dim=3, mixing_dim=4, hidden=(20, 20))
    wide = ksivi.SemiImplicit.mlp(key, dim=3, mixing_dim=4, hidden=(20,), scale="network")
    laplace = ksivi.families.SampledMixing(lambda k: jax.random.laplace(k, (4,)))
    sampled = ksivi.SemiImplicit.mlp(key, dim=3, mixing_dim=4, hidden=(20,), mixing=laplace)
    points = jax.random.normal(jax.random.key(6), (200, 3))
    kernels = {
        "gaussian": ksivi.kernels.Gaussian(),
        "imq": ksivi.kernels.IMQ(),
        "riesz": ksivi.kernels.Riesz(),
    }
    cases = {}
    for name, kernel in kernels.items():
        for estimator in ("vanilla", "u-statistic"):
            cases[f"ksivi {name} {estimator}"] = (plain, family, ksivi.KSIVI(kernel, estimator, 40))
    cases["ksivi batches"] = (batches, family, ksivi.KSIVI(num_samples=20))
    cases["ksivi batches u"] = (
        batches,
        family,
        ksivi.KSIVI(estimator="u-statistic", num_samples=20),
    )
    cases["ksivi sampled mixing"] = (plain, sampled, ksivi.KSIVI(num_samples=20))
    cases["ksivi annealed"] = (
        plain,
        family,
        ksivi.KSIVI(num_samples=20, annealing=ksivi.Annealing(horizon=100)),
    )
    cases["sivi"] = (plain, wide, ksivi.SIVI(30, 30))
    cases["sivi-sm"] = (plain, family, ksivi.SIVISM(30, (16,), warm_up=3))
    cases["uivi"] = (plain, family, ksivi.UIVI(20))
    cases["kpg"] = (plain, family, ksivi.objectives.KPG(20))
    cases["kpg-is"] = (plain, family, ksivi.objectives.KPGIS(20, 3))
    cases["amortized-svgd"] = (plain, family, ksivi.objectives.AmortizedSVGD(20))
    cases["denoised-score"] = (
        plain,
        family,
        ksivi.objectives.DenoisedScore(20, (16,), network_samples=50),
    )
    cases["pvi"] = (plain, family, ksivi.objectives.PVI(20))
    cases["aisivi"] = (plain, family, ksivi.objectives.AISIVI(20, 10, 2, (8,)))
    cases["wake"] = (plain, wide, ksivi.Wake(30, 30))
    cases["jeffreys"] = (plain, wide, ksivi.Jeffreys(ksivi.SIVI(30, 30), ksivi.Wake(30, 30)))
    cases["likelihood"] = (plain, wide, ksivi.MaximumLikelihood(points, 30, 30))
    predict = lambda x, inputs: inputs @ x  # noqa: E731
    cases["prediction"] = (
        plain,
        family,
        ksivi.MeanPrediction(predict, jnp.ones((6, 3)), jnp.arange(6.0), 10),
    )
    for name, (target, start, objective) in cases.items():
        fit = ksivi.train(
            jax.random.key(1), target, start, objective, num_steps=150, ema=0.9, chunk_size=40
        )
        yield f"train {name}", of_fit(fit)
    rates = jnp.array([1e-3, 1e-2])
    keys = jax.random.split(jax.random.key(2), 2)
    fits = ksivi.train(
        keys,
        plain,
        family,
        ksivi.KSIVI(num_samples=20),
        optimizer=optax.adam,
        learning_rate=rates,
        num_steps=90,
    )
    yield "train two keys", "".join(of_fit(fit) for fit in fits)
    cliff = ksivi.Target(
        lambda x: 10 * jnp.sum(x) + 1e-3 * jnp.sqrt(8.0 - jnp.max(x)) - 0.005 * jnp.sum(x**2), dim=3
    )
    fit = ksivi.train(
        key,
        cliff,
        family,
        ksivi.KSIVI(num_samples=20),
        optimizer=optax.adam(0.1),
        num_steps=300,
        chunk_size=20,
    )
    yield "train into trouble", of_fit(fit) + str(int(fit.state.step))
    first = ksivi.train(key, plain, family, ksivi.KSIVI(num_samples=20), num_steps=70)
    fit = ksivi.train(
        key, plain, family, ksivi.KSIVI(num_samples=20), num_steps=150, resume=first.state
    )
    yield "train resumed", of_fit(fit)


def methods():
    import jax
    import jax.numpy as jnp

    import ksivi

    target = ksivi.Target(lambda x: -0.5 * jnp.sum((x - 1) ** 2 / jnp.arange(1.0, 4.0)), dim=3)
    cases = {
        "svgd": ksivi.SVGD(30, 120),
        "ksdd": ksivi.KSDD(20, 40),
        "mied": ksivi.MIED(20, 60),
        "sgld": ksivi.SGLD(num_chains=10, num_warmup=50, num_draws=20, thin=3),
        "mala": ksivi.MALA(num_chains=10, num_warmup=50, num_draws=20, thin=3),
        "nuts": ksivi.NUTS(num_chains=3, num_warmup=100, num_draws=150),
    }
    for name, method in cases.items():
        yield f"run {name}", of_fit(ksivi.run(jax.random.key(3), target, method, chunk_size=37))
    short, long = (ksivi.NUTS(num_chains=2, num_warmup=50, num_draws=n) for n in (30, 80))
    state = ksivi.run(jax.random.key(3), target, short).state
    yield "run nuts resumed", of_fit(ksivi.run(jax.random.key(3), target, long, resume=state))
    cliff = ksivi.Target(lambda x: 10 * jnp.sum(x) + 1e-3 * jnp.sqrt(8.0 - jnp.max(x)), dim=2)
    fit = ksivi.run(jax.random.key(3), cliff, ksivi.SVGD(10, 400), chunk_size=50)
    yield "run into trouble", of_fit(fit) + str(fit.state.step)


def fits():
    import jax
    import jax.numpy as jnp

    import ksivi

    design = jax.random.normal(jax.random.key(7), (60, 4))
    y = (design @ jnp.arange(4.0) > 0).astype(float)
    log_odds = lambda x: design @ x  # noqa: E731
    targets = {
        "funnel": ksivi.Target(
            lambda x: -(x[0] ** 2) / 18 - 0.5 * x[1] ** 2 * jnp.exp(-x[0]) - 0.5 * x[0], dim=2
        ),
        "logistic": ksivi.Target(
            lambda x: jnp.sum(y * log_odds(x) - jax.nn.softplus(log_odds(x))) - jnp.sum(x**2), dim=4
        ),
        "modes": ksivi.Target(
            lambda x: jnp.logaddexp(-0.5 * jnp.sum((x - 3) ** 2), -0.5 * jnp.sum((x + 3) ** 2)),
            dim=2,
        ),
    }
    for name, target in targets.items():
        yield f"fit {name}", of_fit(ksivi.fit(jax.random.key(4), target, num_steps=1_500))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", type=Path, help="the other checkout")
    parser.add_argument(
        "--print", action="store_true", help="only print the digests of the package on the path"
    )
    parser.add_argument("--without-fit", action="store_true")
    options = parser.parse_args()
    if options.print:
        for part in (trainings, methods) if options.without_fit else (trainings, methods, fits):
            for name, found in part():
                print(json.dumps([name, found]), flush=True)
        return
    found = {}
    for label, root in {"before": options.before, "now": ROOT}.items():
        command = [sys.executable, __file__, "--print"] + ["--without-fit"] * options.without_fit
        env = os.environ | {"PYTHONPATH": str(root / "src")}
        lines = subprocess.run(
            command, env=env, capture_output=True, text=True, check=True
        ).stdout.splitlines()
        found[label] = dict(json.loads(line) for line in lines)
    for name in found["before"]:
        same = found["before"][name] == found["now"].get(name)
        print(f"{'equal ' if same else 'DIFFER'}  {name}", flush=True)
    equal = sum(found["before"][name] == found["now"].get(name) for name in found["before"])
    print(f"{equal} of {len(found['before'])} equal bit for bit")
    raise SystemExit(equal != len(found["before"]))


if __name__ == "__main__":
    main()
