"""What a verdict means for each parameter: tables, trust in some of them, explanations, and what records keep."""

import dataclasses
import json
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ksivi
from known import KEY
from ksivi._core.wording import apart
from ksivi.auto._doubts import Correction, chains_move, weights_move
from ksivi.diagnostics import Difference, Importance, difference
from ksivi.results import (
    Code,
    Doubt,
    FitDiagnostics,
    Numbers,
    ParameterChecks,
    RefinedDraws,
    SampleDifference,
    Status,
)
from ksivi.results._json import diagnostics_from_json, diagnostics_to_json
from ksivi.results._status import status_from_json, status_to_json
from ksivi.targets import supports

SUPPORTS = {
    "rate": supports.positive(),
    "shares": supports.Support("softmax_simplex"),
    "share": supports.interval(0, 1),
}
EXAMPLE = {
    "a": jnp.zeros(()),
    "rate": jnp.ones(2),
    "share": jnp.full((), 0.5),
    "shares": jnp.full((2, 3), 1 / 3),
    "theta": jnp.zeros((2, 2)),
}
NAMES = [
    *("a", "rate[0]", "rate[1]", "share"),
    *(f"shares[{i},{k}]" for i in range(2) for k in range(3)),
    *(f"theta[{i},{k}]" for i in range(2) for k in range(2)),
]
UNIT = jnp.zeros(12)


def target():
    def log_density(p):
        return sum(-0.5 * jnp.sum(x**2) for x in p.values())

    return ksivi.Target.from_pytree(log_density, EXAMPLE, supports=SUPPORTS)


def a_fit(status, trusted=False, off=0.0):
    """A fit with this status, to a model with all kinds of supports, and a bound for every mean."""
    of = target()
    posterior = ksivi.Posterior.of(ksivi.SemiImplicit.location_scale(of.dim), of)
    numbers = Numbers(posterior.layout, posterior.supports)
    draws = numbers.of(np.random.default_rng(0).normal(size=(500, of.dim)))
    zero = np.zeros(len(NAMES))
    bounds = [zero + off, zero + 0.01, zero, zero + 0.02, zero, zero + 0.003]
    found = FitDiagnostics(parameters=ParameterChecks.of(numbers.names, draws, bounds))
    history = {"step": np.arange(2), "loss": np.ones(2)}
    cost = ksivi.Cost(1.0, 2, 40)
    return ksivi.Fit(posterior, status, trusted, found, history, cost, None)


def doubted(*doubts):
    return Status.of_doubts("not trusted", doubts)


def moves(*coordinates):
    return Code.CHAINS_MOVE.doubt("chains of HMC move the draws", coordinates)


def test_numbers_are_those_of_the_draws_by_name():
    fit = a_fit(doubted(moves(0)))
    x = fit.posterior.sample(KEY, 20)
    named = fit.posterior.constrain(x)
    numbers = Numbers(fit.posterior.layout, fit.posterior.supports)
    assert list(numbers.names) == NAMES
    expected = np.concatenate([np.asarray(v).reshape(20, -1) for v in named.values()], axis=1)
    np.testing.assert_allclose(
        numbers.of(np.asarray(x, np.float64)), expected, rtol=2e-5, atol=1e-6
    )


@pytest.mark.parametrize(
    ("coordinate", "touched"),
    [
        (0, ["a"]),
        (2, ["rate[1]"]),
        (3, ["share"]),
        (5, ["shares[0,0]", "shares[0,1]", "shares[0,2]"]),  # all of the first simplex
        (6, ["shares[1,0]", "shares[1,1]", "shares[1,2]"]),
        (8, ["theta[0,0]"]),
        (11, ["theta[1,1]"]),
        (99, []),
    ],
)
def test_numbers_depend_on_the_coordinates_that_change_them(coordinate, touched):
    of = target()
    numbers = Numbers(of.layout, of.supports)
    assert [
        n for n, is_it in zip(numbers.names, numbers.touched([coordinate]), strict=True) if is_it
    ] == touched
    if coordinate < of.dim:
        before = numbers.of(np.zeros((1, of.dim)))
        after = numbers.of(np.eye(of.dim)[coordinate : coordinate + 1])
        changed = [n for n, d in zip(numbers.names, (before != after)[0], strict=True) if d]
        assert set(changed) <= set(touched)
        assert changed


