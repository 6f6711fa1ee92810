"""The page of all methods: its cells, its measures, and processes that share a folder of results."""

import dataclasses
import subprocess
import sys

import numpy as np
import pytest

import ksivi_paper as paper
from ksivi import problems
from ksivi.comparison import METHODS as COMPARED
from ksivi.comparison import SamplingPlan, TrainingPlan, plan_for
from ksivi.metrics import log_kde
from ksivi_paper import Folder
from ksivi_paper.cells import ProblemSpec
from ksivi_paper.claims import Claims
from ksivi_paper.measures import _others, floors
from ksivi_paper.methods import METHODS, PATHS, ROBUST, SEEDS, TOYS, cell_of, methods, network_sets
from ksivi_paper.training import Training


def small(name="banana-ksivi", **changes):
    """The smallest cell: two runs of ten steps."""
    plan = TrainingPlan("ksivi", 10, 10, mixing_dim=2, hidden=(8,), decay_every=10)
    measured = ("sliced-w2-few", "kl-few")
    cell = Training("methods", name, ProblemSpec.of("banana"), plan, 2, measured=measured)
    return dataclasses.replace(cell, **changes)


def test_every_trained_method_is_on_every_problem():
    place = problems.multimodal()
    trained = [
        name for name in COMPARED if not isinstance(plan_for(name, place, "paper"), SamplingPlan)
    ]
    assert sorted(METHODS) == sorted(trained)
    cells = {(cell.experiment, cell.name): cell for cell in methods("paper")}
    wanted = (*TOYS, "waveform", *PATHS, *network_sets("paper"))
    no_networks = {cell_of(data, ROBUST, "paper") for data in network_sets("paper")}
    found = {cell_of(p, m, "paper") for p in wanted for m in METHODS}
    assert set(cells) == found - no_networks
    assert all(cell.seeds == SEEDS for cell in cells.values())
    assert len(cells) == 13 * 15 + 9


def test_settings_are_those_of_the_table():
    cells = {cell.name: cell for cell in methods("paper")}
    for name, make in (
        ("eight-gaussians", problems.eight_gaussians),
        ("x-shaped", problems.x_shaped),
    ):
        for method in METHODS[:-1]:
            assert cells[f"{name}-{method}"].plan == plan_for(method, make(), "paper")
        assert cells[name].plan == plan_for(METHODS[-1], make(), "paper")
    assert cells["diffusion-200-aisivi"].plan.num_mixing == 256
    assert all(cells[f"eight-gaussians-{method}"].plan.annealed for method in METHODS[:-1])


def test_networks_of_the_paper_are_not_run_twice():
    papers = set(paper.EXPERIMENTS["bnn"]("paper"))
    shared = [cell for cell in methods("paper") if cell in papers]
    assert len(shared) == 6 * 4
    assert all(cell.experiment == "bnn" for cell in shared)
    assert set(paper.EXPERIMENTS["robust"]("paper")) < set(methods("paper"))
    assert "methods" not in paper.EXPERIMENTS
    assert set(paper.ALL_EXPERIMENTS) == {*paper.EXPERIMENTS, "methods"}


def test_smoke_cells_need_no_data_and_little_work():
    cells = methods("smoke")
    assert len(cells) == 4 * len(METHODS) - 1
    assert all(cell.seeds == 2 and cell.plan.num_steps <= 100 for cell in cells)
    assert ("bnn", "friedman-released-paper-ksivi") in {(c.experiment, c.name) for c in cells}


def test_a_stored_truth_is_measured_without_copies():
    """Draws that repeat, and that contain the points: each once, and no point gets its own density."""
    rng = np.random.default_rng(0)
    draws, points = rng.normal(size=(50, 3)), rng.normal(size=(5, 3))
    found = _others(np.concatenate([draws, draws, points]), points)
    np.testing.assert_array_equal(np.sort(found, 0), np.sort(draws, 0))
    assert log_kde(found, points).mean() < log_kde(np.concatenate([draws, points]), points).mean()


def test_floors_of_a_stored_truth(monkeypatch):
    """Blocks of the truth with no draw in common: a divergence near 0, and never a copy."""
    spec = ProblemSpec.of("multimodal")
    found = floors(("kl-blocks", "log-kde-few"), spec)
    assert abs(found["kl"]) < 0.05
    assert -4.5 < found["log_kde"] < -2.5


def test_a_cell_that_another_process_runs_is_passed_over(tmp_path):
    """Also after that process is killed: its claim ends with it."""
    code = (
        "import sys, time; from pathlib import Path; sys.path.insert(0, 'tests');"
        "from test_paper_methods import small; from ksivi_paper.claims import Claims;"
        f"claims = Claims(Path({str(tmp_path)!r})); assert claims.take(small());"
        "print('claimed', flush=True); time.sleep(600)"
    )
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
        claimed = other.stdout.readline()
        states = [one.state for one in paper.run_cells([small()], Folder(tmp_path))]
        other.kill()
    assert (claimed, states) == ("claimed\n", ["running elsewhere"])
    assert [one.state for one in paper.run_cells([small()], Folder(tmp_path))] == ["measured"]
    assert not list((tmp_path / "claims").iterdir())


def test_a_claim_is_given_up_when_a_cell_fails(tmp_path, monkeypatch):
    def interrupted(cell):
        raise KeyboardInterrupt

    monkeypatch.setattr(Training, "train", interrupted)
    with pytest.raises(KeyboardInterrupt):
        paper.run_cells([small()], Folder(tmp_path))
    claims = Claims(tmp_path)
    assert claims.take(small())
    assert claims.take(small("other"))
    claims.release(small())
    assert [path.name for path in (tmp_path / "claims").iterdir()] == ["methods-other"]
