"""Comparison of models, against evidences and cross-validation in closed form."""

import dataclasses
import math
import sys

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats

import ksivi
from ksivi.diagnostics import ComparedModel, ModelComparison, compare_models
from ksivi.diagnostics._compare_models import _order, _probability
from ksivi.families import Empirical

KEY = jax.random.key(0)
RNG = np.random.default_rng(2)
X = np.linspace(-1, 1, 25)
Y = 0.4 + 0.9 * X + 0.5 * RNG.normal(size=25)
NOISE, PRIOR = 0.5, 1.0
DESIGNS = {
    "constant": np.ones((25, 1)),
    "linear": np.column_stack([np.ones(25), X]),
    "quadratic": np.column_stack([np.ones(25), X, X**2]),
}


def regression(design, y):
    """Conjugate: the evidence and the leave-one-out densities are Gaussian."""
    slopes = numpyro.sample("b", dist.Normal(0, PRIOR).expand([design.shape[1]]).to_event(1))
    numpyro.sample("y", dist.Normal(design @ slopes, NOISE), obs=y)


def exact_evidence(design, y=Y):
    covariance = NOISE**2 * np.eye(len(y)) + PRIOR**2 * design @ design.T
    return stats.multivariate_normal(np.zeros(len(y)), covariance).logpdf(y)


def exact_elpd(design):
    """log p(yᵢ | the others) of each observation: the evidence divided by that of the others."""
    others = [np.delete(np.arange(len(Y)), i) for i in range(len(Y))]
    return exact_evidence(design) - np.array(
        [exact_evidence(design[rest], Y[rest]) for rest in others]
    )


def fit_of(target, width=1.1):
    """The exact Gaussian with another width, so that importance weights differ."""
    zero = jnp.zeros(target.dim)
    covariance = -jnp.linalg.inv(jax.hessian(target.log_density)(zero))
    mean, root = covariance @ target.score(zero), jnp.linalg.cholesky(covariance)
    family = ksivi.families.GaussianMixture([1.0], mean[None], width * root[None])
    posterior = ksivi.Posterior.of(family, target)
    return fitted(posterior)


def fitted(posterior, trusted=True):
    status = ksivi.Status("converged" if trusted else "not trusted", "by construction")
    diagnostics = ksivi.results.TrainDiagnostics()
    return ksivi.Fit(posterior, status, trusted, diagnostics, {}, ksivi.Cost(0.0, 0, 0), None)


def targets():
    return {
        name: ksivi.from_numpyro(regression, jnp.asarray(design, jnp.float32), jnp.asarray(Y))
        for name, design in DESIGNS.items()
    }


@pytest.fixture(scope="module")
def fits():
    return {name: fit_of(target) for name, target in targets().items()}


@pytest.fixture(scope="module")
def found(fits):
    pytest.importorskip("arviz", reason="ArviZ is not installed")
    return compare_models(jax.random.key(1), fits)


def test_the_evidence_is_the_exact_one(found):
    for name, design in DESIGNS.items():
        one = found[name]
        assert 1e-4 < one.log_evidence_error < 0.05
        assert abs(one.log_evidence - exact_evidence(design)) < 4 * one.log_evidence_error


def test_probabilities_are_those_of_the_exact_evidences(found):
    values = np.array([exact_evidence(design) for design in DESIGNS.values()])
    exact = np.exp(values - values.max()) / np.exp(values - values.max()).sum()
    for name, probability in zip(DESIGNS, exact, strict=True):
        one = found[name]
        assert one.probability_low < one.probability < one.probability_high
        # 95% on the scale of log odds are two standard errors; four are allowed
        log_odds, true = (math.log(p / (1 - p)) for p in (one.probability, probability))
        two = math.log(one.probability_high / (1 - one.probability_high)) - log_odds
        assert abs(log_odds - true) < 2 * two
    assert sum(one.probability for one in found.models) == pytest.approx(1)


def test_the_best_model_is_first_and_differences_are_to_it(found):
    order = sorted(DESIGNS, key=lambda name: -exact_evidence(DESIGNS[name]))
    assert [one.name for one in found.models] == order
    best, second = found.models[:2]
    assert (best.evidence_difference, best.evidence_difference_error) == (0.0, 0.0)
    assert second.evidence_difference == second.log_evidence - best.log_evidence
    assert second.evidence_difference_error == pytest.approx(
        math.hypot(second.log_evidence_error, best.log_evidence_error)
    )