def test_a_doubt_about_some_coordinates_leaves_the_others_trusted():
    fit = a_fit(doubted(moves(0, 5), Code.NOT_SETTLED.doubt("ran 3 steps")))
    assert not fit.trusted_for("a")
    assert not fit.trusted_for("shares")
    assert not fit.trusted_for("shares[0,2]")
    assert fit.trusted_for("shares[1,0]")
    assert fit.trusted_for(["rate", "theta[1,1]", "share"])
    assert not fit.trusted_for(["rate", "a"])
    assert [row.trusted for row in fit.table()].count(False) == 4


GLOBAL = [
    *(Code.MISSED_MODE, Code.CHAINS_TOO_SLOW, Code.IMPROPER, Code.SHARES_WRONG, Code.BUDGET),
    *(Code.RUNS_DIFFER, Code.ROWS_ERROR, Code.NOT_CHECKED, Code.CHAINS_NOT_SETTLED, Code.DIVERGED),
]


@pytest.mark.parametrize("code", GLOBAL, ids=[one.value for one in GLOBAL])
def test_a_doubt_about_all_draws_leaves_nothing_trusted(code):
    fit = a_fit(doubted(moves(0), code.doubt("something")))
    assert not any(fit.trusted_for(name) for name in ("theta", "a", "rate[0]"))


def test_what_is_not_doubted_in_words_is_not_trusted():
    """Interrupted, diverged, or a status without codes, as a method of a user's own may have."""
    for status in (
        Status.of_doubts("interrupted", [Code.INTERRUPTED.doubt("stopped")]),
        Status.of_doubts("diverged", [Code.DIVERGED.doubt("the loss became nan")]),
        Status.of_doubts("step limit", [Code.STEP_LIMIT.doubt("ran all 5 steps")]),
        Status("not trusted", "it is not good"),
        doubted(Code.NOT_SETTLED.doubt("ran 3 steps")),
        doubted(Doubt("of-a-later-version", "who knows")),
    ):
        assert not a_fit(status).trusted_for("theta")
    assert a_fit(Status("converged", "good"), trusted=True, off=0.9).trusted_for("theta")


@pytest.mark.parametrize("coordinates", [(0, 5), None])
def test_a_doubt_about_axes_is_about_parameters_together(coordinates):
    """Each alone has the right mean and width: how they depend on each other is wrong."""
    fit = a_fit(doubted(Code.CHAINS_MOVE_AXES.doubt("axes", coordinates)))
    assert fit.trusted_for("a")
    assert fit.trusted_for("shares[0,1]")
    assert not fit.trusted_for(["a", "shares[0,1]"])
    assert fit.trusted_for(["a", "theta[0,0]"]) == (coordinates is not None)
    assert all(row.trusted for row in fit.table().rows)
    both = a_fit(doubted(moves(0), Code.CHAINS_MOVE_AXES.doubt("axes", coordinates)))
    assert not both.trusted_for("a")
    assert both.trusted_for("theta[0,0]")


def test_a_number_that_is_surely_off_is_not_trusted_in_a_doubted_fit():
    assert a_fit(doubted(moves(0)), off=0.3).trusted_for("theta")
    assert not a_fit(doubted(moves(0)), off=0.5).trusted_for("theta")


@pytest.mark.parametrize("names", ["foo", ["a", "thetas"], [], 3, ["a", 3], "theta[5,0]", None])
def test_names_that_are_unknown_are_named(names):
    with pytest.raises(ValueError, match=r"names must be one or more of a, rate, rate\[0\]"):
        a_fit(doubted(moves(0))).trusted_for(names)


