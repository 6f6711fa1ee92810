"""Executors: the same tasks here and on a Dask cluster, whose workers are killed; and their
options."""

import dataclasses
import os
import signal
import subprocess
import sys
import threading
import time

import jax
import pytest

import ksivi_paper as paper
from ksivi import comparison, problems
from ksivi.comparison import TrainingPlan
from ksivi.executors import Dask, Local, send_modules_of
from ksivi_paper.cells import ProblemSpec
from ksivi_paper.training import Training

for package in ("distributed", "typer", "ot"):
    pytest.importorskip(package)

TINY = TrainingPlan("ksivi", 20, 40, mixing_dim=2, hidden=(8,), decay_every=10)
RATES = [1e-4 * (i + 1) for i in range(60)]


@dataclasses.dataclass(frozen=True)
class Watched(Training):
    """A cell that notes when its training begins, and in which process."""

    log: str = ""

    def train(self):
        with open(self.log, "a") as file:
            file.write(f"{self.name} {os.getpid()}\n")
        return Training.train(self)


@dataclasses.dataclass(frozen=True)
class Deadly(Training):
    """A cell that takes its process down, as one does that needs more memory than there is."""

    def train(self):
        os.kill(os.getpid(), signal.SIGKILL)


def tiny(kind, name, **options):
    return kind(
        "toys", name, ProblemSpec.of("multimodal"), TINY, 1, measured=("kl-few",), **options
    )


def grid(log):
    """60 learning rates; one cell in the middle has another network, whose compilation takes
    seconds."""
    plans = [TINY.replace(hidden=(9,)) if i == 30 else TINY for i in range(60)]
    return [
        Watched(
            "toys",
            f"rate-{i}",
            ProblemSpec.of("multimodal"),
            plan,
            1,
            (rate,),
            measured=("kl-few",),
            log=str(log),
        )
        for i, (rate, plan) in enumerate(zip(RATES, plans, strict=True))
    ]


def begun(log):
    """Cell and process of every training that has begun."""
    return [line.split() for line in log.read_text().splitlines()] if log.is_file() else []


def kill_the_worker_of(name, log, killed):
    while not killed:
        killed += [int(process) for cell, process in begun(log) if cell == name]
        time.sleep(0.2)
    os.kill(killed[0], signal.SIGKILL)


@pytest.mark.slow
def test_a_killed_worker_loses_no_cell_and_doubles_none(tmp_path, monkeypatch, capsys):
    """60 cells on 2 workers, one of them killed while it trains the 31st: 60 records, each written
    once."""
    from ksivi.cli import app

    log, killed, written = tmp_path / "log", [], []
    cells = grid(log)
    monkeypatch.setitem(paper.EXPERIMENTS, "toys", lambda preset: cells)
    finish = paper.Folder.finish
    monkeypatch.setattr(
        paper.Folder,
        "finish",
        lambda self, cell, record: (written.append(cell.name), finish(self, cell, record)),
    )
    killer = threading.Thread(target=kill_the_worker_of, args=("rate-30", log, killed))
    killer.start()
    began = time.perf_counter()
    with pytest.raises(SystemExit) as exit:
        app(
            ["paper", "run", "toys", "--out", str(tmp_path), "--executor", "dask", "--workers", "2"]
        )
    seconds = time.perf_counter() - began
    killed.append(0)  # ends the thread where it waits in vain
    killer.join()
    shown = capsys.readouterr().err
    assert exit.value.code == 0, shown
    trained = [cell for cell, _ in begun(log)]
    print(
        f"{len(written)} records, {seconds:.0f} s, {len(trained) - 60} run again, killed {killed[0]}"
    )
    assert shown.count("died while it ran toys/rate-30") == 1
    assert trained.count("rate-30") == 2
    assert set(trained) == {cell.name for cell in cells}
    assert sorted(written) == sorted(cell.name for cell in cells)
    assert len(list((tmp_path / "paper/records/toys").iterdir())) == 60
    folder = paper.Folder(tmp_path / "paper")
    assert all(folder.record(cell) is not None for cell in cells)
    assert sum(": measured, " in line for line in shown.splitlines()) == 60
    here = paper.Folder(tmp_path / "here")
    paper.run_cells(cells[30:31], here)
    assert here.record(cells[30])["numbers"] == folder.record(cells[30])["numbers"]


