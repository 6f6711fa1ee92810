"""The paper's experiments: their settings, their cells, the runner and its records."""

import dataclasses
import json
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ksivi_paper as paper
from ksivi.comparison import TrainingPlan, training_plan
from ksivi_paper.cells import ProblemSpec
from ksivi_paper.estimators import Estimators
from ksivi_paper.measures import floors, measuring_key, rounded
from ksivi_paper.networks import SampledNetworks, Setup, TrainedNetworks
from ksivi_paper.records import make_record
from ksivi_paper.training import Sampling, Training

TINY = TrainingPlan("ksivi", 20, 40, mixing_dim=2, hidden=(8,), decay_every=10)


def tiny(**changes):
    return dataclasses.replace(
        Training(
            "toys",
            "tiny",
            ProblemSpec.of("multimodal"),
            TINY,
            2,
            snapshots=(20,),
            measured=("kl-few",),
        ),
        **changes,
    )


def main(capsys, *arguments):
    from ksivi.cli import app

    with pytest.raises(SystemExit) as exit:
        app(["paper", *map(str, arguments)])
    return exit.value.code, capsys.readouterr()


@pytest.mark.parametrize(
    ("method", "problem", "dim", "settings"),
    [
        ("ksivi", "banana", 2, (500, 50_000, 1e-3, 0.99, 1_000, -1.386, -20, 3, (50, 50))),
        ("ksivi", "x-shaped", 2, (500, 50_000, 1e-3, 0.99, 1_000, 0, -20, 3, (50, 50))),
        ("ksivi", "waveform", 22, (100, 20_000, 1e-3, 0.999, 3_000, -5, -20, 10, (100, 100))),
        ("ksivi-u", "waveform", 22, (100, 40_000, 1e-3, 0.999, 3_000, -2, -20, 10, (100, 100))),
        ("ksivi", "diffusion", 50, (128, 100_000, 2e-4, 0.99, 10_000, -2, -12, 100, (128, 128))),
        ("sivi", "diffusion", 200, (128, 100_000, 1e-4, 0.99, 10_000, -2, -12, 100, (128, 128))),
        ("sivi", "waveform", 22, (100, 20_000, 1e-2, 0.999, 3_000, 0, -20, 10, (100, 100))),
    ],
)
def test_settings_are_the_papers(method, problem, dim, settings):
    plan = training_plan(method, problem, dim, "paper")
    names = (
        "num_samples",
        "num_steps",
        "learning_rate",
        "b2",
        "decay_every",
        "log_var",
        "min_log_var",
    )
    assert tuple(getattr(plan, name) for name in (*names, "mixing_dim", "hidden")) == settings


def test_learning_rates_fall_by_stairs():
    """×0.9 every 1,000 steps, as a function of the rate, so that rates can be batched."""
    optimizer = training_plan("ksivi", "banana", 2, "paper")._adam(jnp.asarray(1e-3))
    state = optimizer.init(jnp.zeros(()))
    sizes = {}
    for step in range(2_002):
        update, state = jax.jit(optimizer.update)(jnp.ones(()), state)
        sizes[step] = float(-update)
    assert sizes[999] == pytest.approx(1e-3, rel=1e-3)
    assert sizes[1_000] == pytest.approx(9e-4, rel=1e-3)
    assert sizes[2_001] == pytest.approx(8.1e-4, rel=1e-3)


@pytest.mark.parametrize("preset", paper.PRESETS)
def test_cells_are_values_with_names_of_their_own(preset):
    cells = [cell for make in paper.EXPERIMENTS.values() for cell in make(preset)]
    names = [(cell.experiment, cell.name) for cell in cells]
    assert len(set(names)) == len(names)
    for cell in cells:
        assert json.loads(json.dumps(cell.spec))["name"] == cell.name
        assert cell == dataclasses.replace(cell)
        assert hash(cell) == hash(dataclasses.replace(cell))
        if isinstance(
            cell, Training
        ):  # looks are every two steps at least, and every snapshot falls on one
            assert not cell.snapshots or cell._chunk() > 1
            assert all(0 < step < cell.plan.num_steps for step in cell.snapshots)


