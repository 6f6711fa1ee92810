"""Corrected draws: what `refine` costs, and the verdict on them, which is not that of the answer."""

import json

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

import ksivi
from known import COVARIANCE, KEY, MEAN, family_of, gaussian
from ksivi._core.mixtures import Mixture
from ksivi.auto import _answers, _fit, _refine
from ksivi.auto._answers import sampler_again
from ksivi.auto._refine import refined_again
from ksivi.auto._start import start_from
from ksivi.families import GaussianMixture
from ksivi.results import Code, Status
from ksivi.targets import Evaluator


@pytest.fixture(scope="module")
def narrow():
    """A fit to a Gaussian whose widths are half of the right ones, and that says so."""
    of = gaussian()
    fit = ksivi.fit(KEY, of, progress=False)
    root = np.linalg.cholesky(COVARIANCE) / 2
    mixture = Mixture(np.ones(1), np.asarray(MEAN)[None], root[None])
    posterior = ksivi.Posterior.of(GaussianMixture.of(mixture), of)
    moved = Code.CHAINS_MOVE.doubt("chains of HMC move the draws", (0, 1, 2))
    status = Status.of_doubts("not trusted", [moved])
    return ksivi.Fit(posterior, status, False, fit.diagnostics, fit.history, fit.cost, None), of


def widths(draws):
    return np.log(np.asarray(draws).std(axis=0) / np.sqrt(np.diag(COVARIANCE)))


def forbidden(*_):
    raise AssertionError("a search or a training began")


@pytest.mark.parametrize("refine", ["hmc", "importance"])
def test_an_earlier_fit_is_refined_and_nothing_is_fitted_again(refine, narrow, monkeypatch):
    fit, target = narrow
    for module, name in ((_fit, "start_from"), (_fit, "find_start"), (_answers, "train_runs")):
        monkeypatch.setattr(module, name, forbidden)
    found = ksivi.fit(KEY, target, init=fit, refine=refine, progress=False)
    assert eqx.tree_equal(found.posterior.family, fit.posterior.family)
    assert found.status == fit.status
    assert not found.trusted
    assert found.cost.steps == 0
    assert np.abs(widths(found.posterior.sample(KEY, 4_000)) - np.log(0.5)).max() < 0.1
    assert np.abs(widths(found.refined.posterior.sample(KEY, 1_000))).max() < 0.15


def test_corrected_draws_have_a_verdict_of_their_own(narrow, monkeypatch):
    fit, target = narrow
    found = ksivi.fit(KEY, target, init=fit, refine="hmc", progress=False)
    corrected = found.refined
    assert corrected.trusted, corrected.status
    assert found.explain().startswith("The refined draws are trusted: use fit.refined.posterior.")
    assert 'refine="hmc"' not in found.explain()
    assert corrected.trusted_for("x")
    assert corrected.trusted_for(["x[0]", "x[1]"])
    assert corrected.in_numbers().refine == "hmc"
    assert corrected.num_transitions >= 40
    assert corrected.effective >= 1_000
    table = corrected.table()
    assert all(row.trusted for row in table)
    assert max(row.width_off.at_least for row in table) < 0.1
    monkeypatch.setenv("COLUMNS", "100")
    shown = " ".join(str(found).split())
    assert "trusted no (the draws before the refinement)" in shown
    assert f"refined draws {len(corrected.posterior.family.points):,} draws" in shown
    assert "the corrected draws passed all checks" in shown


def test_draws_that_chains_have_not_corrected_are_not_trusted(narrow):
    """Chains stay in one of two modes: they cannot bring the other one back."""

    def log_density(x):
        return jnp.logaddexp(*(-0.5 * jnp.sum((x - m) ** 2) for m in (6, -6)))

    two = ksivi.Target(log_density, dim=3)
    fit = narrow[0]
    means = np.array([[6.0] * 3, [-6.0] * 3])
    uneven = Mixture(np.array([0.9, 0.1]), means, np.stack([np.eye(3)] * 2))
    posterior = ksivi.Posterior.of(GaussianMixture.of(uneven), two)
    earlier = ksivi.Fit(posterior, fit.status, False, fit.diagnostics, {}, fit.cost, None)
    by = {}
    for refine in ("hmc", "importance"):
        rng = np.random.default_rng(0)
        by[refine] = refined_again(rng, Evaluator(two), refine, earlier, 0.0).refined
    assert not by["hmc"].trusted
    assert "weights-move" in by["hmc"].status.codes
    assert by["importance"].trusted, by["importance"].status


def test_doubts_that_no_correction_removes_stay(narrow):
    fit, target = narrow
    doubt = Code.IMPROPER.doubt("the posterior may be improper")
    status = Status.of_doubts("not trusted", [*fit.status.doubts, doubt])
    earlier = ksivi.Fit(fit.posterior, status, False, fit.diagnostics, fit.history, fit.cost, None)
    found = ksivi.fit(KEY, target, init=earlier, refine="hmc", progress=False)
    assert found.refined.status.codes == ("improper",)
    assert not found.refined.trusted_for("x[0]")
    assert not found.refined.trusted