@pytest.mark.slow
def test_a_cell_that_kills_its_workers_ends_and_does_not_stop_the_others(tmp_path):
    import dask

    folder, notes = paper.Folder(tmp_path), []
    cells = [tiny(Deadly, "deadly"), tiny(Training, "other")]
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 1}),
        Dask(1, note=notes.append) as executor,
    ):
        outcomes = paper.run_cells(cells, folder, executor=executor)
    states = {outcome.cell.name: outcome.state for outcome in outcomes}
    assert states["deadly"].startswith(
        "could not run: 2 workers died while they ran it, the last tcp://"
    )
    assert states["other"] == "measured"
    assert folder.record(cells[0]) is None
    assert len(notes) == 2
    assert all(note.endswith("died while it ran toys/deadly") for note in notes)


@pytest.mark.slow
def test_ctrl_c_ends_the_cluster_with_exit_code_130(tmp_path):
    code = "import sys; from ksivi.cli import main; sys.argv[0] = 'ksivi'; main()"
    options = (
        "toys",
        "--preset",
        "smoke",
        "--out",
        str(tmp_path),
        "--executor",
        "dask",
        "--workers",
        "1",
    )
    with (
        subprocess.Popen(
            [sys.executable, "-c", code, "paper", "run", *options],
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "COLUMNS": "200"},
            start_new_session=True,  # a group of its own, which hears of Ctrl-C as the processes of a terminal do
        ) as process
    ):
        assert "cells, records in" in process.stderr.readline()
        time.sleep(10)
        os.killpg(process.pid, signal.SIGINT)
        shown = process.stderr.read()
        assert process.wait() == 130
    assert shown == "interrupted: finished cells are kept; run the command again to continue\n"
    assert not list(tmp_path.rglob("*.json"))
    time.sleep(5)
    with pytest.raises(ProcessLookupError):  # no worker is left
        os.killpg(process.pid, 0)


def squares(item, tell):
    tell({"about": item})
    yield item
    yield item**2


def surroundings(item, tell):
    """A task long enough for each of two workers to get one."""
    time.sleep(1)
    yield str(jax.numpy.zeros(()).device)
    yield os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"]


@pytest.fixture(scope="module")
def cluster():
    """A scheduler with one worker, whose process knows nothing of files that tests make later."""
    from distributed import LocalCluster

    with LocalCluster(
        n_workers=1, threads_per_worker=1, dashboard_address="127.0.0.1:0"
    ) as cluster:
        yield cluster


def test_a_task_gives_the_same_parts_anywhere(cluster):
    told = []
    for executor in (Local(), Dask(scheduler=cluster.scheduler_address)):
        with executor:
            parts = list(
                executor.run(
                    squares, iter([1, 2, 3]), lambda item, message: told.append((item, message))
                )
            )
        assert parts == [(i, part) for i in (1, 2, 3) for part in (i, i**2)]
    assert told == [(i, {"about": i}) for i in (1, 2, 3)] * 2


@pytest.mark.slow
def test_local_workers_share_the_devices(monkeypatch):
    """They take turns, and no process takes a whole GPU."""
    monkeypatch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=2")
    with Dask(2) as executor:
        parts = [part for _, part in executor.run(surroundings, ["a", "b"], print)]
    assert sorted(parts) == ["cpu:0", "cpu:1", "false", "false"]


def fails(item, tell):
    raise TypeError(f"not {item}")
    yield