def test_a_table_has_rows_by_name_and_prints_aligned():
    table = a_fit(doubted(moves(0)), off=0.05).table()
    assert list(table.names) == NAMES
    assert len(table) == 14
    assert table["theta[1,0]"] == table.rows[12]
    assert table["rate[0]"].low < table["rate[0]"].median < table["rate[0]"].mean
    assert table["a"].mean_off.at_least == pytest.approx(0.03)
    lines = str(table).splitlines()
    heads = "mean sd 5% 50% 95% mean off width off tails off trusted"
    assert lines[0].split() == heads.split()
    assert len({len(line) for line in lines[:15]}) == 1
    assert re.search(r"^a .* 0\.05±0\.01 +0\.00±0\.02 +0\.00±0\.30% +no: chains-move$", lines[1])
    assert " ".join(lines[15:]).startswith(
        "Off: lower bounds ± standard errors. Of means in sd, of"
    )
    assert max(map(len, table.text(72).splitlines())) <= 72
    assert "95%" not in table.text(72)
    assert "no: chains-move" in table.text(76)
    assert re.search(r"^a .* no$", table.text(60), flags=re.MULTILINE)
    with pytest.raises(ValueError, match=r"name must be one of a, rate\[0\], .* got 'b'"):
        table["b"]


def test_a_row_says_what_speaks_against_it():
    """Also where its bounds are 0: a doubt can be about a single tail, or about all draws."""
    tail = Code.CHAINS_MOVE.doubt("chains of HMC move the draws: tails", (0, 8), (8,))
    table = a_fit(doubted(tail)).table()
    assert table["a"].against == ("chains-move",)
    assert table["theta[0,0]"].against == ("tail",)
    assert table["theta[0,1]"].against == ()
    assert table["theta[0,1]"].verdict == "yes"
    assert "no: tail" in str(table)
    assert "tail: beyond the 1% or the 99% quantile, or both, are fewer than 0.6% or more" in str(
        table
    )
    assert table.to_dict()["theta[0,0]"]["against"] == "tail"
    both = a_fit(doubted(tail, Code.MISSED_MODE.doubt("a mode"))).table()
    assert both["theta[0,0]"].against == ("tail", "missed-mode")
    assert both["theta[0,0]"].verdict == "no: tail +1"
    assert both["theta[0,1]"].against == ("missed-mode",)
    off = a_fit(doubted(tail), off=0.5).table()
    assert off["a"].against == ("chains-move",)  # its bound is seen in the row
    assert off["theta[0,1]"].against == ("mean off",)
    assert a_fit(Status("converged", "good"), trusted=True).table()["a"].against == ()
    ended = Status.of_doubts("step limit", [Code.STEP_LIMIT.doubt("ran all 5 steps")])
    assert a_fit(ended).table()["a"].against == ("step limit",)
    assert "tail:" not in str(a_fit(doubted(moves(0))).table())


def test_a_doubt_says_of_which_coordinates_only_a_tail_is_off():
    rng = np.random.default_rng(0)
    exact, draws = rng.normal(size=(2, 20_000, 3))
    draws[:, 0] += 1.0
    draws[:, 1] = np.clip(draws[:, 1], -2.2, None)  # no draws in the left tail
    change = difference(draws, exact)
    assert change.where_large().tolist() == [0, 1]
    (doubt,) = chains_move(Correction(change, draws, exact, np.eye(3)))
    assert doubt.coordinates == (0, 1)
    assert doubt.by_tail == (1,)
    status = doubted(doubt)
    assert status_from_json(json.loads(json.dumps(status_to_json(status)))) == status
    old = {"code": "chains-move", "sentence": "moved", "coordinates": [0]}
    found = status_from_json({"kind": "not trusted", "reason": "moved", "doubts": [old]})
    assert found.doubts[0].by_tail == ()


def test_a_table_becomes_plain_values():
    table = a_fit(doubted(moves(0)), off=0.05).table()
    found = json.loads(json.dumps(table.to_dict(), allow_nan=False))
    assert list(found) == NAMES
    assert found["a"]["mean_off"] == 0.05
    assert found["a"]["trusted"] is False
    pytest.importorskip("pandas")
    frame = table.to_pandas()
    assert list(frame.index) == NAMES
    assert frame.loc["a", "mean_off_error"] == 0.01


