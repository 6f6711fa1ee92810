"""What a first fit compiles, and how long that takes: `python -m benchmarks.programs`.

Tracing, lowering and XLA's compilation of every program, as JAX reports them, and the rest, in which programs and the
host run. Nothing comes from disk.
"""

import os

os.environ["KSIVI_PROGRAM_CACHE"] = "0"  # before ksivi is imported

import time
from collections import defaultdict
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import ksivi

_PHASES = {
    "/jax/core/compile/jaxpr_trace_duration": "tracing",
    "/jax/core/compile/jaxpr_to_mlir_module_duration": "lowering",
    "/jax/core/compile/backend_compile_duration": "XLA",
}
_LEAST = 0.25
"""Programs that take less than so many seconds together are shown as one line."""

Seconds = dict[str, dict[str, list[float]]]


def main() -> None:
    seconds: Seconds = {}

    def note(event: str, duration: float, **details: str) -> None:
        if phase := _PHASES.get(event):
            name = details.get("fun_name", "?").removeprefix("jit(").removesuffix(")")
            seconds.setdefault(name, defaultdict(list))[phase].append(duration)

    jax.monitoring.register_event_duration_secs_listener(note)
    for title, make in _TARGETS.items():
        target = make()
        jax.clear_caches()
        seconds.clear()
        began = time.perf_counter()
        fit = ksivi.fit(jax.random.key(0), target, progress=False)
        fit.posterior.sample(jax.random.key(1), 1_000).block_until_ready()
        total = time.perf_counter() - began
        print(f"\n{title}: {fit.diagnostics.answer}, {total:.1f} s")
        print(table(seconds, total))


def table(seconds: Seconds, total: float) -> str:
    """A line for each program that takes long, one for all others, and one for running."""
    lines = [f"{'program':<28} {'number':>6} {'tracing':>8} {'lowering':>9} {'XLA':>7}"]
    long = {name for name in seconds if sum(map(sum, seconds[name].values())) >= _LEAST}
    for name in sorted(long, key=lambda name: -sum(seconds[name]["XLA"])):
        lines.append(_line(name, [seconds[name]]))
    lines.append(_line("all others", [seconds[name] for name in seconds.keys() - long]))
    lines.append(_line("together", list(seconds.values())))
    compiled = sum(sum(map(sum, phases.values())) for phases in seconds.values())
    return "\n".join([*lines, f"{'running, and the host':<28} {total - compiled:>32.2f} s"])


def _line(name: str, programs: list[dict[str, list[float]]]) -> str:
    number = sum(len(phases["XLA"]) for phases in programs)
    tracing, lowering, xla = (
        sum(sum(phases[phase]) for phases in programs) for phase in _PHASES.values()
    )
    return f"{name:<28} {number:>6} {tracing:>8.2f} {lowering:>9.2f} {xla:>7.2f}"


def _student_t() -> ksivi.Target:
    return ksivi.Target(lambda x: -5 * jnp.log1p(jnp.sum(x**2) / 5), dim=5)


def _logistic() -> ksivi.Target:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(500, 60)).astype(np.float32)
    y = rng.random(500) < 1 / (1 + np.exp(-x @ rng.normal(size=60) / 4))

    def log_density(beta, x, y):
        logits = x @ beta
        return jnp.sum(jnp.where(y, logits, 0) - jax.nn.softplus(logits)) - jnp.sum(beta**2) / 2

    return ksivi.Target(lambda beta: log_density(beta, x, y), dim=60)


def _garch() -> ksivi.Target:
    """A GARCH(1, 1) model of 200 returns: mean, log base variance, and two logits."""
    returns = np.random.default_rng(1).standard_t(6, 200).astype(np.float32)

    def log_density(u):
        mean, base, reaction, memory = u[0], jnp.exp(u[1]), *jax.nn.sigmoid(u[2:])

        def step(variance, r):
            log_p = -0.5 * (jnp.log(variance) + (r - mean) ** 2 / variance)
            return base + reaction * (r - mean) ** 2 + (1 - reaction) * memory * variance, log_p

        _, terms = lax.scan(step, jnp.float32(1), returns)
        return jnp.sum(terms) - 0.5 * jnp.sum(u**2)

    return ksivi.Target(log_density, dim=4)


_TARGETS: dict[str, Callable[[], ksivi.Target]] = {
    "Student-t, d = 5": _student_t,
    "logistic regression, d = 60": _logistic,
    "GARCH, d = 4, 200 steps of a scan": _garch,
}

if __name__ == "__main__":
    main()
