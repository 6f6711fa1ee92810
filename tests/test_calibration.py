"""Calibration of exact, narrow and shifted posteriors, with known verdicts."""

import functools
import itertools
import json
import re
import signal
import subprocess
import sys
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import scipy.stats

import ksivi
from ksivi.calibration import calibrate, simulate_around, simulate_numpyro
from ksivi.calibration._calibrate import _fingerprint
from ksivi.families import Empirical
from ksivi.report._ranks import rank_histograms
from ksivi.targets import given_both
from ksivi.training import _progress

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

    found = calibrate(KEY, model.simulate, 6, fit=interrupted, record=path)
    assert len(path.read_text().splitlines()) == 3
    assert found.interrupted
    assert [one.index for one in found.replications] == [0, 1, 2]
    assert "3 fits, then interrupted, 3 of them trusted" in str(found)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    again = calibrate(KEY, model.simulate, 6, fit=interrupted, record=path)
    assert not again.interrupted
    np.testing.assert_array_equal(again.ranks, run(Model(), 6).ranks)


def test_an_interrupt_before_the_second_fit_is_raised():
    """A single fit has no coverage with an error."""
    model = Model()

    def fit(key, target):
        if model.calls == 1:
            signal.raise_signal(signal.SIGINT)
        return model.fit(key, target)

    with pytest.raises(KeyboardInterrupt):
        calibrate(KEY, model.simulate, 6, fit=fit)


def test_progress_is_shown_in_lines_and_can_be_turned_off(capsys, monkeypatch):
    model = Model()
    run(model, 3)
    assert capsys.readouterr().err.splitlines()[-1].endswith("s] 3 of 3 fits")
    run(model, 3, progress=False)
    assert capsys.readouterr().err == ""
    clock = itertools.count(step=6.0)  # six seconds between two looks at the clock
    monkeypatch.setattr(_progress.time, "perf_counter", lambda: next(clock))
    run(model, 3)
    first = capsys.readouterr().err.splitlines()[1]
    assert re.fullmatch(r"\[.*s\] 1 of 3 fits, about \d+ s left", first)


def test_a_bar_counts_the_fits(monkeypatch):
    pytest.importorskip("rich")
    monkeypatch.setattr(_progress.sys.stderr, "isatty", lambda: True, raising=False)
    bar = _progress.stages(None, "calibrate")
    try:
        bar.counted(5, 200, "fits", 60.0)
        (task,) = bar._display.tasks
        assert (task.description, task.completed, task.total) == ("calibrate", 5, 200)
    finally:
        bar.close()


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


def command_in(folder, *options):
    """The folder of the results, and `ksivi calibrate` on a line and three observations."""
    model, data, out = folder / "model.py", folder / "y.json", folder / "out"
    model.write_text(COMMAND_MODEL)
    data.write_text('{"y": [1.5, 2.5, 3.5]}')
    code = "import sys; from ksivi.cli import main; sys.argv[0] = 'ksivi'; main()"
    command = [sys.executable, "-c", code, "calibrate", f"{model}:line", "--out", str(out)]
    return out, [*command, "--data", str(data), *options]


@pytest.mark.slow
def test_ctrl_c_in_the_command_discards_the_replication_and_the_same_command_goes_on(tmp_path):
    out, command = command_in(tmp_path, "--replications", "2", "--steps", "300")
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


@pytest.mark.slow
def test_the_command_calibrates_around_the_data(tmp_path):
    """The same command finds its replications again, and the prior's replications are others."""
    out, command = command_in(tmp_path, "--replications", "3", "--json")
    run = lambda *more: subprocess.run(  # noqa: E731
        [*command, *more], capture_output=True, text=True, timeout=300
    )
    first = run("--around-data")
    assert first.returncode in (0, 3), first.stderr
    assert json.loads(first.stdout)["replications"] == 3
    assert "the data: converged" in first.stderr
    assert (out / "ranks.png").exists()
    lines = (out / "replications.jsonl").read_text()
    again = run("--around-data")
    assert (again.returncode, again.stdout) == (first.returncode, first.stdout), again.stderr
    assert (out / "replications.jsonl").read_text() == lines
    other = run()
    assert other.returncode == 2
    assert "belongs to another model, other data or other settings" in " ".join(
        other.stderr.split()
    )


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