def test_the_paper_preset_has_every_experiment_of_the_paper():
    cells = {
        (c.experiment, c.name): c for make in paper.EXPERIMENTS.values() for c in make("paper")
    }
    for toy in ("banana", "multimodal", "x-shaped"):
        for method in ("ksivi", "ksivi-u", "sivi", "sivi-sm", "uivi", "ksivi-imq"):
            assert cells["toys", f"{toy}-{method}"].seeds == 5
    assert cells["waveform", "step-sizes-ksivi"].learning_rates == (1e-5, 1e-4, 1e-3, 5e-3, 8e-3)
    for dim in (50, 100, 200):
        assert cells["diffusion", f"{dim}-released-ksivi"].plan.num_steps == 100_000
    for data in ("boston", "concrete", "power", "wine", "yacht", "protein"):
        for method in ("ksivi", "ksivi-u", "sivi", "sivi-sm", "sgld", "svgd"):
            assert all(
                cells["bnn", f"{data}-{kind}-{method}"].seeds == 10
                for kind in ("released-paper", "random-paper")
            )
    assert cells["student-t", "ksivi-riesz"].seeds == 10


def test_a_finished_cell_is_not_run_again(tmp_path):
    folder, cell = paper.Folder(tmp_path), tiny()
    assert [outcome.state for outcome in paper.run_cells([cell], folder)] == ["measured"]
    record = folder.record(cell)
    assert [outcome.state for outcome in paper.run_cells([cell], folder)] == ["kept"]
    assert record["spec"] == json.loads(json.dumps(cell.spec))
    assert {"jax", "numpy", "python"} <= set(record["versions"])
    assert record["seconds"]["training"] > 0
    rows = record["numbers"]["rows"]
    assert [(row["seed"], row["step"]) for row in rows] == [(0, 20), (1, 20), (0, 40), (1, 40)]
    assert folder.record(tiny(seeds=3)) is None


def test_training_and_measuring_apart_give_the_same_numbers(tmp_path):
    """As on two machines; and the same cell run twice has the same numbers."""
    together, apart = paper.Folder(tmp_path / "a"), paper.Folder(tmp_path / "b")
    paper.run_cells([tiny()], together)
    assert [outcome.state for outcome in paper.run_cells([tiny()], apart, measure=False)] == [
        "trained"
    ]
    assert apart.record(tiny()) is None
    paper.run_cells([tiny()], apart)
    assert apart.record(tiny())["numbers"] == together.record(tiny())["numbers"]


def test_damaged_files_are_made_again_or_named(tmp_path):
    folder = paper.Folder(tmp_path)
    paper.run_cells([tiny()], folder, measure=False)
    (trained,) = tmp_path.rglob("*.safetensors")
    trained.write_bytes(trained.read_bytes()[:-50])
    assert folder.runs(tiny()) is None
    (tmp_path / "records/toys").mkdir(parents=True)
    (tmp_path / "records/toys/tiny.json").write_text('{"cell": ')
    with pytest.raises(ValueError, match=r"tiny\.json is damaged"):
        folder.records()
    (tmp_path / "records/toys/tiny.json").write_text("{}")
    with pytest.raises(ValueError, match=r"tiny\.json is not a record: it has no cell, experiment"):
        folder.record(tiny())


def test_training_of_another_spec_is_not_measured(tmp_path):
    folder = paper.Folder(tmp_path)
    paper.run_cells([tiny()], folder, measure=False)
    assert folder.runs(tiny()) is not None
    assert folder.runs(tiny(plan=TINY.replace(learning_rate=2e-3))) is None


def test_a_cell_that_cannot_run_does_not_stop_the_others(tmp_path, monkeypatch):
    monkeypatch.setenv("KSIVI_DATA", str(tmp_path))
    monkeypatch.setattr("ksivi.problems._data.SOURCES", {"waveform.mat": ksivi_source()})
    missing = dataclasses.replace(
        tiny(), name="missing", problem=ProblemSpec.of("waveform", data="authors")
    )
    states = [
        outcome.state for outcome in paper.run_cells([missing, tiny()], paper.Folder(tmp_path))
    ]
    assert states[0].startswith("could not run: waveform.mat was not found")
    assert states[1] == "measured"


