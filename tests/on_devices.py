"""Runs on one device and on a mesh, in a process of its own: the number of devices is fixed at its start.

    python on_devices.py CASES[@PRECISION] NUM_DEVICES [PROCESS_ID PORT]

Prints the losses of the cases, whose names are separated by commas, as JSON. Of fits it prints means and widths, and of
passes over all rows some of the results. With a process id it is one of two processes, which share a mesh.
"""

import json
import math
import re
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax

import ksivi
from ksivi._core.sharding import as_mesh, use_mesh
from ksivi.targets import Passes, _passes
from ksivi.training import on_devices

STEPS = {"float64": 200, "float32": 20}


def regression():
    x_key, noise_key = jax.random.split(jax.random.key(0))
    x, noise = jax.random.normal(x_key, (64, 3)), jax.random.normal(noise_key, (64,))
    data = {"x": x, "y": x @ jnp.array([1.0, -1.0, 0.5]) + noise}
    return ksivi.Target.from_data(log_prior, log_likelihood, data, dim=3)


def log_prior(beta):
    return -0.5 * jnp.sum(beta**2)


def log_likelihood(beta, batch):
    return -0.5 * jnp.sum((batch["y"] - batch["x"] @ beta) ** 2)


def diffusion():
    return ksivi.problems.diffusion(20).target


CASES = {
    "vanilla": (diffusion, lambda: ksivi.KSIVI(num_samples=64), ("samples",)),
    "u-statistic": (
        regression,
        lambda: ksivi.KSIVI(ksivi.kernels.IMQ(), "u-statistic", 64),
        ("data",),
    ),
    "combined": (
        diffusion,
        lambda: ksivi.KSIVI(estimator="combined", num_samples=64),
        ("samples",),
    ),
    "mixture": (
        diffusion,
        lambda: ksivi.KSIVI(estimator="mixture", num_samples=64),
        ("samples",),
    ),
    "sivi": (regression, lambda: ksivi.SIVI(32, num_mixing=16), ("samples", "data")),
    "seeds": (diffusion, lambda: ksivi.KSIVI(num_samples=16), ("seeds",)),
}


def logistic(form, num_rows):
    """Rows in memory or on the host. A fit uses some of them."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(num_rows, 3)).astype(np.float32)
    y = rng.random(num_rows) < 1 / (1 + np.exp(-x @ np.array([1.0, -1.0, 0.5])))
    data = {"x": x, "y": y.astype(np.float32)}
    rows = ksivi.Rows(data) if form == "host" else data
    return ksivi.Target.from_data(log_prior, log_odds, rows, dim=3, batch_size=1_000)


def log_odds(beta, batch):
    logits = batch["x"] @ beta
    return jnp.sum(batch["y"] * logits - jnp.logaddexp(0, logits))


FITS = {
    "fit": regression,
    "fit-memory": lambda: logistic("memory", 100_000),
    "fit-host": lambda: logistic("host", 100_001),  # no multiple of the devices
    "fit-few": lambda: logistic("host", 2_000),  # all of them are used
}


def moments(name, mesh):
    """Means and widths of a fit, and the number of rows that it used."""
    options = {"num_steps": 600} if name == "fit" else {"progress": False}
    fit = ksivi.fit(jax.random.key(3), FITS[name](), mesh=mesh, **options)
    assert name == "fit" or fit.trusted, fit.status
    x = fit.posterior.sample(jax.random.key(4), 4_000)
    return [*map(float, [*jnp.mean(x, axis=0), *jnp.std(x, axis=0), fit.diagnostics.num_rows])]


PASSES = {"passes-memory": ("memory", 40_008), "passes-host": ("host", 40_009)}


def passes(name, mesh):
    """Sums over several blocks of rows, with a rest, and the most numbers that devices exchange."""
    _passes._BLOCK = 2**11
    point, points = np.ones(3), 1 + 0.1 * np.random.default_rng(1).normal(size=(5, 3))
    with use_mesh(as_mesh(mesh)):
        over = Passes(on_devices(logistic(*PASSES[name])).density)
        values, scores = over.differences(points, point)
        hessians = over.hessian(point), over.hessian(point, 16_384)
        return {
            "sums": [over.value(point), *values.tolist(), *scores.ravel().tolist()],
            "hessians": [np.diag(one).tolist() for one in hessians],
            "sizes": over.third_order(point, points - point)[::5_001].tolist(),
            "most exchanged": 0 if mesh is None else most_exchanged(over, points),
        }


def most_exchanged(over, points):
    """The most numbers that one operation between devices has as its result."""
    block, _ = next(iter(over._blocks(over._all_rows(), points[0], True)))
    program, arrays = _passes._values.program_for((block, jnp.asarray(points)), {})
    code = program.jitted.lower(arrays).compile().as_text()
    results = re.findall(r"= (.*?) (?:all-\w+|collective-\w+|reduce-scatter)[\w-]*\(", code)
    shapes = [re.findall(r"\w\[([\d,]*)\]", result) for result in results]
    sizes = [sum(math.prod(int(n) for n in one.split(",") if n) for one in of) for of in shapes]
    return max(sizes)


def losses(name, precision, mesh):
    if name in FITS:
        return moments(name, mesh)
    if name in PASSES:
        return passes(name, mesh)
    make, objective, _ = CASES[name]
    target = make()
    family = ksivi.SemiImplicit.mlp(
        jax.random.key(1), target.dim, mixing_dim=10, hidden=(16, 16), log_var=-2.0
    )
    key = jax.random.key(2)
    options = {"num_steps": STEPS[precision], "optimizer": optax.adam(1e-3), "mesh": mesh}
    fits = ksivi.train(
        jax.random.split(key, 8) if name == "seeds" else key, target, family, objective(), **options
    )
    return [
        float(loss) for fit in (fits if name == "seeds" else [fits]) for loss in fit.history["loss"]
    ]


def mesh_of(name):
    axes = CASES[name][2] if name in CASES else ("data",)
    shape = (jax.device_count(),) if len(axes) == 1 else (2, jax.device_count() // 2)
    return jax.make_mesh(shape, axes)


def main():
    cases, _, precision = sys.argv[1].partition("@")
    names, (num_devices, *distributed) = cases.split(","), map(int, sys.argv[2:])
    precisions = [precision] if precision else STEPS if {*names} <= {*CASES} else ["float32"]
    jax.config.update("jax_num_cpu_devices", num_devices)
    if distributed:
        process, port = distributed
        jax.distributed.initialize(f"127.0.0.1:{port}", num_processes=2, process_id=process)
    found = {}
    for precision in precisions:
        with jax.enable_x64(precision == "float64"):
            for name in names:
                found[f"{name} {precision}"] = {"mesh": losses(name, precision, mesh_of(name))}
                if not distributed:
                    found[f"{name} {precision}"]["one"] = losses(name, precision, None)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