def test_a_subsampled_plate_is_simulated_on_all_of_its_rows():
    """The model of the docstring of `from_numpyro`."""

    def model(x, y):
        slope = numpyro.sample("slope", dist.Normal(0, 1))
        with numpyro.plate("rows", len(x), subsample_size=10) as rows:
            numpyro.sample("y", dist.Normal(slope * x[rows], 1.0), obs=y[rows])

    x = jnp.linspace(-1, 1, 100)
    truth, target = simulate_numpyro(model, x, x)(KEY)
    y = target.model.observed()["y"]
    assert y.shape == (100,)
    noise = np.asarray(y - truth["slope"] * x)
    assert abs(noise.std() - 1) < 4 / np.sqrt(2 * 100)
    exact = lambda slope: np.sum(scipy.stats.norm.logpdf(np.asarray(y), slope * np.asarray(x)))  # noqa: E731
    change = target.log_density(jnp.ones(1)) - target.log_density(jnp.zeros(1))
    assert float(change) == pytest.approx(exact(1.0) - exact(0.0) - 0.5, rel=1e-4)


def test_a_factor_is_left_out_of_the_simulation_with_a_warning():
    def weighed(y):
        mean = numpyro.sample("mean", dist.Normal(0, 1))
        numpyro.factor("weight", -(mean**4))
        numpyro.sample("y", dist.Normal(mean, 1), obs=y)

    with pytest.warns(UserWarning, match="the factor 'weight' is part of the log density") as said:
        simulate = simulate_numpyro(weighed, jnp.zeros(3))
    assert said[0].filename == __file__
    assert set(simulate(KEY)[0]) == {"mean"}


def test_an_improper_prior_cannot_be_simulated():
    def flat(y):
        mean = numpyro.sample("mean", dist.ImproperUniform(dist.constraints.real, (), ()))
        numpyro.sample("y", dist.Normal(mean, 1), obs=y)

    with pytest.raises(ValueError, match=r"the prior of 'mean' is improper .*: give it a dist"):
        simulate_numpyro(flat, jnp.zeros(3))


# Posterior calibration: around one data set.

X = jnp.linspace(-1, 1, 15)
Y = 0.5 + X + 0.5 * jnp.asarray(np.random.default_rng(3).normal(size=15), jnp.float32)


def line(x, y):
    """A conjugate regression, whose posterior given any number of data sets is Gaussian."""
    a, b = numpyro.sample("a", dist.Normal(0, 1)), numpyro.sample("b", dist.Normal(0, 2))
    numpyro.sample("y", dist.Normal(a + b * x, 0.5), obs=y)


LINE = ksivi.from_numpyro(line, X, y=Y)


@eqx.filter_jit
def moments(target):
    """The exact mean and covariance of a Gaussian target, by one step of Newton's method."""
    zero = jnp.zeros(target.dim)
    covariance = -jnp.linalg.inv(jax.hessian(target.log_density)(zero))
    return covariance @ target.score(zero), covariance


def exact(key, target, width=1.0):
    """Exact draws of a Gaussian target, or draws that are too narrow."""
    mean, covariance = moments(target)
    noise = jax.random.normal(key, (2_000, target.dim)) @ jnp.linalg.cholesky(covariance).T
    posterior = ksivi.Posterior.of(Empirical(mean[None] + width * noise), target)
    status = ksivi.Status("converged", "exact")
    return ksivi.Fit(posterior, status, True, {}, {}, ksivi.Cost(0.0, 0, 0), None)


def around(width=1.0, width_first=1.0, count=250):
    """Ranks of parameters from the posterior of the data among the fits of both data sets."""
    first = exact(jax.random.key(5), LINE, width_first)
    fit = functools.partial(exact, width=width)
    return calibrate(KEY, simulate_around(first.posterior), count, fit=fit, progress=False)


def test_exact_posteriors_are_calibrated_around_the_data():
    found = around()
    assert found.names == ["a", "b"]
    assert found.rejected() == []
    for level in found.levels:
        share, error = found.coverage(level)
        assert abs(share - level) < 4 * error


@pytest.mark.parametrize("widths", [(0.6, 1.0), (0.6, 0.6)])
def test_narrow_posteriors_are_detected_around_the_data(widths):
    """Also if the posterior that the parameters come from is as narrow as the others."""
    found = around(*widths)
    assert found.rejected() == ["a", "b"]
    share, error = found.coverage(0.95)
    assert share < 0.95 - 4 * error


