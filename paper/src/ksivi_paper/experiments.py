"""The paper's experiments: the cells of each, in two presets.

"paper" has the paper's iterations and seeds. "smoke" has the same cells with a small fraction of
the work, fewer dimensions and no data to download. It shows that everything runs; its numbers mean
nothing.
"""

import dataclasses
from typing import Any

from ksivi.comparison import ESTIMATORS, RobustPlan, TrainedMethod, TrainingPlan, training_plan

from . import specs
from .cells import Cell, ProblemSpec
from .estimators import Estimators
from .networks import SampledNetworks, Setup, TrainedNetworks
from .specs import DIMS
from .training import Sampling, Training

PRESETS = ("paper", "smoke")
TRAINED: tuple[TrainedMethod, ...] = ("ksivi", "ksivi-u", "sivi", "sivi-sm", "uivi")
OURS: tuple[TrainedMethod, ...] = TRAINED[:2]
STEP_SIZES = (1e-5, 1e-4, 1e-3, 5e-3, 8e-3)
NETWORK_WEIGHTS = (0.01, 1.0, 10.0)
NETWORK_RATES = (1e-5, 1e-4, 2e-4, 5e-4, 1e-3)
NETWORK_STEP_SIZES = (1e-7, 1e-6, 1e-5, 2e-5, 4e-5, 5e-5, 1e-4)
"""Step sizes of SGLD. The last four are the paper's; most chains diverge there, unless the
likelihood is tempered."""
UCI = ("boston", "concrete", "power", "wine", "yacht", "protein")


def paper_plan(method: TrainedMethod, problem: str, dim: int) -> TrainingPlan:
    """The plan with the paper's settings."""
    return training_plan(method, problem, dim, "paper")


def toys(preset: str) -> list[Cell]:
    """Figures 1 and 2 and the MMD figure: five methods, Gaussian and IMQ kernels, five seeds."""
    cells: list[Cell] = []
    for problem in ("banana", "multimodal", "x-shaped"):
        for method, kernel in [*((method, "gaussian") for method in TRAINED), (OURS[0], "imq")]:
            # The released code detaches the bandwidth of every kernel but the Gaussian.
            plan = paper_plan(method, problem, 2).replace(kernel=kernel, detached=kernel == "imq")
            name = f"{problem}-{method}" + ("-imq" if kernel == "imq" else "")
            snapshots = (1_000, 5_000, 10_000, 20_000, 30_000, 40_000)
            cell = Training(
                "toys",
                name,
                ProblemSpec.of(problem),
                plan,
                5,
                (),
                snapshots,
                ("kl", "mmd"),
                ("sliced-w2",),
            )
            cells.append(
                dataclasses.replace(cell, shown=("histogram",)) if method == "ksivi" else cell
            )
    return for_preset(preset, cells)


def waveform(preset: str) -> list[Cell]:
    """Marginals, correlations, the table of step sizes, and the distances of SGLD and MALA to
    NUTS."""
    problem = ProblemSpec.of("waveform", data="authors" if preset == "paper" else "generated")

    def cell(name: str, plan: TrainingPlan, **options) -> Training:
        measured = ("sliced-w2", "sliced-w1")
        return Training(
            "waveform",
            name,
            problem,
            plan,
            3,
            measured=measured,
            shown=("draws", "correlations"),
            **options,
        )

    plans = {method: paper_plan(method, "waveform", 22) for method in TRAINED}
    sizes: dict[str, Any] = {"learning_rates": STEP_SIZES, "snapshots": (10_000,)}
    cells: list[Cell] = [
        dataclasses.replace(
            cell("ksivi", plans["ksivi"], snapshots=(16_000, 17_000, 18_000, 19_000)), seeds=10
        ),
        cell("ksivi-u", plans["ksivi-u"], snapshots=(10_000, 20_000)),
        cell("sivi", plans["sivi"]),
        cell("sivi-sm", plans["sivi-sm"]),
        cell("uivi", plans["uivi"]),
        dataclasses.replace(cell("step-sizes-ksivi", plans["ksivi"], **sizes), shown=()),
        dataclasses.replace(
            cell("step-sizes-sivi-sm", plans["sivi-sm"].replace(scale_rate=1.0), **sizes), shown=()
        ),
        dataclasses.replace(cell("ksivi-averaged", plans["ksivi"].replace(ema=0.999)), shown=()),
        dataclasses.replace(cell("ksivi-40k", plans["ksivi"].replace(num_steps=40_000)), shown=()),
        _chains("sgld", problem, 399_999, (("step_size", 1e-4),)),
        _chains("mala", problem, 39_999, ()),
    ]
    return for_preset(preset, cells)


def _chains(method: str, problem: ProblemSpec, warmup: int, options: tuple) -> Sampling:
    options = (("num_draws", 1), ("num_warmup", warmup), *options, ("thin", 1))
    return Sampling(
        "waveform", method, problem, method, options, 1_000, 1, ("sliced-w2",), ("all-draws",)
    )