def test_elpd_is_that_of_leaving_out_each_observation():
    """By exact draws, with the Monte Carlo error from eight repetitions."""
    pytest.importorskip("arviz", reason="ArviZ is not installed")
    exact = {name: exact_elpd(design) for name, design in DESIGNS.items()}
    best = max(exact, key=lambda name: exact[name].sum())
    fits = {name: fit_of(target, width=1.0) for name, target in targets().items()}
    found = [compare_models(key, fits, num_draws=2_000) for key in jax.random.split(KEY, 8)]
    # The noise of single elpds adds to the spread of differences, so many draws.
    precise = compare_models(KEY, fits, num_draws=40_000)
    for name in DESIGNS:
        one, difference = precise[name], exact[name] - exact[best]
        for number, true in (("elpd", exact[name]), ("elpd_difference", difference)):
            values = np.array([getattr(some[name], number) for some in found])
            error = values.std(ddof=1) / np.sqrt(len(values))
            assert abs(values.mean() - true.sum()) < 5 * error + 1e-6  # five: the error has 7 dof
        assert one.elpd_error == pytest.approx(5 * exact[name].std(), rel=0.1)
        assert one.elpd_difference_error == pytest.approx(5 * difference.std(), rel=0.1, abs=1e-6)
        assert one.num_bad_khat == 0


def test_the_interval_of_a_probability_covers():
    """95% of intervals contain the true probability, over noise of the size of the errors."""
    true, errors, covered = np.array([-10.0, -10.7, -12.0]), np.array([0.2, 0.1, 0.4]), 0
    exact = np.exp(true) / np.exp(true).sum()
    rng, count = np.random.default_rng(0), 2_000
    for _ in range(count):
        _, low, high = _probability(true + errors * rng.normal(size=3), errors, 1)
        covered += low < exact[1] < high
    assert abs(covered / count - 0.95) < 4 * math.sqrt(0.95 * 0.05 / count)


def test_a_fit_has_its_evidence_already(fits):
    """Of `ksivi.fit`, the weights of the checks are used, and rows that were left out add an error."""
    known = ksivi.results.FitDiagnostics(
        log_evidence=-3.0, log_evidence_error=0.3, wide_pareto_khat=0.9, pareto_khat_limit=0.7
    )
    some = dataclasses.replace(known, num_rows=10, num_all_rows=25, rows_error=0.4)
    given = {
        "known": dataclasses.replace(fits["linear"], diagnostics=known),
        "some": dataclasses.replace(fits["linear"], diagnostics=some),
    }
    found = compare_models(KEY, given, loo=False)
    assert (found["known"].log_evidence, found["known"].log_evidence_error) == (-3.0, 0.3)
    assert found["some"].log_evidence_error == pytest.approx(0.5)
    assert not found["known"].evidence_is_reliable
    assert "the k-hat of its weights is 0.90, and at most 0.70 is good" in str(found)


def test_doubted_fits_are_marked(fits):
    doubted = dataclasses.replace(fits["linear"], trusted=False)
    doubted = dataclasses.replace(doubted, status=ksivi.Status("not trusted", "HMC moves it"))
    lines = str(compare_models(KEY, {**fits, "linear": doubted}, loo=False)).splitlines()
    assert lines[0].split() == ["log", "evidence", "difference", "probability"]
    assert lines[-1] == "! linear: not trusted: HMC moves it"
    (row,) = (line for line in lines[:-1] if "linear" in line)
    assert row.startswith("! linear")
    assert sum(line.startswith("! ") for line in lines) == 2
    assert len({line.index("±") for line in lines[1:4]}) == 1


def test_stored_draws_have_no_evidence_but_an_elpd(fits, found):
    target = fits["linear"].posterior.target
    draws = fits["linear"].posterior.sample(KEY, 4_000)
    chains = fitted(ksivi.Posterior.of(Empirical(draws), target))
    other = compare_models(KEY, {"chains": chains, "constant": fits["constant"]})
    one = other["chains"]
    assert math.isnan(one.log_evidence)
    assert math.isnan(other["constant"].probability)
    assert one.elpd == pytest.approx(found["linear"].elpd, abs=0.2)
    assert [one.name for one in other.models] == ["constant", "chains"]


