"""Diagnostics as numbers: their types, what `print` shows, JSON and back, and records of version 0.1.0."""

import dataclasses
import json
import math
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ksivi
from ksivi import results
from ksivi.families import Empirical
from ksivi.results import (
    ChainDiagnostics,
    Diagnostics,
    Discrepancy,
    FitDiagnostics,
    NotFinite,
    ParticleDiagnostics,
    SampleDifference,
    TrainDiagnostics,
    rows_of,
)
from ksivi.results._json import diagnostics_from_json, diagnostics_to_json

KEY = jax.random.key(0)
OLD = Path(__file__).parent / "records_of_0_1_0"
NAN, INF = float("nan"), float("inf")
MOVED = SampleDifference(0.021, 0.034, 0.012, 0.029, 0.011, 0.0098)
FITTED = FitDiagnostics(
    elbo=-3.251,
    elbo_error=0.012,
    log_evidence=-3.2,
    log_evidence_error=0.0061,
    pareto_khat=0.321,
    pareto_khat_limit=0.7,
    wide_pareto_khat=-0.03,
    effective_share=0.93,
    weights_difference=MOVED,
    hmc_difference=dataclasses.replace(MOVED, mean_shift=0.04),
    hmc_memory=0.051,
    run_differences=(MOVED, dataclasses.replace(MOVED, upper_tail=0.02)),
    ksd=Discrepancy(0.00106, -0.00221, 0.00506, 0.2, "IMQ"),
    training=TrainDiagnostics(1.02, 3, NotFinite(40, "score", (0, 5), 0.25)),
    num_weights=8_000,
    num_mixing=1_000,
    widening=1.5,
)
ALL = {
    "train": TrainDiagnostics(
        1.02, 12_345, NotFinite(136, "gradient", (".mean.value", ".log_var"), NAN)
    ),
    "particles": ParticleDiagnostics(0.7146),
    "chains": ChainDiagnostics(1.0034, 1_234.5, 17, 0.81),
    "a few chains": ChainDiagnostics(),
    "fit": FITTED,
    "a fit that was not checked": FitDiagnostics(training=TrainDiagnostics(2.5)),
    "a bound of minus infinity": dataclasses.replace(FITTED, elbo=-INF, elbo_error=INF),
}


def target():
    return ksivi.Target(lambda x: -0.5 * jnp.sum(x**2), dim=2)


def a_fit(diagnostics):
    posterior = ksivi.Posterior.of(ksivi.SemiImplicit.location_scale(2), target())
    history = {"step": np.arange(2), "loss": np.ones(2)}
    status = ksivi.Status("converged", "the bound settled after 2 steps")
    return ksivi.Fit(posterior, status, True, diagnostics, history, ksivi.Cost(1.0, 2, 40), None)


@pytest.mark.parametrize("name", ALL)
def test_diagnostics_are_frozen(name):
    found = ALL[name]
    for field in dataclasses.fields(found):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(found, field.name, 0.0)


@pytest.mark.parametrize("name", ALL)
def test_json_holds_every_number_by_its_name_and_comes_back(name):
    found = ALL[name]
    text = json.dumps(diagnostics_to_json(found), allow_nan=False)
    read = json.loads(text)
    assert list(read) == ["kind", *(field.name for field in dataclasses.fields(found))]
    back = diagnostics_from_json(read)
    assert type(back) is type(found)
    assert repr(back) == repr(found)  # NaN is not equal to itself
    assert back.rows() == found.rows() == rows_of(read)


def test_numbers_are_numbers_in_json():
    found = diagnostics_to_json(FITTED)
    assert found["log_evidence"] == -3.2
    assert found["log_evidence_error"] == 0.0061
    assert found["run_differences"][1]["upper_tail"] == 0.02
    assert found["ksd"]["p_value"] == 0.2
    assert found["training"]["not_finite"]["coordinates"] == [0, 5]
    assert diagnostics_to_json(FitDiagnostics())["elbo"] is None


def test_nan_in_a_field_that_may_be_none_comes_back_as_nan():
    found = json.loads(json.dumps(diagnostics_to_json(ChainDiagnostics(r_hat=float("nan")))))
    assert math.isnan(diagnostics_from_json(found).r_hat)
    assert diagnostics_from_json(diagnostics_to_json(ChainDiagnostics())).r_hat is None
    assert diagnostics_to_json(ALL["a bound of minus infinity"])["elbo"] == "-Infinity"


