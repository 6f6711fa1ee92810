"""Calibration of exact, narrow and shifted posteriors, with known verdicts."""

import functools
import json
import signal
import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import ksivi
from ksivi.calibration import calibrate, simulate_numpyro
from ksivi.calibration._calibrate import _fingerprint
from ksivi.families import Empirical
from ksivi.report._ranks import rank_histograms

KEY = jax.random.key(0)


class Model:
    """θ ~ N(0, 1), y ~ N(θ, 1), in two coordinates, with the exact posterior N(y/2, 1/2) widened or shifted."""

    def __init__(self, width=1.0, shift=0.0):
        self.width, self.shift, self.calls = width, shift, 0

    def simulate(self, key):
        truth_key, data_key = jax.random.split(key)
        theta = jax.random.normal(truth_key, (2,))
        self.y = theta + jax.random.normal(data_key, (2,))
        return {"x": theta}, TARGET

    def fit(self, key, target):
        self.calls += 1
        points = (
            self.y[None] / 2
            + self.shift
            + self.width * jnp.sqrt(0.5) * jax.random.normal(key, (2_000, 2))
        )
        posterior = ksivi.Posterior.of(Empirical(points), target)
        cost = ksivi.Cost(0.0, 0, 0)
        return ksivi.Fit(posterior, ksivi.Status("converged", "exact"), True, {}, {}, cost, None)


TARGET = ksivi.Target(lambda x: -0.5 * jnp.sum(x**2), dim=2)


def run(model, count=300, **options):
    return calibrate(KEY, model.simulate, count, fit=model.fit, **options)


def test_exact_posteriors_are_calibrated():
    found = run(Model())
    assert found.names == ["x[0]", "x[1]"]
    assert found.rejected() == []
    assert found.counts.sum() == 600
    for level in (0.5, 0.8, 0.95):
        share, error = found.coverage(level)
        assert 0.005 < error < 0.03
        assert abs(share - level) < 4 * error
    assert "300 fits, 300 of them trusted" in str(found)


@pytest.mark.parametrize("fault", [{"width": 0.6}, {"width": 1.6}, {"shift": 0.8}])
def test_wrong_posteriors_are_detected(fault):
    found = run(Model(**fault))
    assert found.rejected() == ["x[0]", "x[1]"]
    share, error = found.coverage(0.95)
    assert (share < 0.95 - 4 * error) == (fault != {"width": 1.6})


def test_a_record_is_continued(tmp_path):
    path, model = tmp_path / "record.jsonl", Model()
    run(model, 5, record=path)
    path.write_text(path.read_text()[:-30])
    heard = []
    found = run(model, 8, record=path, heard=heard.append)
    assert model.calls == 5 + 4
    assert [one.index for one in heard] == [4, 5, 6, 7]
    np.testing.assert_array_equal(found.ranks, run(Model(), 8).ranks)
    assert len(path.read_text().splitlines()) == 8
    with pytest.raises(ValueError, match="record must come from the same key"):
        calibrate(jax.random.key(1), model.simulate, 8, fit=model.fit, record=path)
    path.write_text("not JSON\n" + path.read_text())
    with pytest.raises(ValueError, match="record must contain replications, but line 1"):
        run(model, 8, record=path)


@pytest.mark.parametrize("way", ["returns", "raises"])
def test_an_interrupted_fit_does_not_count(tmp_path, way):
    """`ksivi.fit` returns what it has after Ctrl-C; a model's own code may turn Ctrl-C into an error."""
    path, model, presses = tmp_path / "record.jsonl", Model(), iter(["Ctrl-C"])

    def interrupted(key, target):
        if model.calls == 3 and next(presses, None):
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
            if way == "raises":
                raise RuntimeError("KeyboardInterrupt in a callback")
        return model.fit(key, target)

    with pytest.raises(KeyboardInterrupt):
        calibrate(KEY, model.simulate, 6, fit=interrupted, record=path)
    assert len(path.read_text().splitlines()) == 3
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    again = calibrate(KEY, model.simulate, 6, fit=interrupted, record=path)
    np.testing.assert_array_equal(again.ranks, run(Model(), 6).ranks)


def test_a_fit_that_a_callback_ends_counts():
    def fit(key, target):
        family, stop = ksivi.SemiImplicit.location_scale(2), [lambda chunk: True]
        objective, steps = ksivi.SIVI(4, 0), {"num_steps": 4, "chunk_size": 2, "callbacks": stop}
        return ksivi.train(key, target, family, objective, **steps)

    found = calibrate(KEY, Model().simulate, 2, fit=fit)
    assert all(one.status.startswith("interrupted") for one in found.replications)