def test_the_target_around_the_data_is_that_of_both_data_sets():
    simulate = simulate_around(exact(KEY, LINE).posterior)
    target = simulate(jax.random.key(7))[1]
    again = target.density.log_density.data["y"]
    assert again.shape == (15,)
    both = ksivi.from_numpyro(line, jnp.tile(X, 2), y=jnp.concatenate([Y, again]))
    for x in jax.random.normal(KEY, (3, 2)):
        np.testing.assert_allclose(target.log_density(x), both.log_density(x), rtol=1e-5)
        np.testing.assert_allclose(target.score(x), both.score(x), rtol=1e-4, atol=1e-3)


def test_data_around_the_posterior_come_from_its_draws():
    mean, covariance = moments(LINE)
    simulate, count = simulate_around(exact(KEY, LINE).posterior), 300
    pairs = [simulate(key) for key in jax.random.split(jax.random.key(8), count)]
    truths = np.array([[truth["a"], truth["b"]] for truth, _ in pairs])
    widths = np.sqrt(np.diag(covariance))
    # 2,000 stored draws stand for the posterior, so their own mean is not exact either.
    error = widths * np.sqrt(1 / count + 1 / 2_000)
    assert np.all(np.abs(truths.mean(axis=0) - mean) < 4 * error)
    assert np.all(np.abs(truths.std(axis=0) / widths - 1) < 4 / np.sqrt(2 * count))
    data = np.array([target.density.log_density.data["y"] for _, target in pairs])
    z = (data - truths[:, :1] - truths[:, 1:] * np.asarray(X)) / 0.5
    assert abs(z.mean()) < 4 / np.sqrt(z.size)
    assert abs(z.std() - 1) < 4 / np.sqrt(2 * z.size)


def rates(n, y):
    """The rows of a minibatch weigh more, the first row is masked, and sites have plates."""
    rate = numpyro.sample("rate", dist.Gamma(2, 1))
    with (
        numpyro.plate("rows", n, subsample_size=4) as rows,
        numpyro.handlers.mask(mask=rows > 0),
        numpyro.handlers.scale(scale=2.0),
    ):
        numpyro.sample("y", dist.Poisson(rate), obs=y[rows])


def test_plates_masks_and_weights_count_in_the_second_data_set_too():
    y, again = jnp.array([1, 0, 3, 2, 1, 4]), jnp.array([9, 2, 2, 0, 1, 3])
    target = ksivi.from_numpyro(rates, 6, y)
    both = given_both(target, {"y": again})
    u = jnp.array([0.3])
    further = 2 * scipy.stats.poisson.logpmf(np.asarray(again)[1:], np.exp(0.3)).sum()
    np.testing.assert_allclose(both.log_density(u) - target.log_density(u), further, rtol=1e-5)


def test_the_own_target_of_both_data_sets_can_be_given():
    first = exact(KEY, LINE).posterior

    def target_of(key, truth):
        again = truth["a"] + truth["b"] * X + 0.5 * jax.random.normal(key, (15,))
        return ksivi.from_numpyro(line, jnp.tile(X, 2), y=jnp.concatenate([Y, again]))

    found = calibrate(KEY, simulate_around(first, target_of), 20, fit=exact, progress=False)
    assert found.names == ["a", "b"]
    assert len(found.replications) == 20


def test_bad_arguments_of_posterior_calibration_are_named():
    fit = exact(KEY, LINE)
    with pytest.raises(ValueError, match=r"posterior must be a ksivi.Posterior, such as fit.post"):
        simulate_around(fit)
    with pytest.raises(ValueError, match="posterior must come from a fit of a NumPyro model, or t"):
        simulate_around(exact(KEY, TARGET).posterior)
    with pytest.raises(ValueError, match="target_of must be a function"):
        simulate_around(fit.posterior, 3)
    with pytest.raises(ValueError, match=r"target_of failed: RuntimeError: no data"):
        simulate_around(fit.posterior, no_data)(KEY)


def no_data(key, truth):
    raise RuntimeError("no data")


@pytest.mark.slow
def test_fits_are_calibrated_around_the_data():
    """`ksivi.fit` itself, through the default target of both data sets."""
    first = ksivi.fit(jax.random.key(1), LINE, progress=False)
    found = calibrate(KEY, simulate_around(first.posterior), 40, progress=False)
    assert found.rejected() == []
    share, error = found.coverage(0.8)
    assert abs(share - 0.8) < 4 * error


def test_the_figure_has_one_panel_per_parameter(tmp_path):
    figure = rank_histograms(run(Model(width=0.6), 40))
    titles = [axis.get_title() for axis in figure.axes]
    assert titles[0].startswith("x[0], p = ")
    assert titles[2] == "coverage, all parameters"