def test_training_and_chains_are_not_examined():
    of = ksivi.Target(lambda x: -0.5 * jnp.sum(x**2), dim=2)
    family = ksivi.SemiImplicit.location_scale(2)
    trained = ksivi.train(KEY, of, family, ksivi.KSIVI(num_samples=10), num_steps=2, progress=False)
    particles = ksivi.run(KEY, of, ksivi.SVGD(num_particles=50, num_steps=2), progress=False)
    for fit in (trained, particles):
        row = fit.table()["x[0]"]
        assert np.isnan(row.mean_off.bound)
        assert not fit.table().is_examined
        assert "not examined" in str(fit.table())
        assert fit.table().to_dict()["x[0]"]["width_off"] is None
        assert not fit.trusted_for("x")
        assert fit.status.codes == ("step-limit",)
    draws = np.asarray(particles.posterior.family.points)
    assert particles.table()["x[1]"].mean == pytest.approx(draws[:, 1].mean(), abs=0.1)


def test_an_explanation_has_the_numbers_the_parameters_and_the_next_step():
    said = a_fit(doubted(moves(0, 5), Code.BUDGET.doubt("budget_s = 3 s ended"))).explain()
    text = " ".join(said.split())
    assert "[chains-move] Chains of HMC move the draws found chains of HMC move the draws" in text
    assert "about a, shares[0,0], shares[0,1], shares[0,2] note fit.table() shows" in text
    assert "docs/glossary.md#budget" in text
    assert "about all parameters" in text
    assert max(map(len, said.splitlines())) <= 100
    fine = a_fit(Status("converged", "a Gaussian passed"), trusted=True)
    assert "nothing to act on" in fine.explain()
    assert "no code" in a_fit(Status("diverged", "as an earlier version says")).explain()
    assert "what now" not in str(fine)
    assert "[budget]" in str(a_fit(doubted(Code.BUDGET.doubt("late"))))


def _next(code, **known):
    """The next step for a fit with these diagnostics."""
    fit = a_fit(doubted(code.doubt("something")))
    of = dataclasses.replace(fit, diagnostics=dataclasses.replace(fit.diagnostics, **known))
    text = " ".join(of.explain().split())
    note = text.partition(" note ")[2].partition(" more docs")[0]
    return f"{note} {text.partition(' next ')[2]}".strip()


TRAINED = "a trained sampler"
HMC = {"number": 1_000, "effective": 1_000.0, "num_transitions": 40, "verdict": "so"}
BY_HMC = "Hamiltonian Monte Carlo from the sampler's draws"


def test_a_next_step_that_was_taken_is_not_given_again():
    first = _next(Code.CHAINS_MOVE, answer=TRAINED)
    assert first.startswith("fit.table() shows which parameters moved. Go on with fit = ksivi.fit(")
    assert "init=fit, num_steps=20_000" in first
    assert 'refine="hmc"' in first
    second = _next(Code.CHAINS_MOVE, answer=TRAINED, num_steps=20_000, given=("num_steps",))
    assert "num_steps" not in second
    assert "Use the states of the chains, fit = ksivi.fit(key, target, init=fit, refine=" in second
    assert "Go on" not in second
    refined = RefinedDraws(BY_HMC, trusted=False, refine="hmc", **HMC)
    third = _next(Code.CHAINS_MOVE, answer=TRAINED, num_steps=20_000, refined=refined)
    assert "refine=" not in third
    assert "Reparametrise" in third
    assert "reference_draws" in third
    by_weights = _next(Code.SHARES_WRONG, refined=refined)
    assert 'refine="importance"' in by_weights  # the other refinement was not tried
    assert "num_steps" not in _next(Code.MISSED_MODE, num_steps=20_000)


def test_a_remedy_is_left_out_only_if_it_was_really_done():
    """Fewer steps are not many, and an earlier fit may be of another target."""
    few = _next(Code.CHAINS_MOVE, answer=TRAINED, num_steps=1_000, given=("init", "num_steps"))
    assert "Go on with fit = ksivi.fit(key, target, init=fit, num_steps=20_000)" in few
    assert "num_steps=20_000" in _next(Code.MISSED_MODE, num_steps=1_000, given=("num_steps",))
    warped = "a warped Gaussian"
    assert "Go on" in _next(Code.CHAINS_NOT_SETTLED, answer=warped, given=("init",))
    again = _next(Code.CHAINS_NOT_SETTLED, answer=warped, given=("init", "again"))
    assert "Go on" not in again
    assert again.endswith("ksivi.reference_draws(key, target).")


