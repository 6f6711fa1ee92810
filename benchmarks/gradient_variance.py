"""The variance of the gradient of KSD² against σ: `python -m benchmarks.gradient_variance`.

x = c (z + √v ξ), where z is such that x has the target's distribution for c = 1, whatever v is: only the share v of the
noise changes. The gradient is that with respect to c at c = 1, and its mean is 0. The kernel is Gaussian with the
median bandwidth, through which the gradient flows; with `"detached"` it does not.

Writes `benchmarks/records/gradient-variance.json` and draws `docs/gradient-variance.png` from it; `--draw` only draws.
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import ksivi
from ksivi.families import AbstractMixing, Constant, DiagonalGaussian, GaussianMixing
from ksivi.kernels import Gaussian, Median, squared_length
from ksivi.report._style import panels, save

ROOT = Path(__file__).parents[1]
RECORD = ROOT / "benchmarks" / "records" / "gradient-variance.json"
FIGURE = ROOT / "docs" / "gradient-variance.png"
ESTIMATORS = {
    "vanilla": ("vanilla", "#d55e00", "o"),
    "stein": ("stein", "#0072b2", "s"),
    "combined": ("combined", "#009e73", "^"),
}
N = 128


class Cross(AbstractMixing):
    """z of the X-shape: √1.8 T (1, S) + √(0.2 − v) U, with S = ±1 and T, U normal."""

    v: jax.Array

    def sample(self, key, n, dtype=float):
        line_key, side_key, noise_key = jax.random.split(key, 3)
        line = jnp.sqrt(1.8) * jax.random.normal(line_key, (n, 1), dtype)
        side = jax.random.rademacher(side_key, (n, 1), dtype)
        noise = jax.random.normal(noise_key, (n, 2), dtype)
        return line * jnp.concatenate([jnp.ones_like(side), side], axis=1) + (
            jnp.sqrt(0.2 - self.v) * noise
        )

    def log_prob(self, z):
        raise ValueError("not needed")


class Scaled(eqx.Module):
    """z ↦ factor · z."""

    factor: jax.Array

    def __call__(self, z):
        return self.factor * z


def dilated(mixing: AbstractMixing, factor: jax.Array, c: jax.Array, v: jax.Array, dim: int):
    """x = c (factor · z + √v ξ)."""
    log_var = Constant(jnp.log(c**2 * v) * jnp.ones(dim))
    return ksivi.SemiImplicit(mixing, DiagonalGaussian(Scaled(c * factor), log_var))


def cross(c: jax.Array, v: jax.Array):
    return dilated(Cross(v), jnp.ones(()), c, v, 2)


def normal(dim: int) -> Callable:
    return lambda c, v: dilated(GaussianMixing(dim), jnp.sqrt(1 - v), c, v, dim)


def standard(dim: int) -> ksivi.Target:
    return ksivi.Target(lambda x: -0.5 * jnp.sum(x**2), dim)


CASES = {
    "X-shape, 2 dimensions": (
        ksivi.problems.x_shaped().target,
        cross,
        (0.2, 0.11, 0.05, 0.02, 0.006, 0.002),
        4_000,
    ),
    "normal, 1 dimension": (standard(1), normal(1), (0.9, 0.5, 0.2, 0.05, 0.01, 0.002), 4_000),
    "normal, 100 dimensions": (standard(100), normal(100), (0.9, 0.5, 0.2, 0.05, 0.01, 0.002), 400),
}
"""The target, the family for each c and v, the v, and the number of gradients."""


def gradients(target, family, estimator: str, repeats: int, detached: bool) -> Callable:
    """v ↦ independent gradients with respect to c at c = 1."""
    kernel = Gaussian(Median(stop_gradient=detached))
    objective = ksivi.KSIVI(kernel, estimator, num_samples=N)  # type: ignore[arg-type]

    def loss(c, v, key):
        made = family(c, v)
        return objective.loss(
            made, None, objective.draw(key, target, made), target, jnp.asarray(0)
        )[0]

    keys = jax.random.split(jax.random.key(0), repeats)
    one = lambda v, key: jax.grad(loss)(jnp.ones(()), v, key)  # noqa: E731
    return jax.jit(lambda v: jax.lax.map(lambda key: one(v, key), keys, batch_size=8))


def median_length(family: Callable, vs: tuple[float, ...]) -> float:
    """ℓ² of the kernel for draws of the family. The draws have one distribution for all v."""
    x, y = (family(jnp.ones(()), vs[-1]).sample(jax.random.key(i), N) for i in (1, 2))
    return float(squared_length(Gaussian().resolve(x, y)))


def measure(name: str, estimator: str, detached: bool = False) -> dict:
    target, family, vs, repeats = CASES[name]
    of = gradients(target, family, estimator, repeats, detached)
    found = [np.asarray(of(jnp.asarray(v)), np.float64) for v in vs]
    return {
        "variance": [float(g.var(ddof=1)) for g in found],
        "mean_in_standard_errors": [float(g.mean() / g.std() * len(g) ** 0.5) for g in found],
        "repeats": repeats,
    }


def measure_all() -> dict:
    record: dict = {"num_samples": N, "kernel": "gaussian, median", "cases": {}}
    for name, (_, family, vs, _) in CASES.items():
        case: dict = {"v": vs, "squared_length": median_length(family, vs)}
        for estimator in ESTIMATORS:
            case[estimator] = measure(name, estimator)
            print(name, estimator, *(f"{x:.3g}" for x in case[estimator]["variance"]), flush=True)
        record["cases"][name] = case
    name = "X-shape, 2 dimensions"
    record["detached"] = {"case": name} | {
        estimator: measure(name, estimator, detached=True) for estimator in ESTIMATORS
    }
    for estimator in ESTIMATORS:
        print(
            "detached", estimator, *(f"{x:.3g}" for x in record["detached"][estimator]["variance"])
        )
    return record


def draw(record: dict) -> None:
    """A panel for each case: the variance of the three estimators against σ²."""
    figure, axes = panels(1, len(record["cases"]), 3.4)
    for axis, (name, case) in zip(axes[0], record["cases"].items(), strict=True):
        for estimator, (label, color, marker) in ESTIMATORS.items():
            axis.loglog(
                case["v"], case[estimator]["variance"], marker=marker, color=color, label=label
            )
        axis.set_title(name)
        axis.set_xlabel("σ²")
    axes[0][0].set_ylabel("variance of the gradient")
    axes[0][0].legend()
    save(figure, FIGURE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draw", action="store_true", help="only draw the figure")
    if not parser.parse_args().draw:
        RECORD.write_text(json.dumps(measure_all(), indent=1) + "\n")
    draw(json.loads(RECORD.read_text()))


if __name__ == "__main__":
    main()
