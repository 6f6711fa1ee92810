"""Runs on one device and on a mesh, in a process of its own: the number of devices is fixed at its start.

    python on_devices.py CASES[@PRECISION] NUM_DEVICES [PROCESS_ID PORT]

Prints the losses of the cases (of `fit`, means and widths), whose names are separated by commas, as JSON. With a
process id it is one of two processes, which share a mesh.
"""

import json
import sys

import jax
import jax.numpy as jnp
import optax

import ksivi

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
    "sivi": (regression, lambda: ksivi.SIVI(32, num_mixing=16), ("samples", "data")),
    "seeds": (diffusion, lambda: ksivi.KSIVI(num_samples=16), ("seeds",)),
}


def losses(name, precision, mesh):
    if name == "fit":
        draws = ksivi.fit(
            jax.random.key(3), regression(), num_steps=600, mesh=mesh
        ).posterior.sample(jax.random.key(4), 4_000)
        return [*map(float, jnp.mean(draws, axis=0)), *map(float, jnp.std(draws, axis=0))]
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
    axes = ("data",) if name == "fit" else CASES[name][2]
    shape = (jax.device_count(),) if len(axes) == 1 else (2, jax.device_count() // 2)
    return jax.make_mesh(shape, axes)


def main():
    cases, _, precision = sys.argv[1].partition("@")
    names, (num_devices, *distributed) = cases.split(","), map(int, sys.argv[2:])
    precisions = [precision] if precision else ["float32"] if names == ["fit"] else STEPS
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