def test_several_modes_are_no_case_for_nuts():
    """Chains stay in their mode: the symmetry between the modes has to go."""
    one, four = (_next(Code.CHAINS_TOO_SLOW, num_modes=n) for n in (1, 4))
    assert "Compare with long chains of NUTS, draws = ksivi.reference_draws(key, target)" in one
    assert "ordered" not in one
    assert "one of the 4 modes to another, so first break label switching" in four
    assert four.index("ksivi.supports.ordered()") < four.index("fit each mode")
    assert "reference_draws" not in four
    assert "reference_draws" not in _next(Code.CHAINS_MOVE, num_modes=2)
    assert ksivi.supports.ordered().kind == "ordered_vector"  # there is such a support


@pytest.mark.parametrize("code", list(Code), ids=lambda one: one.value)
def test_a_call_of_fit_keeps_its_result(code):
    """So what is advised can be run as it is."""
    said = _next(code, answer=TRAINED)
    assert "ksivi.fit(" not in said.replace("fit = ksivi.fit(key, target, ", "")
    assert "…" not in said.replace("horizon=…", "").replace("supports=…", "").replace("..., ", "")


def test_a_doubt_about_axes_is_true_beside_one_about_coordinates():
    along = Code.CHAINS_MOVE_AXES.doubt("chains move the draws along axes", (0, 8))
    said = " ".join(a_fit(doubted(moves(1), along)).explain().split())
    assert "has the right mean" not in said
    assert "Parameters that chains-move names were left out here." in said


def test_doubts_with_the_same_remedy_are_explained_together():
    along = Code.CHAINS_MOVE_AXES.doubt("chains move the draws along axes", (0, 8))
    fit = a_fit(doubted(moves(1), Code.BUDGET.doubt("late"), along))
    said = " ".join(fit.explain().split())
    assert said.count("Go on with fit =") == 1
    assert "next for chains-move and chains-move-axes: Go on with fit =" in said
    assert said.index("[chains-move-axes]") < said.index("next for") < said.index("[budget]")
    shown = " ".join(str(fit).split())
    assert shown.count("Go on with fit =") == 1
    assert "[chains-move, chains-move-axes] fit.table() shows" in shown
    page = ksivi.report.run_page(ksivi.Record.of(fit, data="x", date="today"))
    assert page.count("Go on with") == 1
    assert "<code>chains-move-axes</code></dt><dd>" in page


def test_refined_draws_that_are_trusted_come_first():
    fit = a_fit(doubted(moves(0), Code.MISSED_MODE.doubt("a mode")))
    first = "The refined draws are trusted: use fit.refined.posterior."
    for is_good in (True, False):
        refined = RefinedDraws(BY_HMC, trusted=is_good, refine="hmc", **HMC)
        known = dataclasses.replace(fit.diagnostics, refined=refined)
        of = dataclasses.replace(fit, diagnostics=known)
        assert of.explain().startswith(first) == is_good
        assert of.explain().count("fit.refined.posterior") == is_good
        assert (f"what now {first}" in " ".join(str(of).split())) == is_good
        page = ksivi.report.run_page(ksivi.Record.of(of, data="x", date="today"))
        assert ("The refined draws are trusted" in page) == is_good


def test_a_missed_mode_is_not_a_case_for_refined_draws():
    refined = RefinedDraws(BY_HMC, trusted=False, refine="hmc", **HMC)
    for known in (None, refined):
        said = _next(Code.MISSED_MODE, refined=known)
        assert "refine" not in said
        assert "without init=" in said


def test_a_reason_is_given_once():
    tail = [code.doubt("tails", (8,), (8,)) for code in (Code.CHAINS_MOVE, Code.WEIGHTS_MOVE)]
    row = a_fit(doubted(*tail)).table()["theta[0,0]"]
    assert row.against == ("tail",)
    assert row.verdict == "no: tail"
    twice = a_fit(doubted(moves(0), moves(0), *[Code.ROWS_ERROR.doubt("off")] * 2)).table()
    assert twice["a"].against == ("chains-move", "rows-error")