def test_refined_draws_are_used_for_elpd(fits):
    pytest.importorskip("arviz", reason="ArviZ is not installed")
    target = fits["linear"].posterior.target
    design = DESIGNS["linear"]
    covariance = np.linalg.inv(design.T @ design / NOISE**2 + np.eye(2) / PRIOR**2)
    mean = covariance @ design.T @ Y / NOISE**2
    draws = np.random.default_rng(5).multivariate_normal(mean, covariance, size=8_000)
    exact = ksivi.Posterior.of(Empirical(jnp.asarray(draws, jnp.float32)), target)
    wrong = fitted(ksivi.Posterior.of(ksivi.SemiImplicit.location_scale(2), target))
    refined = dataclasses.replace(wrong, refined=fitted(exact))
    one = compare_models(KEY, {"a": refined, "b": fits["linear"]}, num_draws=8_000)["a"]
    # Exact draws: the error is that of Monte Carlo, √(var / n) of each leave-one-out mean.
    assert abs(one.elpd - exact_elpd(design).sum()) < 0.05


def test_draws_of_chains_count_as_their_effective_number(fits, monkeypatch):
    """PSIS takes more of the largest weights as the tail if fewer draws are independent."""
    seen = []
    module = sys.modules["ksivi.diagnostics._elpd"]
    monkeypatch.setattr(module, "leave_one_out", lambda values, reff: seen.append(reff) or LOO)
    posterior = fits["linear"].posterior
    stored = ksivi.Posterior.of(Empirical(posterior.sample(KEY, 500)), posterior.target)
    known = ksivi.results.ChainDiagnostics(effective_sample_size=50.0)
    chains = dataclasses.replace(fitted(stored), diagnostics=known)
    compare_models(KEY, {"chains": chains, "sampler": fits["linear"], "unknown": fitted(stored)})
    assert seen == pytest.approx([0.1, 1.0, 1.0])


LOO = (np.zeros(25), np.zeros(25), 0.7)


VERDICTS = {
    "both are trusted": (True, True, []),
    "the corrected draws failed": (True, False, []),
    "the correction helped": (False, True, ["the log evidence is from draws with the status not"]),
    "both failed": (
        False,
        False,
        ["the log evidence is from draws", "elpd is from corrected draws with the status not trus"],
    ),
}


@pytest.mark.parametrize("case", VERDICTS)
def test_a_doubt_is_about_the_numbers_of_the_draws_that_failed(fits, case):
    """Corrected draws that failed the checks do not replace draws that passed them."""
    pytest.importorskip("arviz", reason="ArviZ is not installed")
    is_trusted, is_corrected_trusted, doubts = VERDICTS[case]
    posterior = fits["linear"].posterior
    far = ksivi.Posterior.of(Empirical(3 + posterior.sample(KEY, 500)), posterior.target)
    fit = fitted(posterior, is_trusted)
    given = dataclasses.replace(fit, refined=fitted(far, is_corrected_trusted))
    one = compare_models(KEY, {"a": given, "b": fits["linear"]})["a"]
    own = compare_models(KEY, {"a": fit, "b": fits["linear"]})["a"]
    assert (one.elpd == own.elpd) == (case == "the corrected draws failed")
    assert [found.startswith(words) for found, words in zip(one.doubts, doubts, strict=True)] == (
        [True] * len(doubts)
    )
    assert own.doubts == ([] if is_trusted else ["not trusted: by construction"])
    alone = compare_models(KEY, {"a": given, "b": fits["linear"]}, loo=False)["a"]
    assert alone.doubts == own.doubts