def smoothness(preset: str) -> list[Cell]:
    """Appendix A.3: ‖∂μ/∂φ‖ and its Lipschitz estimate during training, for both estimators."""
    problem = ProblemSpec.of("waveform", data="authors" if preset == "paper" else "generated")
    early, middle, late = (500, 1_000), (10_000, 10_500), (19_500,)
    cells: list[Cell] = []
    for method in OURS:
        plan = paper_plan(method, "waveform", 22).replace(num_steps=20_000)
        steps = early + middle + late
        cells.append(
            Training("smoothness", method, problem, plan, 1, (), steps, (), (), ("smoothness",))
        )
    return for_preset(preset, cells)


def diffusion(preset: str) -> list[Cell]:
    """Trajectories, the table of sliced distances, training times and losses, for the released and
    the paper's drift.

    UIVI takes as long as all other methods together. It runs with the released drift only, like the
    paper's numbers.
    """
    cells: list[Cell] = []
    for dim in DIMS if preset == "paper" else DIMS[:1]:
        for drift in ("released", "paper"):
            problem = ProblemSpec.of("diffusion", dim=dim, drift=drift, observations="authors")
            for method in TRAINED if drift == "released" else TRAINED[:4]:
                plan = paper_plan(method, "diffusion", dim)
                cell = Training(
                    "diffusion", f"{dim}-{drift}-{method}", problem, plan, 3, shown=("band",)
                )
                cells.append(cell)
                if (dim, drift, method) == (200, "released", "ksivi-u"):
                    longer = plan.replace(num_steps=2 * plan.num_steps)
                    cells.append(
                        dataclasses.replace(cell, name=f"{cell.name}-longer", plan=longer, shown=())
                    )
    return for_preset(preset, cells)


def student_t(preset: str) -> list[Cell]:
    """Heavy tails: MIED, KSDD, and KSIVI with two kernels, with and without the two fixes of the
    released code, and annealed from a base with heavy tails."""
    problem, plan = ProblemSpec.of("student-t"), paper_plan("ksivi", "student-t", 2)
    plain = plan.replace(log_density_weight=None, log_density_share=None, inverse_covariance=False)
    plans = {
        "ksivi-riesz": plan,
        "ksivi-riesz-proper": plan.replace(base_scale=1.0, base_dof=1.0, annealed_share=0.9),
        "ksivi-gaussian": plan.replace(kernel="gaussian", detached=False),
        "ksivi-riesz-plain": plain,
        "ksivi-gaussian-plain": plain.replace(kernel="gaussian", detached=False),
    }
    measured = ("boxed",)
    cells: list[Cell] = [
        Training("student-t", name, problem, p, 3 if "plain" in name else 10, (), (), measured)
        for name, p in plans.items()
    ]
    for method in ("mied", "ksdd"):
        options = (("num_steps", 2_000), ("rate", 1e-2))
        cells.append(Sampling("student-t", method, problem, method, options, 1_000, 10, measured))
    return for_preset(preset, cells)


def networks(preset: str) -> list[Cell]:
    """Six regressions: the released split in both forms, and ten random splits in the paper's
    form."""
    forms = (("released", "paper"), ("released", "released"), ("random", "paper"))
    if preset == "smoke":
        setups = [Setup("friedman", splits, form, 10) for splits, form in forms[::2]]
    else:
        setups = [Setup(data, splits, form) for data in UCI for splits, form in forms]
    cells: list[Cell] = []
    for setup in setups:
        cells += [network(setup, method) for method in TRAINED[:4]]
        cells += _variants(setup)
        name = f"{setup.data}-{setup.splits}-{setup.form}"
        cells.append(
            SampledNetworks("bnn", f"{name}-sgld", setup, 10, "sgld", 10_000, NETWORK_STEP_SIZES)
        )
        cells.append(SampledNetworks("bnn", f"{name}-svgd", setup, 10, "svgd", 2_000))
    return cells if preset == "paper" else [smoke_network(cell) for cell in cells]


def network(setup: Setup, method: TrainedMethod, **options: Any) -> TrainedNetworks:
    """The networks of a method, with more options of its plan."""
    plan = TrainingPlan(method, 100, 20_000, mixing_dim=3, hidden=(10, 10), log_var=-8.0)
    plan = plan.replace(
        decay_every=3_000,
        clip=1.0,
        ema=0.999,
        critic_hidden=(16, 16),
        critic_rate=1e-2,
        critic_warm_up=100,
    ).replace(**options)
    name = f"{setup.data}-{setup.splits}-{setup.form}-{method}"
    ours = method in ESTIMATORS
    # As in the released code, both batches of samples share a minibatch. With one each, half of the
    # runs diverge.
    cell = TrainedNetworks("bnn", name, setup, 10, plan.replace(shared_rows=ours), NETWORK_RATES)
    if method == "sivi-sm":
        # Runs of SIVI-SM that diverge do so late, so settings are chosen at the end.
        return dataclasses.replace(cell, choosing_steps=plan.num_steps)
    return dataclasses.replace(cell, weights=NETWORK_WEIGHTS) if ours else cell