def test_a_number_does_not_look_equal_to_its_limit():
    assert apart(0.104, 0.1) == ("0.104", "0.100")
    assert apart(0.1046, 0.1049) == ("0.1046", "0.1049")
    assert apart(0.2, 0.1) == ("0.20", "0.10")
    assert apart(0.1, 0.1) == ("0.10", "0.10")
    assert apart(0.1004, 0.1, "g") == ("0.1004", "0.1")
    zero = np.zeros(2)
    assert Difference(zero, zero, (0.02004, 0.01)).too_large() == (
        "tails 2.004% and 1.00%, within 0.6% to 2%"
    )
    found = FitDiagnostics(
        **{"pareto_khat": 0.6996, "pareto_khat_limit": 0.7, "wide_pareto_khat": 0.5},
        weights_difference=SampleDifference(*[0.0] * 6),
    )
    assert dict(found.rows())["Pareto k-hat"].startswith("0.6996, at most 0.7000")


def test_a_log_evidence_whose_weights_are_heavy_says_so():
    rows = [
        dict(
            FitDiagnostics(
                **{"log_evidence": -3.2, "wide_pareto_khat": khat, "pareto_khat_limit": 0.7},
                weights_difference=SampleDifference(*[0.0] * 6),
            ).rows()
        )["log evidence"]
        for khat in (0.5, 0.9)
    ]
    assert "not reliable" not in rows[0]
    assert rows[1].endswith("not reliable: the k-hat of its weights is 0.90, at most 0.70")


def test_what_asked_for_refined_draws_is_in_records():
    refined = RefinedDraws(BY_HMC, trusted=False, refine="hmc", **HMC)
    found = diagnostics_to_json(FitDiagnostics(refined=refined))
    assert diagnostics_from_json(found).refined == refined
    del found["refined"]["refine"], found["num_steps"]  # as earlier versions wrote it
    assert diagnostics_from_json(found).refined.refine == ""


@pytest.mark.parametrize("code", [one for one in Code if one.remedies], ids=lambda one: one.value)
def test_only_a_trained_sampler_is_told_a_number_of_steps(code):
    if code is not Code.MISSED_MODE:  # which says to train one
        assert "num_steps" not in _next(code, answer="a mixture of 8 Gaussians")
        assert "num_steps" not in _next(code, answer="a warped Gaussian")
    by = "importance" if "weights" in code.remedies else "hmc"
    everything = RefinedDraws(BY_HMC, trusted=False, refine=by, **HMC)
    tried = _next(code, answer=TRAINED, num_steps=20_000, refined=everything)
    assert tried.endswith(".")
    assert "refine=" not in tried
    assert len(tried) > len(code.next_step.replace("`", "")) + 10  # there is always a next step


def test_a_printed_fit_has_the_table_of_few_numbers(monkeypatch):
    fit = a_fit(doubted(moves(0)))
    monkeypatch.setenv("COLUMNS", "80")
    assert "theta[1,1]" in str(fit)
    assert max(map(len, str(fit).splitlines())) <= 80
    many = ParameterChecks.of([f"x[{i}]" for i in range(21)], np.zeros((3, 21)))
    fit = dataclasses.replace(fit, diagnostics=FitDiagnostics(parameters=many))
    assert "x[20]" not in str(fit)


def test_a_status_comes_back_from_json():
    status = doubted(moves(0, 5), Code.BUDGET.doubt("late"))
    assert status.codes == ("chains-move", "budget")
    assert str(status) == "not trusted: chains of HMC move the draws; late"
    assert status_from_json(json.loads(json.dumps(status_to_json(status)))) == status
    old = status_from_json({"kind": "converged", "reason": "the bound settled"})
    assert old == Status("converged", "the bound settled")


def test_a_record_has_the_table_and_the_explanation(tmp_path):
    fit = a_fit(doubted(moves(0)), off=0.05)
    ksivi.Record.of(fit, data="people.csv").write(tmp_path)
    record = ksivi.read_record(tmp_path)
    assert record.table() == fit.table()
    assert record.explain() == fit.explain()
    assert record.status == fit.status
    page = ksivi.report.run_page(record)
    for words in (
        "What now",
        "chains-move",
        "It is about <strong>a</strong>.",
        "people.csv",
        record.facts["date"],
    ):
        assert words in page
    assert "0.05±0.01" in page