def test_a_fit_prints_what_was_found():
    lines = [" ".join(line.split()) for line in str(a_fit(FITTED)).splitlines()]
    assert lines[:4] == [
        "status converged: the bound settled after 2 steps",
        "trusted yes",
        "ELBO -3.25 ± 0.01",
        "log evidence -3.20 ± 0.01",
    ]
    assert "Pareto k-hat 0.32, K = 1,000, at most 0.70 for 8,000 draws" in lines
    assert "effective share 0.93 of the weights" in lines
    whole = " ".join(lines)
    moved = "means 0.02 (0.03) sd, log widths 0.01 (0.03), tails 1.1% and 1.0%"
    assert f"weights move {moved}; k-hat -0.03 with the mixing 1.5 times as wide" in whole
    assert f"HMC moves {moved.replace('0.02', '0.04')}; memory 0.05" in whole
    assert f"runs differ {moved}; {moved.replace('1.0%', '2.0%')}" in whole
    assert "KSD² 0.00106 (-0.00221 to 0.00506), p = 0.2, IMQ kernel" in whole
    assert lines[-1] == "cost 1.0 s, 2 steps, 40 score evaluations"


@pytest.mark.parametrize(
    ("found", "rows"),
    [
        (TrainDiagnostics(1.0234567), [("stein ratio", "1.023")]),
        (
            ALL["train"],
            [
                ("stein ratio", "1.02"),
                ("skipped steps", "12,345"),
                ("not finite", "the gradient in .mean.value, .log_var, at step 136"),
            ],
        ),
        (ParticleDiagnostics(), [("stein ratio", "nan")]),
        (
            ALL["chains"],
            [
                ("R-hat", "1.003"),
                ("effective sample size", "1,234"),
                ("divergences", "17"),
                ("acceptance", "0.81"),
            ],
        ),
        (ChainDiagnostics(divergences=0), [("divergences", "0")]),
        (ChainDiagnostics(), []),
        (FitDiagnostics(), []),
        (FitDiagnostics(training=TrainDiagnostics(2.5)), [("stein ratio", "2.5")]),
    ],
)
def test_only_what_is_known_is_shown(found, rows):
    assert found.rows() == rows


def test_no_other_run_is_said():
    alone = dict(dataclasses.replace(FITTED, run_differences=()).rows())
    assert alone["runs differ"] == "no other run came near"


def test_many_coordinates_are_cut_off():
    words = str(NotFinite(1_200, "score", tuple(range(20)), 0.5))
    assert words == "the score in 0, 1, 2, 3, 4, 5, 6, 7, … at 50.00% of the draws, at step 1,200"


def test_each_kind_of_method_has_its_own_type():
    family = ksivi.SemiImplicit.location_scale(2)
    trained = ksivi.train(
        KEY, target(), family, ksivi.KSIVI(num_samples=10), num_steps=2
    ).diagnostics
    assert isinstance(trained, TrainDiagnostics)
    assert trained.stein_ratio > 0
    assert (trained.skipped_steps, trained.not_finite) == (0, None)
    particles = ksivi.run(KEY, target(), ksivi.SVGD(num_particles=5, num_steps=2)).diagnostics
    assert isinstance(particles, ParticleDiagnostics)
    assert particles.stein_ratio > 0


def test_a_method_of_your_own_has_diagnostics_of_its_own(tmp_path):
    @dataclasses.dataclass(frozen=True)
    class Mine(Diagnostics):
        kind = "mine"
        swap_rate: float = 0.25

    fit = a_fit(Mine())
    assert "swap rate  0.25" in str(fit)
    ksivi.Record.of(fit).write(tmp_path)
    read = ksivi.read_record(tmp_path)
    assert read.diagnostics is None
    assert rows_of(read.facts["diagnostics"]) == [("swap rate", "0.25")]


@pytest.mark.parametrize("name", ALL)
def test_a_record_gives_the_diagnostics_back(name, tmp_path):
    ksivi.Record.of(a_fit(ALL[name])).write(tmp_path)
    read = ksivi.read_record(tmp_path)
    assert read.facts["format"] == 2
    assert repr(read.diagnostics) == repr(ALL[name])


def test_a_record_of_0_1_0_is_read():
    record = ksivi.read_record(OLD / "fit")
    found = record.diagnostics
    moved = SampleDifference(0.01, 0.02, 0.02, 0.03, 0.008, 0.009)
    assert isinstance(found, FitDiagnostics)
    assert (found.elbo, found.log_evidence, found.log_evidence_error) == (2.76, 2.76, 0.0)
    assert (found.pareto_khat, found.pareto_khat_limit, found.wide_pareto_khat) == (0.04, 0.7, 0.12)
    assert (found.num_mixing, found.num_weights, found.widening) == (1_000, 8_000, 1.5)
    assert dataclasses.astuple(found.weights_difference) == pytest.approx(
        dataclasses.astuple(moved)
    )
    assert found.hmc_memory == 0.03
    assert len(found.run_differences) == 1
    assert found.ksd == Discrepancy(0.00106, -0.00221, 0.00506, 0.2, "IMQ")
    draws = record.posterior.sample(jax.random.key(3), 2)
    np.testing.assert_allclose(draws[0], [-1.9496301, 0.1347581, -0.0176133], rtol=1e-4)
    assert list(record.posterior.draws(KEY, 2)) == ["a", "b"]


