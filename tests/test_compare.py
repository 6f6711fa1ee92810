"""The table of plans, distances to the truth, and `ksivi compare` as a user runs it."""

import functools
import json
import os
import subprocess
import sys

import jax
import numpy as np
import pytest

import ksivi
from ksivi import comparison, problems

for package in ("blackjax", "ot", "typer", "matplotlib"):
    pytest.importorskip(package)

KEY = jax.random.key(0)


def command(*arguments, cache):
    code = "import sys; from ksivi.cli import main; sys.argv[0] = 'ksivi'; main()"
    environment = {**os.environ, "KSIVI_CACHE": str(cache), "COLUMNS": "100"}
    return subprocess.run(
        [sys.executable, "-c", code, "compare", *arguments],
        capture_output=True,
        text=True,
        timeout=600,
        env=environment,
    )


@pytest.mark.slow
def test_json_has_the_promised_shape(tmp_path):
    done = command(
        "multimodal",
        "--methods",
        "svgd,mied",
        "--json",
        "--out",
        str(tmp_path / "new"),
        cache=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    assert set(record) == {"problem", "floor", "methods"}
    assert record["problem"] == "multimodal"
    assert list(record["methods"]) == ["svgd", "mied"]
    for row in record["methods"].values():
        assert set(row) == {"status", "sliced_wasserstein", "seconds", "steps", "score_evals"}
        assert row["status"].startswith("step limit: ran all")
        assert row["sliced_wasserstein"] < 0.5
        assert row["steps"] > 0
        assert row["score_evals"] >= 300 * row["steps"]
    assert 0.01 < record["floor"] < 0.2
    assert (tmp_path / "new" / "multimodal.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_ones_own_log_density_is_compared_with_nuts(tmp_path):
    """A file with a neighbour that it imports; NUTS is the truth, made once and kept."""
    (tmp_path / "helper.py").write_text("scale = 2.0\n")
    lines = ("import jax.numpy as jnp", "from helper import scale", "", "", "def log_density(x):")
    (tmp_path / "model.py").write_text("\n".join([*lines, "    return -jnp.sum(x**2) / scale", ""]))
    model = f"{tmp_path / 'model.py'}:log_density"
    done = command(
        model,
        "--dim",
        "3",
        "--methods",
        "nuts,svgd",
        "--out",
        str(tmp_path),
        cache=tmp_path / "cache",
    )
    assert done.returncode == 0, done.stderr
    assert "nuts" in done.stdout
    assert "converged" in done.stdout
    assert len(list((tmp_path / "cache" / "reference").iterdir())) == 1
    assert (tmp_path / "model-py-log_density.png").is_file()


@pytest.mark.slow
def test_where_nuts_gives_no_truth_there_is_no_comparison(tmp_path):
    (tmp_path / "funnel.py").write_text(
        "import jax.numpy as jnp\n\n\n"
        "def log_density(x):\n    return -x[0] ** 2 / 18 - 0.5 * x[1] ** 2 * jnp.exp(-x[0]) - 0.5 * x[0]\n"
    )
    done = command(
        f"{tmp_path}/funnel.py:log_density", "--dim", "2", "--out", str(tmp_path), cache=tmp_path
    )
    assert done.returncode == 3
    assert "NUTS gives no reference for this target" in " ".join(done.stderr.split())
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["moon"], "PROBLEM must be one of banana"),
        (["banana", "--methods", "ksivi,vi"], "--methods must be one of"),
        (["banana", "--dim", "3"], "--dim is for diffusion or your own log density"),
        (["banana", "--preset", "long"], "--preset must be one of"),
        (["banana", "--seed", "-1"], "--seed must be a whole number"),
        (["banana", "--data", "x.mat"], "--data is only for waveform"),
        (["waveform", "--data", "nowhere.mat"], "there is no file nowhere.mat"),
        (["diffusion", "--dim", "2"], "--dim must be a whole number of at least 5"),
        (["nowhere.py:f", "--dim", "2"], "with a file that exists"),
        (["nowhere.py:f"], "--dim must be the dimension of nowhere.py:f, got none"),
        (["banana", "--out", "/dev/null/x"], "--out must be a writable folder"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(arguments, message, tmp_path, monkeypatch, capsys):
    from ksivi.cli import main

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["ksivi", "compare", *arguments])
    with pytest.raises(SystemExit) as exit:
        main()
    out, err = capsys.readouterr()
    assert exit.value.code == 2
    assert message in " ".join(err.split())
    assert out == ""


def test_a_file_that_fails_is_named(tmp_path):
    (tmp_path / "broken.py").write_text("1 / 0\n")
    with pytest.raises(ValueError, match=r"broken\.py could not be imported: ZeroDivisionError"):
        problems.from_file(f"{tmp_path}/broken.py:f", 2)
    (tmp_path / "other.py").write_text("g = 1\n")
    with pytest.raises(ValueError, match="does not define f"):
        problems.from_file(f"{tmp_path}/other.py:f", 2)


@functools.cache
def problem_of(dim):
    return {2: problems.banana, 22: problems.waveform, 50: lambda: problems.diffusion(50)}[dim]()


@pytest.mark.parametrize("preset", comparison.PRESETS)
@pytest.mark.parametrize("name", comparison.METHODS)
@pytest.mark.parametrize("dim", [2, 22, 50])
def test_every_method_has_a_plan_for_every_kind_of_problem(name, preset, dim):
    problem = problem_of(dim)
    plan = comparison.plan_for(name, problem, preset)
    if isinstance(plan, comparison.RobustPlan):
        assert plan.family(KEY, dim).dim == dim
        assert plan.num_steps >= 10_000
        plan.objective(dim)
    elif isinstance(plan, comparison.TrainingPlan):
        assert plan.family(KEY, dim).dim == dim
        assert plan.num_steps >= 4_000
        plan.objective()
    else:
        method = plan.method_from(problem.start(KEY, plan.num_points))
        assert method.num_points == plan.num_points


def test_estimators_with_derivatives_have_a_smooth_kernel_on_heavy_tails():
    for name, kernel in (("ksivi", "Riesz"), ("ksivi-stein", "IMQ"), ("ksivi-combined", "IMQ")):
        plan = comparison.training_plan(name, "student-t", 2, "short")
        assert type(plan.objective().kernel).__name__ == kernel


def test_the_demo_is_a_preset_of_the_table():
    """KSIVI with 15,000 steps of 100 samples, a rate that falls from 2e-3 to 0, and annealing where
    it is needed."""
    for name, kernel, annealed in (
        ("banana", "gaussian", False),
        ("multimodal", "imq", True),
        ("x-shaped", "gaussian", True),
    ):
        plan = comparison.training_plan("ksivi", name, 2, "demo")
        assert (plan.num_steps, plan.num_samples, plan.learning_rate) == (15_000, 100, 2e-3)
        assert (plan.decay_every, plan.kernel, plan.detached, plan.annealed) == (
            None,
            kernel,
            False,
            annealed,
        )


def test_an_unknown_preset_is_named():
    with pytest.raises(
        ValueError, match="preset must be one of 'short', 'demo', 'paper', got 'long'"
    ):
        next(comparison.compare(KEY, problem_of(2), None, preset="long"))


@pytest.mark.slow
def test_a_methods_result_does_not_depend_on_its_company():
    problem = problems.multimodal()
    truth = comparison.know_truth(KEY, problem)
    alone = next(iter(comparison.compare(KEY, problem, truth, ["ksdd"])))
    together = list(comparison.compare(KEY, problem, truth, ["mied", "ksdd"]))
    assert np.array_equal(alone.draws, together[1].draws)
    assert alone.sliced_wasserstein == together[1].sliced_wasserstein


def test_an_interrupted_method_ends_the_comparison():
    def stop(chunk):
        raise KeyboardInterrupt

    problem = problems.multimodal()
    truth = comparison.know_truth(KEY, problem)
    done = list(
        comparison.compare(KEY, problem, truth, ["svgd", "mied"], callbacks=lambda name: [stop])
    )
    assert [result.name for result in done] == ["svgd"]
    assert done[0].status.kind == "interrupted"


@pytest.mark.slow
def test_a_method_that_cannot_run_is_a_result(tmp_path):
    """Chains of NUTS start where the density is positive; one of 300 particles does not."""
    (tmp_path / "narrow.py").write_text(
        "import jax.numpy as jnp\n\n\n"
        "def log_density(x):\n    return jnp.where(jnp.abs(x[0]) < 2.2, -50 * jnp.sum(x**2), -jnp.inf)\n"
    )
    problem = problems.from_file(f"{tmp_path}/narrow.py:log_density", 1)
    truth = comparison.Truth(0.1 * jax.random.normal(KEY, (5, 1_000, 1)), 0.01, 0.001)
    done = list(comparison.compare(KEY, problem, truth, ["svgd", "nuts"]))
    assert str(done[0].status).startswith(
        "not trusted: it could not run: target must be finite where the points start"
    )
    assert done[0].status.codes == ("could-not-run",)
    assert done[0].draws is None
    assert done[1].status.kind == "converged"
    assert done[1].sliced_wasserstein < 0.02


def test_ordinary_model_files_load(tmp_path):
    (tmp_path / "typed.py").write_text(
        "from __future__ import annotations\nimport dataclasses\n\n\n@dataclasses.dataclass\nclass A:\n    a: int\n\n\n"
        "def f(x):\n    import later_neighbour\n    return later_neighbour.value * x[0] ** 2\n"
    )
    (tmp_path / "later_neighbour.py").write_text("value = -1.0\n")
    assert problems.from_file(f"{tmp_path}/typed.py:f", 1).target.dim == 1
    (tmp_path / "leaves.py").write_text("import sys\nsys.exit(0)\n")
    with pytest.raises(ValueError, match="could not be imported: SystemExit"):
        problems.from_file(f"{tmp_path}/leaves.py:f", 1)


def test_figures_of_one_dimension_and_of_many(tmp_path):
    from ksivi.report import methods_and_truth

    for dim in (1, 2, 7):
        target = ksivi.Target(lambda x: -0.5 * (x**2).sum(), dim=dim)
        draws = np.random.default_rng(0).normal(size=(100, dim))
        methods_and_truth(tmp_path / f"{dim}.png", target, draws, [("a", draws), ("b", draws)])
        assert (tmp_path / f"{dim}.png").stat().st_size > 5_000


@pytest.mark.slow
def test_student_t_is_its_own_truth():
    problem = problems.student_t()
    draws = np.asarray(problem.reference(KEY, 200_000), np.float64)
    z = np.linalg.solve(np.array([[0.28216, -0.11804], [-0.11804, 0.29587]]), draws.T).T
    # Quantiles of t(2) are known: F⁻¹(p) = (2p − 1) √(2 / (4p(1 − p))).
    for p in (0.6, 0.75, 0.9, 0.99):
        exact = (2 * p - 1) * np.sqrt(2 / (4 * p * (1 - p)))
        error = np.sqrt(p * (1 - p) / len(z)) * (2 + exact**2) ** 1.5
        assert np.all(np.abs(np.quantile(z, p, axis=0) - exact) < 4.5 * error)
    box = np.linspace(-60, 60, 2_401)
    points = np.stack(np.meshgrid(box, box), -1).reshape(-1, 2)
    values = np.exp(
        np.asarray(
            jax.jit(jax.vmap(problem.target.log_density))(points.astype(np.float32)), np.float64
        )
    )
    inside = np.mean(np.all(np.abs(draws) < 60, axis=1))
    np.testing.assert_allclose(values.sum() * (box[1] - box[0]) ** 2, inside, rtol=5e-3)
    assert ksivi.problems.student_t().start(KEY, 3).shape == (3, 2)