STOPPED = "there are no corrected draws: the refinement was stopped by the user"


@pytest.mark.parametrize("stage", ["measure", "refined"])
def test_ctrl_c_during_a_refinement_returns_the_earlier_fit(stage, narrow, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    fit, target = narrow
    monkeypatch.setattr(_refine, stage, stop)
    found = ksivi.fit(KEY, target, init=fit, refine="hmc", progress=False)
    assert found.refined is None
    assert found.status.codes == (*fit.status.codes, "not-refined")
    assert str(found.status) == f"{fit.status}; {STOPPED}"
    assert 'Ask for them again, fit = ksivi.fit(key, target, init=fit, refine="hmc")' in " ".join(
        found.explain().split()
    )
    assert eqx.tree_equal(found.posterior.family, fit.posterior.family)


def test_a_refinement_that_was_stopped_leaves_a_trusted_fit_and_can_be_repeated(monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(_refine, "_settled", stop)
        fit = ksivi.fit(KEY, gaussian(), refine="hmc", progress=False)
    assert fit.trusted
    assert fit.refined is None
    assert fit.status.codes == ("not-refined",)
    assert str(fit.status).endswith(STOPPED)
    again = ksivi.fit(KEY, gaussian(), init=fit, refine="hmc", progress=False)
    assert again.refined.trusted
    assert again.status.codes == ()
    assert "corrected" not in str(again.status)


def test_draws_that_cannot_be_checked_are_not_refined_and_the_status_says_so(narrow, monkeypatch):
    def infinite(*_):
        raise ValueError("not finite")

    fit, target = narrow
    monkeypatch.setattr(_refine, "measure", infinite)
    found = ksivi.fit(KEY, target, init=fit, refine="importance", progress=False)
    assert found.refined is None
    why = "there are no corrected draws: the draws of the answer could not be checked"
    assert str(found.status) == f"{fit.status}; {why}"


def test_corrected_draws_explain_their_own_doubts(narrow):
    fit, target = narrow
    found = ksivi.fit(KEY, target, init=fit, refine="hmc", progress=False)
    assert found.refined.explain().startswith("converged: the corrected draws passed all checks")
    moved = found.refined.with_doubts([Code.CHAINS_MOVE.doubt("they still move", (0,))])
    said = " ".join(moved.explain().split())
    assert "found they still move about x[0] note fit.refined.table() shows" in said
    assert 'refine="hmc"' not in said  # they come from there
    assert "refined draws are trusted" not in said


def test_a_record_says_what_is_known_of_corrected_draws(narrow, tmp_path):
    fit, target = narrow
    found = ksivi.fit(KEY, target, init=fit, refine="importance", progress=False)
    ksivi.Record.of(found).write(tmp_path)
    read = ksivi.read_record(tmp_path)
    assert read.diagnostics.refined == found.refined.in_numbers()
    assert read.diagnostics.refined.by.startswith("importance")
    assert read.diagnostics.refined.num_transitions == 0
    facts = json.loads((tmp_path / "fit.json").read_text())["diagnostics"]["refined"]
    assert facts["trusted"] == found.refined.trusted
    assert facts["verdict"] == str(found.refined.status)
    page = ksivi.report.run_page(read)
    assert "refined draws" in page
    assert "before the correction" in page


def test_another_target_is_fitted_and_then_refined(narrow):
    fit, _ = narrow
    other = ksivi.Target(lambda x: -0.5 * jnp.sum((x - 1) ** 2), dim=3)
    found = ksivi.fit(KEY, other, init=fit, refine="hmc", progress=False)
    assert found.trusted, found.status
    assert found.refined.trusted, found.refined.status
    assert np.abs(np.asarray(found.posterior.sample(KEY, 4_000)).mean(axis=0) - 1).max() < 0.1


def test_a_doubt_about_the_log_density_is_about_corrected_draws_too(narrow):
    from ksivi.auto._amended import with_doubt

    fit, target = narrow
    found = ksivi.fit(KEY, target, init=fit, refine="hmc", progress=False)
    doubted = with_doubt(found, Code.ROWS_ERROR.doubt("the log density is off"))
    assert doubted.refined.status.codes == ("rows-error",)
    assert not doubted.diagnostics.refined.trusted


@pytest.mark.parametrize(("scale", "is_kept"), [(1.0, True), (0.5, False)])
def test_an_earlier_sampler_that_passes_is_not_trained_again(scale, is_kept):
    of = gaussian()
    rng, evaluate = np.random.default_rng(0), Evaluator(of)
    sampler = ksivi.Posterior.of(family_of(MEAN, scale * np.asarray(COVARIANCE)), of)
    start = start_from(rng, evaluate, sampler)
    answer = sampler_again(rng, evaluate, sampler, start)
    assert (answer is not None) == is_kept
    if answer is not None:
        assert answer.is_final
        assert answer.posterior.family is sampler.family