def test_an_error_in_a_task_is_raised(cluster):
    with (
        Dask(scheduler=cluster.scheduler_address) as executor,
        pytest.raises(TypeError, match="not this"),
    ):
        list(executor.run(fails, ["this"], print))


@pytest.mark.slow
def test_workers_without_the_users_files_run_their_log_density(cluster, tmp_path):
    """A file with a neighbour that it imports; both go with the task, and bars hear of every
    chunk."""
    (tmp_path / "own_scale.py").write_text("scale = 2.0\n")
    (tmp_path / "own_model.py").write_text(
        "import jax.numpy as jnp\nimport own_scale\n\n\ndef f(x):\n    return -jnp.sum(x**2) / own_scale.scale\n"
    )
    problem = problems.from_file(f"{tmp_path}/own_model.py:f", 1)
    send_modules_of(tmp_path)
    key, seen = jax.random.key(0), []
    truth = comparison.Truth(jax.random.normal(key, (5, 1_000, 1)), 0.03, 0.01)
    with Dask(scheduler=cluster.scheduler_address) as executor:
        options = {"callbacks": lambda name: [seen.append], "executor": executor}
        (done,) = comparison.compare(key, problem, truth, ["svgd"], **options)
    assert (done.name, done.status.kind) == ("svgd", "step limit")
    assert done.sliced_wasserstein < 0.3
    assert seen[-1].step == seen[-1].num_steps == done.cost.steps


@pytest.mark.parametrize("command", [["paper", "run", "toys"], ["compare", "banana"]])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--executor", "ray"], "--executor must be one of 'local', 'dask', got 'ray'"),
        (
            ["--scheduler", "tcp://a:1"],
            "--scheduler needs --executor dask, got tcp://a:1 with --executor local",
        ),
        (["--workers", "3"], "--workers needs --executor dask, got 3 with --executor local"),
        (
            ["--executor", "dask", "--workers", "0"],
            "--workers must be a whole number of at least 1, got 0",
        ),
        (
            ["--executor", "dask", "--scheduler", "here"],
            "--scheduler must be an address like tcp://HOST:PORT, got 'here'",
        ),
        (
            ["--executor", "dask", "--scheduler", "tcp://a:1", "--workers", "3"],
            "--workers and --scheduler exclude each other, got 3 and tcp://a:1",
        ),
        (
            ["--executor", "dask", "--scheduler", "tcp://127.0.0.1:1"],
            "scheduler must be the address of a Dask scheduler, got tcp://127.0.0.1:1",
        ),
    ],
)
def test_bad_options_are_one_line_and_exit_code_2(
    command, options, message, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr("ksivi.executors._cluster._JOIN_S", 0.5)
    code, shown = run_main([*command, *options, "--out", str(tmp_path)], monkeypatch, capsys)
    assert code == 2
    assert message in " ".join(shown.err.split())
    assert shown.out == ""


def test_without_dask_the_extra_is_named(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "distributed", None)
    code, shown = run_main(
        ["paper", "run", "toys", "--executor", "dask", "--out", str(tmp_path)], monkeypatch, capsys
    )
    assert code == 2
    assert "the dask executor needs distributed: pip install 'ksivi[dask]'" in " ".join(
        shown.err.split()
    )


def test_workers_with_several_threads_are_refused():
    from distributed import LocalCluster

    with LocalCluster(
        n_workers=1, threads_per_worker=2, processes=False, dashboard_address="127.0.0.1:0"
    ) as cluster:
        executor = Dask(scheduler=cluster.scheduler_address)
        with pytest.raises(ValueError, match="workers must have one thread each"):
            executor.__enter__()


def run_main(arguments, monkeypatch, capsys):
    from ksivi.cli import main

    monkeypatch.setattr(sys, "argv", ["ksivi", *arguments])
    with pytest.raises(SystemExit) as exit:
        main()
    return exit.value.code, capsys.readouterr()
