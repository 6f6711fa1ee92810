"""What `explain` advises: nothing that was done already, and nothing that contradicts itself."""

import dataclasses

import numpy as np
import pytest

import ksivi
from ksivi._core.wording import apart
from ksivi.diagnostics import Difference
from ksivi.results import (
    Code,
    FitDiagnostics,
    RefinedDraws,
    SampleDifference,
)
from ksivi.results._json import diagnostics_from_json, diagnostics_to_json
from test_verdicts import a_fit, doubted, moves


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
    assert f'refine="{by}"' not in tried
    assert len(tried) > len(code.next_step.replace("`", "")) + 10  # there is always a next step
