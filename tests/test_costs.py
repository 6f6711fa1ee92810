"""The tables of docs/when.md are those of the records."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import costs
from benchmarks.accuracy_report import read
from benchmarks.big import records

ROOT = Path(__file__).parents[1]


def _run(seconds, **changes):
    row = {"problem": "poisson-300", "method": "ksivi.fit", "platform": "cpu", "dim": 302}
    return {**row, "seconds": seconds, "limit_s": 60, "trusted": True, **changes}


def test_a_posterior_has_medians_of_its_seeds():
    nuts = {"method": "NUTS", "trusted": None}
    rows = [_run(9), _run(30, trusted=False), _run(11), _run(40, platform="cuda")]
    rows += [_run(70, accurate_s=20, **nuts), _run(70, accurate_s=30, **nuts)]
    (found,) = costs.costs(rows)
    assert found == costs.Cost("poisson-300", 302, None, 11, 40, "2 of 3", 25, None)
    (stopped,) = costs.costs([_run(9), _run(61, accurate_s=None, **nuts)])
    assert (stopped.nuts, stopped.limit) == (None, 60)


def test_every_posterior_with_a_fit_is_in_the_table():
    large = records(ROOT / "benchmarks" / "records" / "big.jsonl")
    fitted = {
        row["problem"] for row in large if (row["method"], row["platform"]) == ("ksivi.fit", "cpu")
    }
    assert {one.name for one in costs.costs(large)} == fitted


def test_the_page_is_made_from_the_records():
    """If this fails, records are new: run `python -m benchmarks.costs`."""
    folder, text = ROOT / "benchmarks" / "records", (ROOT / "docs" / "when.md").read_text()
    made = costs.tables(records(folder / "big.jsonl"), read(folder / "accuracy.jsonl"))
    assert costs.page(text, made) == text


def test_a_new_table_takes_the_place_of_the_old_one():
    text = f"before\n{costs.BEGIN}\nold\n\n{costs.END}after\n"
    once = costs.page(text, "| new |\n")
    assert once == f"before\n{costs.BEGIN}\n| new |\n\n{costs.END}after\n"
    assert costs.page(once, "| new |\n") == once
