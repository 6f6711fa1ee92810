"""Simulation-based calibration of `ksivi.fit` on three models: `python -m benchmarks.calibration --replications 200`.

One default call a fit, those that are not trusted among them. For several processes at a time, start each with its
`--part` of `--parts`; each keeps its own file, and is run again to go on. `--summary` reads them all.
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from ksivi.calibration import Calibration, Replication, calibrate, simulate_numpyro
from ksivi.report._ranks import rank_histograms

_RNG = np.random.default_rng(0)
_X = jnp.asarray(_RNG.normal(size=(50, 4)), jnp.float32)
_GROUPS = jnp.asarray(np.repeat(np.arange(8), 8))


def regression(x: jax.Array, y: jax.Array) -> None:
    """Conjugate: coefficients with normal priors, noise of a known scale."""
    slopes = numpyro.sample("slopes", dist.Normal(0, 1).expand([x.shape[1]]).to_event(1))
    numpyro.sample("y", dist.Normal(x @ slopes, 1), obs=y)


def hierarchical(group: jax.Array, y: jax.Array) -> None:
    """Eight groups of eight, whose means share a location and a scale that are to be found, like the noise."""
    location = numpyro.sample("location", dist.Normal(0, 1))
    scale = numpyro.sample("scale", dist.HalfNormal(1))
    noise = numpyro.sample("noise", dist.HalfNormal(1))
    offsets = numpyro.sample("offsets", dist.Normal(0, 1).expand([8]).to_event(1))
    numpyro.sample("y", dist.Normal((location + scale * offsets)[group], noise), obs=y)


def logistic(x: jax.Array, y: jax.Array) -> None:
    """Fifty answers, yes or no, and five coefficients."""
    intercept = numpyro.sample("intercept", dist.Normal(0, 1))
    slopes = numpyro.sample("slopes", dist.Normal(0, 1).expand([x.shape[1]]).to_event(1))
    numpyro.sample("y", dist.Bernoulli(logits=intercept + x @ slopes), obs=y)


MODELS: dict[str, tuple[Callable, tuple]] = {
    "regression": (regression, (_X, jnp.zeros(len(_X)))),
    "hierarchical": (hierarchical, (_GROUPS, jnp.zeros(len(_GROUPS)))),
    "logistic": (logistic, (_X, jnp.zeros(len(_X), jnp.int32))),
}


def run(name: str, part: int, count: int, out: Path) -> None:
    model, data = MODELS[name]
    key = jax.random.fold_in(jax.random.key(list(MODELS).index(name)), part)
    heard = lambda one: print(name, part, one.index, f"{one.seconds:.1f} s", one.status, flush=True)  # noqa: E731
    kept = {"record": out / f"{name}-{part}.jsonl", "heard": heard, "progress": False}
    calibrate(key, simulate_numpyro(model, *data), count, **kept)


def read(folder: Path, name: str) -> Calibration:
    """The replications of all parts."""
    lines = [
        line
        for path in sorted(folder.glob(f"{name}-*.jsonl"))
        for line in path.read_text().splitlines()
    ]
    return Calibration(tuple(Replication(**json.loads(line)) for line in lines))


def summarise(folder: Path) -> dict[str, dict]:
    found = {}
    for name in MODELS:
        if list(folder.glob(f"{name}-*.jsonl")):
            calibration = read(folder, name)
            print(f"\n{name}\n{calibration}", flush=True)
            found[name] = calibration.facts
            rank_histograms(calibration).savefig(folder / f"{name}.png", dpi=150)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument(
        "--replications", type=int, default=200, help="of each model, over all parts"
    )
    parser.add_argument("--part", type=int, default=0)
    parser.add_argument("--parts", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("calibration"))
    parser.add_argument("--summary", action="store_true")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.summary:
        (options.out / "calibration.json").write_text(
            json.dumps(summarise(options.out), indent=1) + "\n"
        )
        return
    for name in options.models.split(","):
        run(name, options.part, -(-options.replications // options.parts), options.out)


if __name__ == "__main__":
    main()
