"""The records, tables and jobs of `benchmarks.accuracy`, without a fit."""

import json
import sys
from argparse import Namespace
from pathlib import Path

import jax
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import accuracy, accuracy_report, development, slots
from benchmarks.accuracy_report import METHODS, OURS, read, table, write


def _record(case="banana", method=OURS, seed=0, when="cold", seconds=6.0, **more):
    about = {"case": case, "method": method, "seed": seed, "when": when, "seconds": seconds}
    about |= {"set": "development", "dim": 2, "held_out": False, "accurate": True, "failures": []}
    said = {"trusted": True, "answer": "a Gaussian"} if method == OURS else {}
    return about | said | {"failures_of_many": [], "distance": 1.0} | more


def test_each_name_builds_the_case_of_that_name(monkeypatch):
    for module in (development.models, development.held_out):
        monkeypatch.setattr(module, "from_numpyro", lambda *model: None)  # takes seconds
    monkeypatch.delenv("KSIVI_DATA", raising=False)
    # These two are slow to build, or need the data.
    names = [name for name in development.names() if name not in ("waveform", "diffusion")]
    with jax.numpy_rank_promotion("allow"):  # as users have it
        cases = [development.case(name) for name in names]
        unseen = [case.name for case in development.held_out.cases()]
    assert [case.name for case in cases] == names
    assert [case.name for case in cases if case.held_out] == unseen


def test_a_name_of_no_case_is_refused():
    with pytest.raises(ValueError, match="'bananas'"):
        development.case("bananas")
    with pytest.raises(ValueError, match="'deployment'"):
        development.names("deployment")


def test_the_methods_are_the_rivals_and_ours():
    from benchmarks.rivals import RIVALS

    assert (OURS, *RIVALS) == METHODS


def test_lines_of_the_older_form_serve_until_there_are_cold_fits(tmp_path):
    old = _record("ring", "Laplace", seconds=9.0)
    del old["when"], old["set"]
    path = tmp_path / "records.jsonl"
    for record in (old, _record("ring", "NUTS", when="earlier"), _record("ring", "NUTS")):
        write(path, record)
    records = read(path)
    assert [row["seconds"] for row in accuracy_report.of_method(records, "Laplace")] == [9.0]
    assert [row["when"] for row in accuracy_report.of_method(records, "NUTS")] == ["cold"]


def test_the_table_counts_silent_fits_and_compares_with_an_accurate_nuts():
    wrong = {"accurate": False, "failures": ["width 0.20"], "failures_of_many": ["width 0.20"]}
    records = [
        _record("ring", seconds=4.0),
        _record("ring", seed=1, seconds=8.0, **wrong),
        _record("ring", seed=2, seconds=6.0, trusted=False),
        _record("ring", "NUTS", seconds=2.0),
        _record("ring", "NUTS, vectorized", seconds=3.0),
        _record("ring-2", seconds=4.0),
        _record("ring-2", "NUTS", seconds=3.0),
        _record("ring-2", "NUTS, vectorized", seconds=2.0),
        _record("wave", seconds=10.0),
        _record("wave", "NUTS", seconds=1.0, **wrong),
    ]
    shown = table(records)
    assert "of 5 fits 4 are accurate; 1 are trusted though not accurate (ring), 1 of them" in shown
    assert "1 are accurate though not trusted" in shown
    assert "cold fit / NUTS: 3 posteriors" in shown
    assert "where NUTS is accurate: 2 posteriors, median 2.50" in shown
    assert "wave" not in shown.split("where NUTS is accurate")[1]


def _bench(tmp_path, records=(), **changes) -> accuracy.Bench:
    out = tmp_path / "records.jsonl"
    for record in records:
        write(out, record)
    defaults = {"set": "development", "cases": [], "methods": [OURS, "NUTS"], "seeds": 2}
    defaults |= {
        "out": out,
        "truths": tmp_path,
        "limit_s": None,
        "most_s": 9.0,
        "kinds": accuracy._KINDS,
    }
    bench = accuracy.Bench(Namespace(**defaults | changes), tmp_path)
    bench.children.names = lambda: ["ring", "diamonds"]
    return bench


def test_seed_0_comes_first_the_slow_cases_early_and_nothing_is_made_again(tmp_path):
    (tmp_path / "ring.npy").touch()
    done = [_record("ring", "NUTS"), _record("ring"), _record("ring", when="again")]
    bench = _bench(tmp_path, done)
    jobs = [tuple(job) for job in bench.jobs()]
    first = [("diamonds", "truth", 0), ("diamonds", OURS, 0), ("diamonds", "NUTS", 0)]
    assert jobs == [*first, ("ring", OURS, 0), ("diamonds", OURS, 1), ("ring", OURS, 1)]
    assert bench._missing(accuracy.Job("ring", OURS)) == ["other"]
    assert [bench.is_ready(accuracy.Job(*job)) for job in jobs] == [1, 0, 0, 1, 0, 1]


def test_a_case_without_a_truth_is_skipped_and_a_limit_ends_the_rest(tmp_path, capsys):
    bench = _bench(tmp_path, cases=["ring"])
    bench.children.truth = lambda case: "chains disagree"
    bench.children.measure = lambda *about: pytest.fail("no truth, no fit")
    slots.Crew(bench.jobs(), bench.run, bench.is_ready).work(slots.slots()[:1])
    assert "chains disagree" in capsys.readouterr().out
    late = _bench(tmp_path, cases=["ring"], limit_s=-1.0)
    late.children.truth = lambda case: pytest.fail("the time is over")
    slots.Crew(late.jobs(), late.run, late.is_ready).work(slots.slots()[:1])


def test_all_processes_of_seed_0_run_in_their_order(tmp_path):
    (tmp_path / "ring.npy").touch()
    bench, ran = _bench(tmp_path, cases=["ring"], methods=[OURS], seeds=1), []

    def measure(cache, child, when):
        ran.append((when, cache.name))
        cache.mkdir(parents=True, exist_ok=True)
        return [_record("ring", when=when)]

    def fill(cache, child, dim=None):
        ran.append(("fill", dim))
        cache.mkdir(parents=True)

    bench.children.measure, bench.children.fill = measure, fill
    bench.run(bench.jobs()[0])
    name = f"ring-{OURS}-0"
    assert ran == [("cold", name), ("again", name), ("fill", 2), ("other", f"{name}-other")]
    lines = bench.options.out.read_text().splitlines()
    assert [json.loads(line)["when"] for line in lines] == ["cold", "again", "other"]
    assert bench.jobs() == []


def test_jobs_wait_for_what_they_need():
    done: list[str] = []
    crew = slots.Crew("ba", done.append, lambda job: job == "a" or "a" in done)
    crew.work([slots.slots()[0]] * 2)
    assert done == ["a", "b"]