@pytest.mark.parametrize("cut", [1, 2, 40])
def test_a_line_that_a_full_disk_cut_is_made_again(tmp_path, cut):
    path, model = tmp_path / "record.jsonl", Model()
    run(model, 3, record=path)
    path.write_text(path.read_text()[:-cut])
    for count in (4, 5):
        found = run(model, count, record=path)
        assert len(path.read_text().splitlines()) == count
    np.testing.assert_array_equal(found.ranks, run(Model(), 5).ranks)


def test_a_record_of_another_calibration_is_refused(tmp_path):
    path, model = tmp_path / "record.jsonl", Model()
    fit = lambda key, target, steps: model.fit(key, target)  # noqa: E731
    with_steps = lambda steps: functools.partial(fit, steps=steps)  # noqa: E731
    other = ksivi.Target(lambda x: -jnp.sum(x**2), dim=2)
    calibrate(KEY, model.simulate, 2, fit=with_steps(5), record=path)
    before = path.read_bytes()
    simulators = {
        "target": lambda key: (model.simulate(key)[0], other),
        "prior": lambda key: ({"x": 2 * model.simulate(key)[0]["x"]}, TARGET),
        "names": lambda key: ({"w": model.simulate(key)[0]["x"]}, TARGET),
    }
    cases = [(simulate, with_steps(5)) for simulate in simulators.values()]
    cases += [(model.simulate, with_steps(6)), (model.simulate, lambda key, target: None)]
    for simulate, fit in cases:
        with pytest.raises(ValueError, match=r"record.jsonl belongs to another model.*--out"):
            calibrate(KEY, simulate, 3, fit=fit, record=path)
    assert path.read_bytes() == before
    assert model.calls == 2


def test_a_record_without_a_fingerprint_is_refused(tmp_path):
    path, model = tmp_path / "record.jsonl", Model()
    run(model, 2, record=path)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps({**one, "fingerprint": ""}) + "\n" for one in lines))
    with pytest.raises(ValueError, match="belongs to another model, other data or other settings"):
        run(model, 2, record=path)


def test_data_and_numbers_change_the_fingerprint(tmp_path):
    """Covariates count, and so does a number that the fit closes over."""

    def line(x, y):
        numpyro.sample("y", dist.Normal(numpyro.sample("a", dist.Normal(0, 1)) * x, 1), obs=y)

    def fit(steps):
        return lambda key, target: steps

    def found(x, steps):
        simulate = simulate_numpyro(line, x, jnp.zeros(3))
        return _fingerprint(KEY, simulate, fit(steps))

    x = jnp.arange(3.0)
    assert found(x, 5) == found(x, 5)
    assert len({found(x, 5), found(x + 1, 5), found(x, 6), found(x, None)}) == 4


@pytest.mark.slow
def test_a_fingerprint_is_the_same_in_every_process():
    code = (
        f"import jax, numpyro, numpyro.distributions as dist\n{COMMAND_MODEL}"
        + """
import ksivi.calibration as c, ksivi.calibration._calibrate as at, functools
fit = functools.partial(lambda key, target, n: n in {"a", "b", "c"}, n="a")
simulate = c.simulate_numpyro(line, jax.numpy.zeros(3))
print(at._fingerprint(jax.random.key(0), simulate, fit))
"""
    )
    say = lambda: subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)  # noqa: E731
    assert say().stdout == say().stdout != b""


@pytest.mark.parametrize(
    "fault",
    [
        {"ranks": {}, "shares": {}},
        {"ranks": {"x[0]": 100, "x[1]": 0}},
        {"shares": {"x[0]": 1.5, "x[1]": 0.5}},
        {"shares": {"x[0]": None, "x[1]": 0.5}},
        {"shares": {"x[0]": float("nan"), "x[1]": 0.5}},
        {"shares": {"x[0]": 0.5}},
        None,
    ],
)
@pytest.mark.parametrize("end", ["\n", ""])
def test_a_complete_line_that_is_wrong_is_refused_and_kept(tmp_path, fault, end):
    path, model = tmp_path / "record.jsonl", Model()
    run(model, 2, record=path)
    first, last = path.read_text().splitlines()
    wrong = "my notes" if fault is None else json.dumps({**json.loads(last), **fault})
    path.write_text(f"{first}\n{wrong}{end}")
    with pytest.raises(ValueError, match=r"replications, but line 2 of .*record.jsonl is not one"):
        run(model, 2, record=path)
    assert path.read_text() == f"{first}\n{wrong}{end}"