def test_a_record_of_0_1_0_shows_the_same_words():
    """They were display strings there; as numbers they must print to the same strings."""
    words = json.loads((OLD / "fit" / "fit.json").read_text(encoding="utf-8"))["diagnostics"]
    assert dict(ksivi.read_record(OLD / "fit").diagnostics.rows()) == words
    words = json.loads((OLD / "diverged" / "fit.json").read_text(encoding="utf-8"))["diagnostics"]
    shown = dict(ksivi.read_record(OLD / "diverged").diagnostics.rows())
    assert shown["not finite"] == words["not finite"]
    assert float(shown["stein ratio"]) == pytest.approx(words["stein ratio"], rel=1e-3)


def test_a_diverged_record_of_0_1_0_is_read():
    found = ksivi.read_record(OLD / "diverged").diagnostics
    assert isinstance(found, TrainDiagnostics)
    expected = (136, "gradient", (".conditional.mean.value", ".conditional.log_var.value"))
    assert (
        found.not_finite.step,
        found.not_finite.quantity,
        found.not_finite.coordinates,
    ) == expected
    assert math.isnan(found.not_finite.share)


@pytest.mark.parametrize("name", ["fit", "diverged"])
def test_a_record_of_0_1_0_makes_a_page_and_a_new_record(name, tmp_path):
    pytest.importorskip("matplotlib")
    record = ksivi.read_record(OLD / name)
    html = ksivi.report.run_page(record)
    for label, text in record.diagnostics.rows():
        assert label in html
        assert text in html
    record.write(tmp_path)
    again = ksivi.read_record(tmp_path)
    assert again.facts == record.facts
    assert repr(again.diagnostics) == repr(record.diagnostics)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ({}, FitDiagnostics()),
        ({"stein ratio": None}, TrainDiagnostics()),
        ({"stein ratio": 2.5, "skipped steps": 3}, TrainDiagnostics(2.5, 3)),
        (
            {
                "stein ratio": 2.5,
                "not finite": "the score in 0, 3, … at 12.50% of the draws, at step 1,200",
            },
            TrainDiagnostics(2.5, 0, NotFinite(1_200, "score", (0, 3), 0.125)),
        ),
        (
            {"R-hat": 1.01, "effective sample size": 300.5, "divergences": 2, "acceptance": 0.8},
            ChainDiagnostics(1.01, 300.5, 2, 0.8),
        ),
        ({"divergences": 0}, ChainDiagnostics(divergences=0)),
    ],
)
def test_words_of_0_1_0_become_numbers(words, expected):
    found = diagnostics_from_json(results._legacy.upgraded(words))
    assert repr(found) == repr(expected)


def test_words_that_cannot_be_read_are_kept():
    upgraded = results._legacy.upgraded({"ELBO": "about 3", "Pareto k-hat": "high"})
    assert diagnostics_from_json(upgraded) is None
    assert rows_of(upgraded) == [("ELBO", "about 3"), ("Pareto k-hat", "high")]


def record_of(history, name="a"):
    posterior = results.Posterior(Empirical(jnp.zeros((5, 2))), None, ((name, (2,)),))
    facts = results.read_record(OLD / min(path.name for path in OLD.iterdir())).facts
    return results.Record(posterior, facts | {"parameters": {name: [2]}}, history)


BAD_HISTORIES = {
    "objects": ({"odd": np.array([{}, None])}, "'odd' in the history must be numbers or text"),
    "fields": ({"odd": np.zeros(2, [("a", object)])}, "'odd' in the history must be numbers"),
    "rows": ({"odd": [[1], [1, 2]]}, "'odd' in the history must be an array"),
    "a surrogate": ({"\ud800": np.zeros(2)}, "a name in the history must be UTF-8"),
}


@pytest.mark.parametrize("name", BAD_HISTORIES)
def test_a_history_that_cannot_be_read_again_replaces_nothing(name, tmp_path):
    steps, (odd, message) = {"step": np.arange(2)}, BAD_HISTORIES[name]
    record_of(steps).write(tmp_path)
    with pytest.raises(ValueError, match=message):
        record_of(steps | odd).write(tmp_path)
    assert list(results.read_record(tmp_path).history) == ["step"]


def test_a_name_that_cannot_be_read_again_replaces_nothing(tmp_path):
    steps = {"step": np.arange(2)}
    record_of(steps).write(tmp_path)
    with pytest.raises(ValueError, match="a name in the layout must be UTF-8"):
        record_of(steps, "\ud800").write(tmp_path)
    assert results.read_record(tmp_path).posterior.layout == (("a", (2,)),)


def test_a_history_may_have_an_entry_named_file(tmp_path):
    record_of({"step": np.arange(2), "file": jnp.ones(2), "compress": [1, 2]}).write(tmp_path)
    found = results.read_record(tmp_path).history
    assert list(found) == ["step", "file", "compress"]
    assert np.array_equal(found["file"], np.ones(2))
