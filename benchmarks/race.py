"""Seconds to a good posterior: `python -m benchmarks.race --out benchmarks/records/race-two-cores.jsonl`.

Methods of several libraries on four posteriors, each until its draws are good or its time is over. Draws are good when
their sliced W₂ distance to the truth, in normal scores, is at most twice that of exact samples of their number; for the
network, when the predictive density of held-out rows is within 0.02 nats a row of NUTS's long run. Every line of the
record has the seconds to compile, and seconds and error at moments on the way.
"""

import argparse
import dataclasses
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Scalar

import ksivi
from ksivi.problems import _network as network

from .contestants import CONTESTANTS, Arena, Contestant, Draws
from .criterion import Criterion
from .development.models import slopes

GOOD = 2.0
_NATS = 0.01
_NOISE = 0.1


@dataclasses.dataclass(frozen=True)
class Race:
    """An arena, and the error of draws there in units whose good end is `GOOD`."""

    arena: Arena
    error: Callable[[Draws], float]


def near_zero(dim: int) -> Callable:
    return lambda key, n: 0.1 * jax.random.normal(key, (n, dim))


def by_distance(
    name: str, target: ksivi.Target, start: Callable, truth: Callable, folder: Path
) -> Race:
    """Errors are sliced distances in floors."""
    criterion = Criterion(_kept(folder / f"{name}.npy", truth))

    def error(draws: Draws) -> float:
        draws = np.asarray(draws, np.float64)
        return (
            criterion.measure(draws).distance / criterion.floor
            if np.isfinite(draws).all()
            else np.inf
        )

    return Race(Arena(name, target, start), error)


def by_prediction(folder: Path) -> Race:
    """A network of 351 weights on generated data; errors are hundredths of nats a held-out row above NUTS's."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(800, 5)).astype(np.float32)
    clean = np.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2] + 0.5 * np.abs(x[:, 3])
    y = ((clean - clean.mean()) / clean.std() + _NOISE * rng.normal(size=800)).astype(np.float32)
    prior, likelihood = (
        network.Prior(jnp.zeros(())),
        network.Likelihood(jnp.asarray(-2 * np.log(_NOISE), jnp.float32)),
    )
    target = ksivi.Target.from_data(
        prior, likelihood, {"x": x[:400], "y": y[:400]}, network.num_weights(5)
    )

    @jax.jit
    def loss(draws: Draws) -> Scalar:
        """−log of the mean predictive density, a row."""
        outputs = jax.lax.map(lambda w: network.forward(w, x[400:]), draws, batch_size=100)
        logs = -0.5 * ((y[None, 400:] - outputs) / _NOISE) ** 2
        return -jnp.mean(jax.nn.logsumexp(logs, axis=0) - jnp.log(len(draws)))

    start = lambda key, n: jax.vmap(lambda k: network.draw_weights(k, 5))(jax.random.split(key, n))  # noqa: E731
    truth = lambda: ksivi.run(  # noqa: E731
        jax.random.key(7),
        target,
        ksivi.NUTS(num_warmup=300, num_draws=250, start=start(jax.random.key(8), 4)),
    ).posterior.sample(jax.random.key(9), 1_000)
    best = float(loss(jnp.asarray(_kept(folder / "network.npy", truth))))
    return Race(Arena("network", target, start), lambda draws: (float(loss(draws)) - best) / _NATS)


def _kept(path: Path, make: Callable[[], Float[Array, "n d"]]) -> np.ndarray:
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path, np.asarray(make(), np.float32))
    return np.load(path)


def races(folder: Path) -> dict[str, Callable[[], Race]]:
    def of_problem(problem) -> Race:
        truth = lambda: problem.reference(jax.random.key(7), 10_000)  # noqa: E731
        return by_distance(problem.name, problem.target, problem.start, truth, folder)

    def hierarchical() -> Race:
        case = slopes()
        return by_distance(case.name, case.target, near_zero(case.target.dim), case.truth, folder)

    return {
        "waveform": lambda: of_problem(ksivi.problems.waveform()),
        "diffusion": lambda: of_problem(ksivi.problems.diffusion(100)),
        "hierarchy": hierarchical,
        "network": lambda: by_prediction(folder),
    }


def run(contestant: Contestant, race: Race, seconds: float, seed: int = 0) -> dict:
    """Seconds to compile, and seconds and errors on the way, at moments that are a third apart, until twice good."""
    slices = contestant(jax.random.key(seed), race.arena)
    began = time.perf_counter()
    next(slices)
    compiled, spent, path, draw = time.perf_counter() - began, 0.0, [], None

    def look() -> None:
        if draw is not None and (not path or path[-1][0] < round(spent, 3)):
            path.append((round(spent, 3), round(race.error(draw()), 3)))

    while spent < seconds and not (len(path) > 1 and all(error <= GOOD for _, error in path[-2:])):
        began, last = time.perf_counter(), draw
        draw = next(slices, slices)
        if draw is slices:
            draw = last
            break
        spent += time.perf_counter() - began
        if not path or spent > 1.3 * path[-1][0]:
            look()
    look()
    return {
        "compile_s": round(compiled, 2),
        "seconds": seconds,
        "path": path,
        "good_s": good_after(path),
    }


def good_after(path: list[tuple[float, float]]) -> float | None:
    """The first moment from which on all draws were good."""
    last_bad = max((i for i, (_, error) in enumerate(path) if not error <= GOOD), default=-1)
    return path[last_bad + 1][0] if last_bad + 1 < len(path) else None


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--races", nargs="+", default=["waveform", "diffusion", "hierarchy", "network"]
    )
    parser.add_argument("--contestants", nargs="+", default=list(CONTESTANTS))
    parser.add_argument("--seconds", type=float, default=60.0, help="of running, for each")
    parser.add_argument(
        "--truths", type=Path, default=Path("build/truths"), help="where the truths are kept"
    )
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    for name in options.races:
        race = races(options.truths)[name]()
        for contestant in options.contestants:
            if contestant == "KSIVI in PyTorch" and name != "diffusion":
                continue
            row = {
                "race": name,
                "contestant": contestant,
                "device": jax.devices()[0].device_kind,
                "jax": jax.__version__,
            }
            row |= {"cores": len(os.sched_getaffinity(0))}
            try:
                row |= run(CONTESTANTS[contestant], race, options.seconds)
            except (
                Exception
            ) as error:  # one contestant's failure is a result, not the end of the race
                row |= {"failed": f"{type(error).__name__}: {str(error)[:200]}"}
            print(json.dumps(row), flush=True)
            if options.out:
                with options.out.open("a") as file:
                    file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
