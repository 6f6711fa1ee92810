"""A small run in a process of its own, with checkpoints, to be killed, or without: `python killed.py [FOLDER] [N=V]`.

Prints its digest.
"""

import ast
import hashlib
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax

import ksivi

OPTIMIZER = optax.adam(1e-3)


def log_density(x):
    return -0.5 * jnp.sum((x - 1) ** 2)


def run(folder=None, num_steps=6_000, **options):
    target = ksivi.Target(log_density, dim=3)
    family = ksivi.SemiImplicit.mlp(jax.random.key(0), dim=3, mixing_dim=3, hidden=(8,))
    options = {"chunk_size": 50, "optimizer": OPTIMIZER, "progress": False} | options
    if folder is not None:
        options |= {"checkpoint": folder, "every": 50}
    objective = ksivi.KSIVI(num_samples=8)
    return ksivi.train(jax.random.key(1), target, family, objective, num_steps=num_steps, **options)


def run_method(folder=None, **options):
    """Markov chains in the place of training."""
    options = {"chunk_size": 50, "progress": False} | options
    if folder is not None:
        options |= {"checkpoint": folder, "every": 50}
    method = ksivi.SGLD(step_size=0.01, num_chains=8, num_warmup=1_000, num_draws=500, thin=10)
    return ksivi.run(jax.random.key(1), ksivi.Target(log_density, dim=3), method, **options)


RUNS = {"train": run, "run": run_method}


def digest(fit):
    found = hashlib.sha256()
    for array in [*jax.tree.leaves(fit.state), *fit.history.values()]:
        found.update(np.asarray(array).tobytes())
    return found.hexdigest()


if __name__ == "__main__":
    print("ready", flush=True)
    folders = [word for word in sys.argv[1:] if "=" not in word]
    options = dict(word.split("=", 1) for word in sys.argv[1:] if "=" in word)
    options = {name: ast.literal_eval(text) for name, text in options.items()}
    print(digest(RUNS[options.pop("what", "train")](*folders, **options)), flush=True)