def test_half_a_line_that_ends_with_a_newline_is_kept(tmp_path):
    path, model = tmp_path / "record.jsonl", Model()
    run(model, 2, record=path)
    path.write_text(path.read_text()[:-30] + "\n")
    before = path.read_bytes()
    with pytest.raises(ValueError, match="but line 2 of"):
        run(model, 2, record=path)
    assert path.read_bytes() == before


@pytest.mark.slow
def test_ctrl_c_in_the_command_discards_the_replication_and_the_same_command_goes_on(tmp_path):
    model, out = tmp_path / "model.py", tmp_path / "out"
    model.write_text(COMMAND_MODEL)
    (tmp_path / "y.json").write_text('{"y": [1.5, 2.5, 3.5]}')
    code = "import sys; from ksivi.cli import main; sys.argv[0] = 'ksivi'; main()"
    command = [sys.executable, "-c", code, "calibrate", f"{model}:line", "--out", str(out)]
    command += ["--data", str(tmp_path / "y.json"), "--replications", "2", "--steps", "300"]
    lines = lambda: (out / "replications.jsonl").read_text().splitlines()  # noqa: E731
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    next(line for line in process.stderr if line.startswith("1 of 2: "))
    time.sleep(0.3)  # a fit takes about a second
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=300)[1]
    assert process.returncode == 130, said
    assert "run the same command again to continue" in " ".join(said.split())
    first = lines()
    assert len(first) == 1
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode in (0, 3), done.stderr
    assert lines()[:1] == first
    assert [json.loads(line)["index"] for line in lines()] == [0, 1]
    assert not any("interrupted" in line for line in lines())


COMMAND_MODEL = """
import numpyro, numpyro.distributions as dist

def line(y):
    numpyro.sample("y", dist.Normal(numpyro.sample("a", dist.Normal(0, 1)), 1), obs=y)
"""


def test_bad_arguments_are_named():
    model = Model()
    with pytest.raises(ValueError, match="num_replications must be"):
        run(model, 1)
    with pytest.raises(ValueError, match="simulate must be"):
        calibrate(KEY, None, 5)
    with pytest.raises(
        ValueError, match="simulate must return a value for every parameter, but x is missing"
    ):
        calibrate(KEY, lambda key: ({"y": 0}, model.simulate(key)[1]), 5, fit=model.fit)
    with pytest.raises(
        ValueError, match=r"simulate must return x with the shape \(2,\) of a draw, got \(3,\)"
    ):
        calibrate(KEY, lambda key: ({"x": jnp.zeros(3)}, model.simulate(key)[1]), 5, fit=model.fit)


def groups(y):
    mean = numpyro.sample("mean", dist.Normal(1, 2))
    spread = numpyro.sample("spread", dist.HalfNormal(1))
    numpyro.sample("y", dist.Normal(mean, spread), obs=y)


def test_truths_come_from_the_prior_and_data_from_the_truths():
    simulate = simulate_numpyro(groups, jnp.zeros(50))
    pairs = [simulate(key) for key in jax.random.split(KEY, 200)]
    truths = {name: np.array([truth[name] for truth, _ in pairs]) for name in ("mean", "spread")}
    assert abs(truths["mean"].mean() - 1) < 4 * 2 / np.sqrt(200)
    assert np.all(truths["spread"] > 0)
    data = np.array([target.model.observed()["y"] for _, target in pairs])
    z = (data - truths["mean"][:, None]) / truths["spread"][:, None]
    assert abs(z.mean()) < 4 / np.sqrt(z.size)
    assert abs(z.std() - 1) < 0.05


def test_new_data_are_the_same_program():
    simulate = simulate_numpyro(groups, jnp.zeros(5))
    first, second = (simulate(key)[1] for key in jax.random.split(KEY, 2))
    assert jax.tree.structure(first) == jax.tree.structure(second)
    x = jnp.array([0.3, -0.2])
    assert first.log_density(x) != second.log_density(x)


def test_a_model_without_data_cannot_be_simulated():
    with pytest.raises(ValueError, match="model must have observed sites"):
        simulate_numpyro(lambda: numpyro.sample("a", dist.Normal(0, 1)))


def test_the_figure_has_one_panel_per_parameter(tmp_path):
    figure = rank_histograms(run(Model(width=0.6), 40))
    titles = [axis.get_title() for axis in figure.axes]
    assert titles[0].startswith("x[0], p = ")
    assert titles[2] == "coverage, all parameters"