def test_several_sites_count_together():
    def model(a, b):
        mean = numpyro.sample("mean", dist.Normal(0, 1))
        numpyro.sample("a", dist.Normal(mean, 1), obs=a)
        numpyro.sample("b", dist.Normal(mean, 2), obs=b)

    def renamed(b, a):
        mean = numpyro.sample("mean", dist.Normal(0, 2))
        numpyro.sample("second", dist.Normal(mean, 2), obs=b)
        numpyro.sample("first", dist.Normal(mean, 1), obs=a)

    pytest.importorskip("arviz", reason="ArviZ is not installed")
    a, b = jnp.array([0.5, 1.0]), jnp.array([[0.1, 0.2], [0.4, 2.0]])
    one, other = ksivi.from_numpyro(model, a, b), ksivi.from_numpyro(renamed, b, a)
    found = compare_models(KEY, {"one": fit_of(one), "other": fit_of(other)})
    sd = np.array([1.0, 1.0, 2.0, 2.0, 2.0, 2.0])
    y = np.array([0.5, 1.0, 0.1, 0.2, 0.4, 2.0])
    whole = lambda rows: stats.multivariate_normal(  # noqa: E731
        np.zeros(len(rows)), np.diag(sd[rows] ** 2) + 1
    ).logpdf(y[rows])
    exact = sum(whole(np.arange(6)) - whole(np.delete(np.arange(6), i)) for i in range(6))
    assert abs(found["one"].elpd - exact) < 0.15
    assert found["one"].log_evidence == pytest.approx(whole(np.arange(6)), abs=0.05)


def test_the_table_converts(found):
    pandas = pytest.importorskip("pandas")
    table = found.to_pandas()
    assert isinstance(table, pandas.DataFrame)
    assert list(table.index) == [one.name for one in found.models]
    assert table.loc["linear", "log_evidence"] == found["linear"].log_evidence
    assert found.to_dict()["linear"]["num_bad_khat"] == 0
    with pytest.raises(KeyError, match="'cubic' is not one of"):
        found["cubic"]


def test_a_table_without_anything_known_has_names():
    some = ModelComparison((ComparedModel("a", True, "converged: yes"),))
    assert str(some).split() == ["a"]


def test_different_data_are_refused(fits):
    other = ksivi.from_numpyro(regression, jnp.asarray(DESIGNS["linear"]), jnp.asarray(Y) + 0.01)
    with pytest.raises(ValueError, match="'linear' and 'moved' have different observed values"):
        compare_models(KEY, {"linear": fits["linear"], "moved": fit_of(other)})
    fewer = ksivi.from_numpyro(regression, jnp.ones((5, 1)), jnp.asarray(Y[:5]))
    with pytest.raises(ValueError, match=r"of the shapes \(25,\) and \(5,\)"):
        compare_models(KEY, {"linear": fits["linear"], "fewer": fit_of(fewer)})

    def rows(n):
        ones = lambda x, y: -0.5 * jnp.sum((y - x[None]) ** 2)  # noqa: E731
        prior = lambda x: -0.5 * jnp.sum(x**2)  # noqa: E731
        return fit_of(ksivi.Target.from_data(prior, ones, jnp.zeros((n, 2)), dim=2))

    with pytest.raises(ValueError, match="'a' has 10 rows and 'b' has 11"):
        compare_models(KEY, {"a": rows(10), "b": rows(11)})
    compare_models(KEY, {"a": rows(10), "b": rows(10)})


def test_bad_arguments_are_named(fits, monkeypatch):
    words = "fits must be a dict of at least two fits by the names of their models"
    for wrong in (None, [], fits["linear"], {"a": fits["linear"]}, {1: fits["linear"], 2: None}):
        with pytest.raises(ValueError, match=words):
            compare_models(KEY, wrong)
    with pytest.raises(ValueError, match=r"fits\['b'\] must be a ksivi.Fit, got 3"):
        compare_models(KEY, {"a": fits["linear"], "b": 3})
    with pytest.raises(ValueError, match="num_draws must be a whole number of at least 100"):
        compare_models(KEY, fits, num_draws=5)
    with pytest.raises(ValueError, match="loo must be True or False"):
        compare_models(KEY, fits, loo=1)
    monkeypatch.setitem(sys.modules, "arviz", None)
    with pytest.raises(ImportError, match=r"ksivi\[arviz\].*loo=False"):
        compare_models(KEY, fits)
    assert not any(math.isfinite(one.elpd) for one in compare_models(KEY, fits, loo=False).models)


@pytest.mark.slow
def test_fits_of_ksivi_have_the_exact_evidence():
    pytest.importorskip("arviz", reason="ArviZ is not installed")
    fits = {
        name: ksivi.fit(jax.random.key(3), target, progress=False)
        for name, target in targets().items()
    }
    found = compare_models(jax.random.key(4), fits)
    for name, design in DESIGNS.items():
        one = found[name]
        assert one.trusted
        assert abs(one.log_evidence - exact_evidence(design)) < 4 * one.log_evidence_error + 1e-3
        assert abs(one.elpd - exact_elpd(design).sum()) < 0.1