def ksivi_source():
    from ksivi.problems._data import Source

    return Source("the split")


@pytest.mark.parametrize("kind", ["training", "sampling", "networks"])
def test_ctrl_c_leaves_nothing_that_looks_finished(tmp_path, monkeypatch, kind):
    """A run that Ctrl-C ended early is no run: the whole stops, and the next time trains again."""

    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    cells = {
        "training": tiny(),
        "sampling": Sampling(
            "toys",
            "s",
            ProblemSpec.of("multimodal"),
            "mied",
            (("num_steps", 9), ("rate", 1e-2)),
            20,
            1,
        ),
        "networks": SampledNetworks(
            "bnn", "n", Setup("friedman", "released", "paper", 2), 1, "svgd", 5
        ),
    }
    monkeypatch.setattr("ksivi.training._training.run_many", interrupted)
    monkeypatch.setattr(sys.modules["ksivi.methods._sampling"], "_run_chunk", interrupted)
    folder = paper.Folder(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        paper.run_cells([cells[kind], tiny(name="other")], folder)
    assert not list(tmp_path.rglob("*.json"))


@pytest.mark.slow
def test_a_run_without_a_finite_number_does_not_lose_the_others():
    """Draws that are all outside the box, and a family of NaN: None beside the numbers of the other
    runs."""
    cell = Training(
        "student-t",
        "t",
        ProblemSpec.of("student-t"),
        TINY,
        2,
        measured=("boxed-few", "kl-few", "sliced-w2-few"),
    )
    runs = cell.train()
    far = eqx.tree_at(
        lambda p: p.family.conditional.mean.biases[-1], runs.posteriors[0][0], jnp.full(2, 1e3)
    )
    lost = jax.tree.map(
        lambda a: a * jnp.nan if eqx.is_inexact_array(a) else a, runs.posteriors[0][1]
    )
    rows = cell.measure(eqx.tree_at(lambda r: r.posteriors, runs, ((far, lost),)))["rows"]
    assert rows[0]["boxed_5"] is None
    assert rows[0]["inside_5"] == 0
    assert rows[0]["kl"] > 0
    assert rows[1]["kl"] is None
    assert rows[1]["sliced_w2"] is None


@pytest.mark.slow
def test_particles_and_chains_are_cells_too(tmp_path):
    options = (("num_steps", 20), ("rate", 1e-2))
    cell = Sampling(
        "student-t", "mied", ProblemSpec.of("student-t"), "mied", options, 50, 2, ("kl-few",)
    )
    runs = cell.train()
    assert len(runs.posteriors[0]) == 2
    chains = (("num_draws", 1), ("num_warmup", 20), ("step_size", 1e-2), ("thin", 1))
    sgld = Sampling("toys", "sgld", ProblemSpec.of("multimodal"), "sgld", chains, 60, 1, ("mmd",))
    assert sgld.measure(sgld.train())["rows"][0]["mmd"] > 0


@pytest.mark.slow
def test_networks_choose_on_development_rows(tmp_path):
    plan = TrainingPlan(
        "ksivi",
        10,
        20,
        mixing_dim=3,
        hidden=(10, 10),
        log_var=-8.0,
        decay_every=10,
        clip=1.0,
        ema=0.9,
    )
    setup = Setup("friedman", "random", "paper", hyper_steps=5)
    cell = TrainedNetworks(
        "bnn", "f", setup, 2, plan, (1e-4, 1e-3), (1.0,), choosing_steps=10, pretraining=5
    )
    runs = cell.train()
    chosen = json.loads(runs.notes)["chosen"]
    best = min(chosen["tried"], key=lambda one: one["dev_rmse"])
    assert chosen["learning_rate"] == best["learning_rate"]
    problem = setup.for_choosing().problems(1)[0]
    tried = cell._train([problem] * 2, [100, 100], [1e-4, 1e-3], [1.0, 1.0], 10)
    errors = [
        problem.dev_scores(fit.posterior.sample(measuring_key(3), 100))["rmse"] for fit in tried
    ]
    np.testing.assert_allclose([one["dev_rmse"] for one in chosen["tried"]], errors, rtol=1e-3)
    rows = cell.measure(runs)["rows"]
    assert len(rows) == 2
    assert rows[0]["log_gamma"] != rows[1]["log_gamma"]  # each split has its own
    sgld = SampledNetworks("bnn", "s", setup, 1, "sgld", 5, (1e6, 1e-5))
    runs = sgld.train()
    chosen = json.loads(runs.notes)["chosen"]
    assert (chosen["step_size"], chosen["tried"][0]["dev_rmse"]) == (
        1e-5,
        None,
    )  # chains that diverge are not chosen
    assert np.isfinite(sgld.measure(runs)["rows"][0]["nll"])


@pytest.mark.slow
def test_the_variance_of_both_estimators_falls_as_one_over_n():
    """Theorem 4.7, at a fixed bandwidth: the slope on log axes within 4 standard errors of −1."""
    plan, place = (
        training_plan("ksivi", "waveform", 22, "paper").replace(log_var=-2.0, hidden=(20,)),
        ProblemSpec.of("waveform", data="generated"),
    )
    for method in ("ksivi", "ksivi-u"):
        cell = Estimators(
            "estimators", "e", place, plan.replace(method=method), "fixed", (128, 512), 100
        )
        few, many = cell.measure(cell.train())["rows"]
        slope = np.log(many["variance"] / few["variance"]) / np.log(4)
        error = np.hypot(many["error"] / many["variance"], few["error"] / few["variance"]) / np.log(
            4
        )
        assert abs(slope + 1) < 4 * error, (method, slope, error)
        assert error < 0.15


@pytest.mark.slow
def test_floors_are_those_of_the_truth():
    found = floors(("kl-few", "mmd"), ProblemSpec.of("multimodal"))
    assert abs(found["kl"]) < 0.1
    assert 0 < found["mmd"] < 0.1


def test_numbers_are_written_shortly_and_never_as_nan():
    assert rounded([1.23456789, np.inf, np.nan]) == [1.2346, None, None]


def test_list_shows_what_is_finished(tmp_path, capsys):
    cell = paper.EXPERIMENTS["student-t"]("smoke")[0]
    folder = paper.Folder(tmp_path / "smoke")
    folder.finish(cell, make_record(cell, tiny(snapshots=()).train(), {"rows": []}, 0.0))
    code, shown = main(capsys, "list", "--preset", "smoke", "--out", tmp_path)
    assert code == 0
    assert [line.split()[:3] for line in shown.out.splitlines() if "student-t" in line] == [
        ["student-t", "7", "1"]
    ]


@pytest.mark.slow
def test_run_runs_the_named_cells(tmp_path, capsys):
    code, shown = main(
        capsys,
        "run",
        "toys",
        "--preset",
        "smoke",
        "--only",
        "x-shaped-sivi",
        "--without",
        "sm",
        "--out",
        tmp_path,
    )
    assert code == 0
    assert "1 cells" in shown.err
    assert (tmp_path / "smoke/records/toys/x-shaped-sivi.json").is_file()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run", "mnist"), "EXPERIMENTS must be one of 'all', 'toys'"),
        (
            ("run", "toys", "--preset", "long"),
            "--preset must be one of 'paper', 'smoke', got 'long'",
        ),
        (("run", "toys", "--only", "nothing"), "--only and --without must leave at least one cell"),
    ],
)
def test_bad_input_is_named(tmp_path, capsys, monkeypatch, arguments, message):
    from ksivi.cli import main as entry

    monkeypatch.setattr("sys.argv", ["ksivi", "paper", *arguments, "--out", str(tmp_path)])
    with pytest.raises(SystemExit) as exit:
        entry()
    assert exit.value.code == 2
    assert message in " ".join(capsys.readouterr().err.split())
