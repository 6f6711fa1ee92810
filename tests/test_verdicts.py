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
from ksivi.auto._doubts import Correction, chains_move
from ksivi.diagnostics import difference
from ksivi.results import (
    Code,
    Doubt,
    FitDiagnostics,
    Numbers,
    ParameterChecks,
    Status,
)
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
    assert not fit.trusted_for(["a", "shares[0,1]"])
    assert fit.trusted_for(["a", "theta[0,0]"]) == (coordinates is not None)
    elements = [row.name.startswith("shares") for row in fit.table()]
    are_doubted = [row.against == ("chains-move-axes",) for row in fit.table()]
    assert are_doubted == (elements if coordinates is None else [False] * len(NAMES))
    both = a_fit(doubted(moves(0), Code.CHAINS_MOVE_AXES.doubt("axes", coordinates)))
    assert not both.trusted_for("a")
    assert both.trusted_for("theta[0,0]")


@pytest.mark.parametrize("code", [Code.CHAINS_MOVE_AXES, Code.WEIGHTS_MOVE_AXES])
def test_an_element_of_a_simplex_depends_on_how_its_coordinates_do(code):
    """It is a function of all of them, such as the two with the numbers 4 and 5."""
    fit = a_fit(doubted(code.doubt("axes", (4, 5))))
    assert not fit.trusted_for("shares[0,0]")
    assert fit.table()["shares[0,2]"].against == (code.value,)
    assert fit.trusted_for(["shares[1,0]", "shares[1,1]", "a", "theta"])
    across = a_fit(doubted(code.doubt("axes", (4, 6))))  # each simplex has one of the two
    assert across.trusted_for(["shares[0,0]", "shares[0,1]"])
    assert not across.trusted_for(["shares[0,0]", "shares[1,0]"])


def test_a_doubt_about_axes_of_one_coordinate_is_about_that():
    fit = a_fit(doubted(Code.CHAINS_MOVE_AXES.doubt("axes", (0,))))
    assert not fit.trusted_for("a")
    assert fit.table()["a"].against == ("chains-move-axes",)
    assert fit.trusted_for(["theta", "shares"])


def test_a_number_that_is_surely_off_is_not_trusted_in_a_doubted_fit():
    assert a_fit(doubted(moves(0)), off=0.3).trusted_for("theta")
    assert not a_fit(doubted(moves(0)), off=0.5).trusted_for("theta")


def test_a_doubt_about_the_joint_shape_is_about_functions_of_several_numbers():
    fit = a_fit(
        doubted(Code.JOINT_SHAPE.doubt("draws are where the posterior has hardly any mass"))
    )
    assert fit.trusted_for("a")
    assert not fit.trusted_for(["a", "theta"])
    assert fit.table()["shares[0,0]"].against == ("joint-shape",)


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


def test_a_page_names_the_parameters_of_all_doubts_with_one_code():
    fit = a_fit(doubted(moves(0), moves(8)))
    page = ksivi.report.run_page(ksivi.Record.of(fit, data="people.csv"))
    assert page.count("<code>chains-move</code></dt>") == 1
    for name in ("a", "theta[0,0]"):
        assert f"It is about <strong>{name}</strong>." in page


def test_a_record_whose_columns_do_not_fit_is_refused(tmp_path):
    fit = a_fit(doubted(moves(0)))
    fewer = dataclasses.replace(fit.diagnostics.parameters, sd=(1.0,))
    broken = dataclasses.replace(fit, diagnostics=FitDiagnostics(parameters=fewer))
    ksivi.Record.of(broken).write(tmp_path)
    with pytest.raises(
        ValueError, match=r"diagnostics\.parameters must have one entry for each of the 14"
    ):
        ksivi.read_record(tmp_path)


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