def test_a_record_whose_columns_do_not_fit_is_refused(tmp_path):
    fit = a_fit(doubted(moves(0)))
    fewer = dataclasses.replace(fit.diagnostics.parameters, sd=(1.0,))
    broken = dataclasses.replace(fit, diagnostics=FitDiagnostics(parameters=fewer))
    ksivi.Record.of(broken).write(tmp_path)
    with pytest.raises(
        ValueError, match=r"diagnostics\.parameters must have one entry for each of the 14"
    ):
        ksivi.read_record(tmp_path)


def _changed(shift, turn=False):
    """A sample, and one that is shifted in the first of six coordinates, or correlates two of them."""
    rng = np.random.default_rng(0)
    before, after = rng.normal(size=(2, 5_000, 6))
    after[:, 0] += shift
    if turn:
        after[:, 1] = 0.8 * after[:, 2] + 0.6 * after[:, 1]
    axes = np.linalg.eigh(np.corrcoef(after, rowvar=False))[1]
    return Correction(difference(before, after), before, after, axes)


def test_a_doubt_names_the_coordinates_that_move():
    assert chains_move(_changed(0.0)) == []
    moved = chains_move(_changed(0.8))[0]
    assert moved.code == "chains-move"
    assert moved.coordinates == (0,)
    (turned,) = chains_move(_changed(0.0, turn=True))
    assert turned.code == "chains-move-axes"
    assert set(turned.coordinates) >= {1, 2}
    assert len(turned.coordinates) < 6
    both = chains_move(_changed(0.8, turn=True))
    assert [one.code for one in both] == ["chains-move", "chains-move-axes"]
    assert set(both[1].coordinates) >= {1, 2}


def test_a_sentence_gives_the_limits_of_what_is_too_large():
    """And nothing else: a reader sees at once what is wrong."""
    sentence = str(chains_move(_changed(0.8))[0])
    assert re.fullmatch(
        r"chains of HMC move the draws: means 0\.1\d \(0\.\d\d\) sd, at most 0\.10 \(0\.30\)",
        sentence,
    )
    wide = np.random.default_rng(0).normal(size=(20_000, 2))
    said = difference(wide, wide * np.exp([0.5, 0.0])).too_large()
    assert said.startswith("log widths 0.25 (0.50), at most 0.10 (0.30), tails 0.")
    assert said.endswith(", within 0.6% to 2%")
    assert difference(wide, wide).too_large() == ""
    assert difference(wide, wide + 0.1 * wide.std(axis=0) + 1e-3).too_large() == (
        "means 0.101 (0.10) sd, at most 0.100 (0.30)"
    )
    shifted = difference(wide, wide + 0.35).too_large(error=0.03)
    assert shifted.startswith("means 0.35 (0.35) sd, at most 0.16 (0.36), tails")


def _of_two_modes(share, shift, seed):
    """Draws around (5, 5) and (−5, −5), and around (5, −5) and (−5, 5), and one more coordinate.

    All coordinates but the last have the same marginals, whatever the share of the first two modes.
    """
    rng = np.random.default_rng(seed)
    first = rng.choice([-5.0, 5.0], 8_000)
    second = first * np.where(rng.random(8_000) < share, 1, -1)
    third = np.full(8_000, shift)
    return np.stack([first, second, third], axis=1) + rng.normal(size=(8_000, 3))


@pytest.mark.parametrize(
    ("share", "shift", "codes"),
    [
        (0.5, 0.0, []),
        (0.5, 0.5, ["weights-move"]),
        (0.95, 0.0, ["shares-wrong"]),
        (0.95, 0.5, ["weights-move", "shares-wrong"]),
    ],
)
def test_a_doubt_about_one_coordinate_does_not_hide_wrong_shares(share, shift, codes):
    draws, exact = _of_two_modes(0.5, 0.0, 0), _of_two_modes(share, shift, 1)
    weighed = Importance(exact, np.zeros(8_000), 0.0, 0.0, 0.0, 0.0, 0)
    weights = np.full(8_000, 1 / 8_000)
    change = difference(draws, exact, weights)
    found = weights_move(draws, weighed, change, np.eye(3))
    assert [one.code for one in found] == codes