def two_sites(first, second, swapped):
    mean = numpyro.sample("mean", dist.Normal(0, 1))
    sites = {"a": (first, 1.0), "b": (second, 3.0)}
    names = ("b", "a") if swapped else ("a", "b")
    for new, old in zip(("y", "z"), names, strict=True):
        data, scale = sites[old]
        numpyro.sample(new, dist.Normal(mean, scale), obs=data)


def test_units_are_paired_whatever_the_order_and_the_names_of_sites():
    pytest.importorskip("arviz", reason="ArviZ is not installed")
    data = jnp.array([0.3, 1.2, -0.4]), jnp.array([5.0, 1.0, -2.0, 0.5])
    fits = {
        name: fit_of(ksivi.from_numpyro(two_sites, *data, swapped), width=1.0)
        for name, swapped in {"one": False, "other": True}.items()
    }
    found = compare_models(KEY, fits, num_draws=4_000)
    assert {one.elpd_difference_error < 0.02 for one in found.models} == {True}


def one_vector(y):
    mean = numpyro.sample("mean", dist.Normal(0, 1))
    numpyro.sample("y", dist.MultivariateNormal(mean * jnp.ones(len(y)), jnp.eye(len(y))), obs=y)


def its_entries(y):
    mean = numpyro.sample("mean", dist.Normal(0, 1))
    numpyro.sample("y", dist.Normal(mean, 1).expand(y.shape), obs=y)


def test_units_without_partners_have_no_error_of_their_difference():
    pytest.importorskip("arviz", reason="ArviZ is not installed")
    y = jnp.array([0.3, 1.2, -0.4, 0.8])
    models = {"vector": one_vector, "entries": its_entries}
    fits = {name: fit_of(ksivi.from_numpyro(one, y), width=1.0) for name, one in models.items()}
    found = compare_models(KEY, fits)
    worse = min(found.models, key=lambda one: one.elpd)
    best = max(found.models, key=lambda one: one.elpd)
    assert worse.elpd_difference == pytest.approx(worse.elpd - best.elpd)
    assert math.isnan(worse.elpd_difference_error)
    assert "other units" in " ".join(worse.doubts)


def by_a_factor(y):
    mean = numpyro.sample("mean", dist.Normal(0, 1))
    numpyro.factor("y", dist.Normal(mean, 1).log_prob(y).sum())


def flat(y):
    mean = numpyro.sample("mean", dist.ImproperUniform(dist.constraints.real, (), ()))
    numpyro.sample("y", dist.Normal(mean, 1).expand(y.shape), obs=y)


def test_a_model_with_an_improper_prior_has_no_evidence():
    """Its constant is arbitrary, so probabilities would be too."""
    y = jnp.array([0.3, 1.2, -0.4, 0.8])
    models = {"flat": flat, "proper": its_entries, "factor": by_a_factor}
    fits = {name: fit_of(ksivi.from_numpyro(one, y)) for name, one in models.items()}
    found = compare_models(KEY, fits, loo=False)
    assert math.isnan(found["flat"].log_evidence)
    assert {math.isnan(one.probability) for one in found.models} == {True}
    assert math.isfinite(found["proper"].log_evidence)
    assert found.models[-1].name == "flat"
    assert "! flat: it has no evidence, because the prior of 'mean' is improper" in str(found)
    assert found["flat"].improper == ("mean",)
    assert not found["proper"].doubts


def test_a_likelihood_that_is_a_factor_is_compared_by_its_evidence():
    y = jnp.array([0.3, 1.2, -0.4, 0.8])
    models = {"factor": by_a_factor, "entries": its_entries}
    fits = {name: fit_of(ksivi.from_numpyro(one, y)) for name, one in models.items()}
    found = compare_models(KEY, fits, loo=False)
    assert abs(found["factor"].log_evidence - found["entries"].log_evidence) < 0.1
    assert found["factor"].probability == pytest.approx(0.5, abs=0.05)


def test_without_evidences_the_order_is_that_of_elpd():
    models = [ComparedModel(name, True, "", elpd=x) for name, x in (("a", -9.0), ("b", -3.0))]
    assert [one.name for one in sorted(models, key=_order)] == ["b", "a"]
