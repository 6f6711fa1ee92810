"""The problems that every method runs on: their specs, seeds, dimensions and measures."""

from .cells import ProblemSpec

SEEDS = 10
DIMS = (50, 100, 200)
"""Dimensions of the conditioned diffusion."""
TOYS = ("banana", "multimodal", "x-shaped", "student-t", "eight-gaussians")
PATHS = tuple(f"diffusion-{dim}" for dim in DIMS)
DIMENSIONS = dict.fromkeys(TOYS, 2) | {"waveform": 22} | dict(zip(PATHS, DIMS, strict=True))
# One problem of each kind, and no data.
_SMOKE = ("eight-gaussians", "waveform", PATHS[0])


def of_preset(names: tuple[str, ...], preset: str) -> list[str]:
    """Those of the problems that a preset has."""
    return [name for name in names if preset == "paper" or name in _SMOKE]


def spec(problem: str, preset: str) -> ProblemSpec:
    if problem == "waveform":
        return ProblemSpec.of(problem, data="authors" if preset == "paper" else "generated")
    if problem in PATHS:
        dim = DIMENSIONS[problem]
        return ProblemSpec.of("diffusion", dim=dim, drift="released", observations="authors")
    return ProblemSpec.of(problem)


def measured(problem: str) -> tuple[str, ...]:
    """Neighbours tell densities apart in few dimensions, a kernel estimate in many.

    On the toys one bandwidth for all modes would blur them.
    """
    if problem in TOYS:
        return ("sliced-w2", "kl")
    return ("sliced-w2", "log-kde", *(("kl-blocks",) if problem == "waveform" else ()))