def test_an_axis_of_many_coordinates_is_about_all_draws():
    dim = 200
    axis = np.full((dim, 1), dim**-0.5)
    rng = np.random.default_rng(0)
    draws = rng.normal(size=(5_000, dim))
    exact = draws + 0.5 * (draws @ axis) @ axis.T  # 1.5 times as wide along the axis
    (doubt,) = chains_move(Correction(difference(draws, exact), draws, exact, axis))
    assert doubt.code == "chains-move-axes"
    assert doubt.coordinates is None


def test_a_doubt_about_one_coordinate_does_not_hide_wrong_axes_of_all_others():
    rng, dim = np.random.default_rng(0), 80
    draws, noise = rng.normal(size=(2, 10_000, dim))
    exact = 0.7**0.5 * noise + 0.3**0.5 * rng.normal(size=(10_000, 1))  # all correlations are 0.3
    exact[:, 0] += 1.0
    axes = np.linalg.eigh(np.corrcoef(exact, rowvar=False))[1]
    first, second = chains_move(Correction(difference(draws, exact), draws, exact, axes))
    assert (first.code, first.coordinates) == ("chains-move", (0,))
    assert second.code == "chains-move-axes"
    assert set(second.coordinates) == set(range(1, dim))


def test_a_doubt_about_one_coordinate_is_not_one_about_the_axes_that_it_is_part_of():
    rng, dim = np.random.default_rng(0), 80
    draws = rng.normal(size=(10_000, dim)) + rng.normal(size=(10_000, 1))
    exact = draws + np.eye(dim)[0] * 1.5
    axes = np.linalg.eigh(np.corrcoef(exact, rowvar=False))[1]
    (doubt,) = chains_move(Correction(difference(draws, exact), draws, exact, axes))
    assert doubt.coordinates == (0,)


@pytest.mark.slow
def test_a_fit_that_is_wrong_in_one_parameter_says_which():
    def log_density(mean):
        return lambda p: -0.5 * (jnp.sum((p["a"] - mean) ** 2) + jnp.sum(p["theta"] ** 2))

    example = {"a": jnp.zeros(()), "theta": jnp.zeros(2)}
    old, new = (ksivi.Target.from_pytree(log_density(m), example) for m in (0.0, 1.0))
    family, few = (
        ksivi.SemiImplicit.location_scale(3),
        ksivi.Recipe(
            num_samples=4,
            num_mixing=4,
            hidden=(4,),
            num_pretraining=0,
            max_steps=3,
            chunk=1,
            learning_rate=1e-6,
        ),
    )
    objective = ksivi.SIVI(num_samples=100, num_mixing=0)
    start = ksivi.train(KEY, old, family, objective, num_steps=2_000, progress=False)
    fit = ksivi.fit(KEY, new, init=start, recipe=few, progress=False)
    assert "chains-move" in fit.status.codes
    assert str(fit.status).startswith("not trusted: chains of HMC move the draws: means")
    assert not fit.trusted_for("a")
    assert fit.trusted_for("theta[0]")
    assert fit.trusted_for("theta[1]")
    assert 0.8 < fit.table()["a"].mean_off.at_least <= 1.05
    assert fit.table()["theta[0]"].mean_off.at_least < 0.05


def test_a_fit_has_bounds_for_each_number():
    of = target()
    fit = ksivi.fit(jax.random.key(0), of, progress=False)
    assert fit.trusted, fit.status
    assert list(fit.table().names) == NAMES
    assert all(row.trusted for row in fit.table())
    assert max(row.mean_off.at_least for row in fit.table()) < 0.1
    sums = np.sum([fit.table()[f"shares[0,{k}]"].mean for k in range(3)])
    assert sums == pytest.approx(1.0, abs=0.01)
    facts = json.loads(json.dumps(ksivi.Record.of(fit).facts, allow_nan=False))
    assert facts["diagnostics"]["parameters"]["names"] == NAMES