def _variants(setup: Setup) -> list[Cell]:
    """KSIVI on the released split: as in the released code, or with one minibatch for each batch of
    samples."""
    cell = network(setup, "ksivi")
    if setup.form == "released":
        return [_as_released(cell)]
    own = dataclasses.replace(
        cell, name=f"{cell.name}-own-minibatches", plan=cell.plan.replace(shared_rows=False)
    )
    return [own] if setup.splits == "released" else []


def _as_released(cell: TrainedNetworks) -> TrainedNetworks:
    """The settings of the released code, with no choice: its learning rate, its weight, its
    pretraining."""
    weight = 1.0 if cell.setup.data in ("yacht", "wine") else 0.01
    fixed = {"learning_rates": (1e-3,), "weights": (weight,), "pretrained_on": "dev"}
    return dataclasses.replace(cell, name=f"{cell.name}-as-released", **fixed)  # type: ignore[arg-type]


def smoke_network(cell: Cell) -> Cell:
    """The same cell with a few steps, small batches and two seeds."""
    if isinstance(cell, SampledNetworks):
        return dataclasses.replace(cell, seeds=2, num_steps=50, step_sizes=cell.step_sizes[:2])
    assert isinstance(cell, TrainedNetworks)
    plan = cell.plan.replace(num_steps=100, num_samples=20, critic_warm_up=10)
    return dataclasses.replace(
        cell, seeds=2, plan=plan, learning_rates=(1e-3,), choosing_steps=50, pretraining=10
    )


def estimators(preset: str) -> list[Cell]:
    """The claims of the theory: variance and cost of both gradient estimators as functions of N."""
    problem = ProblemSpec.of("waveform", data="authors" if preset == "paper" else "generated")
    sizes, repeats = (
        ((8, 16, 32, 64, 128, 256, 512), 1_000) if preset == "paper" else ((8, 16, 32), 50)
    )
    cells: list[Cell] = []
    for method in OURS:
        for bandwidth in ("fixed", "median"):
            plan = paper_plan(method, "waveform", 22).replace(log_var=-2.0)
            cells.append(
                Estimators(
                    "estimators", f"{method}-{bandwidth}", problem, plan, bandwidth, sizes, repeats
                )
            )
    return cells


def robust(preset: str) -> list[Cell]:
    """KSIVI with one setting on all problems but the networks, which start from pretrained weights."""
    names = specs.of_preset((*specs.PATHS[::-1], "waveform", *specs.TOYS), preset)
    return for_preset(preset, [_robust(name, preset) for name in names])


def _robust(problem: str, preset: str) -> Training:
    more = dict.fromkeys(specs.TOYS[:3], ("mmd",))
    more |= {"student-t": ("boxed",), "waveform": ("sliced-w1",)}
    measured = (*specs.measured(problem), *more.get(problem, ()))
    spec = specs.spec(problem, preset)
    return Training("robust", problem, spec, RobustPlan(), specs.SEEDS, measured=measured)


def for_preset(preset: str, cells: list[Cell]) -> list[Cell]:
    """The cells, or what the preset "smoke" makes of them."""
    return cells if preset == "paper" else [_smoke(cell) for cell in cells]


def _smoke(cell: Cell) -> Cell:
    """The same cell with 1/200 of the steps, small batches and two seeds."""
    if isinstance(cell, Sampling):
        options = tuple(
            (k, max(1, v // 200) if k in ("num_warmup", "num_steps") else v)
            for k, v in cell.options
        )
        return dataclasses.replace(
            cell, options=options, num_points=100, seeds=1, measured=_few(cell.measured)
        )
    assert isinstance(cell, Training)
    steps = max(20, cell.plan.num_steps // 200)
    snapshots = sorted(
        {10 * max(1, round(steps * s / cell.plan.num_steps / 10)) for s in cell.snapshots[::4]}
    )
    snapshots = [step for step in snapshots if step < steps]
    plan = cell.plan.replace(num_steps=steps, num_samples=50)
    if isinstance(plan, TrainingPlan):
        plan = plan.replace(log_density_share=None)
    few = {
        "measured": _few(cell.measured),
        "at_end": _few(cell.at_end),
        "seeds": min(2, cell.seeds),
    }
    return dataclasses.replace(cell, plan=plan, snapshots=tuple(snapshots), **few)  # type: ignore[arg-type]


def _few(names: tuple[str, ...]) -> tuple[str, ...]:
    """The same measures with few draws and redraws."""
    return tuple(f"{name}-few" for name in names)


EXPERIMENTS = {
    "toys": toys,
    "waveform": waveform,
    "diffusion": diffusion,
    "bnn": networks,
    "student-t": student_t,
    "robust": robust,
    "smoothness": smoothness,
    "estimators": estimators,
}
