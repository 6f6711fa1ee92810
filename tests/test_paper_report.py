"""The report of the paper's experiments: from records alone, the same every time, and honest about
what is missing."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("matplotlib")

import ksivi_paper as paper
from kept_records import keep
from ksivi_paper import EXPERIMENTS, headline, write_report
from ksivi_paper.report.index import Entry, RecordIndex, Spread
from ksivi_paper.report.notes import Notes, verdict
from ksivi_paper.report.summary import BEGIN, END

RNG = np.random.default_rng(0)
FLOOR = {"sliced_w2": 0.0332, "sliced_w1": 0.0237, "kl": -0.001, "mmd": 0.03, "boxed_5": 0.0225}


def record(
    path,
    numbers,
    *,
    preset="paper",
    status=("step limit: ran all 10 steps",) * 3,
    notes=None,
    seconds=10.0,
):
    """A record as the runner writes it, of the cell at a path, but for its numbers."""
    experiment, name = path.split("/")
    cell = next(cell for cell in EXPERIMENTS[experiment](preset) if cell.name == name)
    return {
        "experiment": experiment,
        "cell": name,
        "spec": json.loads(json.dumps(cell.spec)),
        "numbers": numbers,
        "status": list(status),
        "notes": notes or {},
        "seconds": {"training": seconds, "a_step": 0.0005, "measuring": 1.0},
        "device": "NVIDIA H200",
        "versions": {"python": "3.11.7", "jax": "0.10.2"},
        "finished": "2026-11-15",
    }


def trained(values, shown=None, step=20_000, field="sliced_w2"):
    rows = [
        {"seed": i, "learning_rate": 0.001, "step": step, field: v} for i, v in enumerate(values)
    ]
    return {
        "rows": rows,
        "floor": FLOOR,
        "losses": [[3.0, 1.0]] * len(values),
        "shown": shown or {},
    }


def chains(seed):
    draws = np.random.default_rng(seed).normal(size=(400, 3)).round(3).tolist()
    return {
        "rows": [{"seed": 0, "sliced_w2": 0.0337}],
        "floor": FLOOR,
        "shown": {"all-draws": {"draws": draws}},
    }


def band(width):
    return {
        "mean": [0.0, 0.5, 1.0],
        "low": [-width, 0.5 - width, 1 - width],
        "high": [width, 0.5 + width, 1 + width],
    }


def one_of_each():
    """Few records, so that every table has gaps, and every figure something to show."""
    draws = RNG.normal(size=(60, 7)).round(3).tolist()
    points = {
        "draws": {"draws": draws, "truth": draws},
        "correlations": {"draws": [0.1, 0.4, 0.5], "truth": [0, 0.3, 0.6]},
    }
    histogram = {
        "histogram": {
            "low": [-4, -2],
            "high": [4, 15],
            "counts": RNG.integers(0, 9, (8, 8)).tolist(),
        }
    }
    toys = trained([0.02, 0.03, 0.04], histogram, 50_000, "kl")
    toys["rows"] += [{**row, "step": 1_000, "kl": 1.0} for row in toys["rows"]]
    smooth = {"z_norm": [1.0, 3.0], "jacobian": [[2.0, 8.0], [4.0, 8.0]], "lipschitz": [[1.0, 1.0]]}
    smoothness = {
        "rows": [{"seed": 0, "step": step} for step in (1_000, 20_000)],
        "shown": {"smoothness": smooth},
    }
    sizes = [{"n": n, "variance": 800 / n, "error": 8 / n, "seconds": 0.001} for n in (8, 16, 32)]
    scores = [
        {"seed": i, "rmse": 2.5 + i / 10, "nll": 2.6, "log_gamma": -2.5, "log_lambda": -0.9}
        for i in range(3)
    ]
    boxes = [
        {"seed": i, "boxed_5": v, "boxed_8": 0.08, "boxed_10": None}
        for i, v in enumerate((0.04, 0.05, 0.06))
    ]
    chosen = {"chosen": {"learning_rate": 0.001, "weight": 0.01, "tried": []}}
    return [
        record("toys/banana-ksivi", toys),
        record("waveform/ksivi", trained([0.09, 0.1, 0.11], points)),
        record("waveform/uivi", trained([0.09, 0.1, 0.11]), seconds=500.0),
        *(record(f"waveform/{name}", chains(i)) for i, name in enumerate(("sgld", "mala"))),
        record(
            "diffusion/100-released-ksivi",
            trained([0.01] * 3, {"band": {"draws": band(1.0), "truth": band(0.9)}}),
        ),
        record("bnn/boston-released-released-ksivi", {"rows": scores}, notes=chosen),
        record("bnn/boston-released-paper-ksivi", {"rows": scores}, notes=chosen),
        record(
            "student-t/ksivi-riesz",
            {"rows": boxes, "floor": FLOOR},
            status=["diverged at step 9", "", ""],
        ),
        record("smoothness/ksivi", smoothness, status=["step limit"]),
        record("estimators/ksivi-fixed", {"rows": sizes}, status=[]),
    ]


@pytest.fixture(scope="module")
def records():
    return one_of_each()


@pytest.fixture(scope="module")
def page(records, tmp_path_factory):
    out = tmp_path_factory.mktemp("results")
    return write_report(keep(out / "paper", records), out / "paper.md")


@pytest.mark.parametrize(
    "line",
    [
        "| logistic regression (waveform), sliced W₂ | 0.1000 ± 0.0100 ≈[^waveform-ksivi] | 0.0965 | 0.0332 | 3 |",
        "| conditioned diffusion, d = 100, sliced W₂ | 0.0100 ± 0.0000 ✓ | 0.0115 | 0.0332 | 3 |",
        "| conditioned diffusion, d = 50, sliced W₂ | – | 0.0140 | – | – |",
        "| network, boston, test RMSE | 2.600 ± 0.100 ≈ | 2.555 | – | 3 |",
        "| network, boston, test NLL | 2.600 ± 0.000 ✗ | 2.506 | – | 3 |",
        "| banana | KSIVI | 0.0300 ± 0.0100 | – | – | 3 |",
        "| banana | *truth against itself* | −0.0010 | 0.0300 | 0.0332 | – |",
        "| MALA | 0.0337 | 0.0332 |",
        "| KSIVI | – | 56.67 | 5.00 (×3) | 90.48 | – | 107.84 |",
        "| boston, released form | 0.001, w = 0.01 | – | – | – | – |",
        "| boston | −2.556 | −2.500 | – | −1.004 | −0.900 | – |",
        "| KSIVI | ‖∂μ/∂φ‖ | 1,000 | 2.00 |",
        "| KSIVI, fixed | −1.000 ± 0.000 | −1.000 ± 0.000 | 32 | 25 ± 0.25 | 1 | 1,000 |",
        "| waveform | 11 | 4 | 30 | 500 |",
        "- waveform (7): ksivi-u, sivi, sivi-sm, step-sizes-ksivi, step-sizes-sivi-sm, ksivi-averaged, ksivi-40k",
        "- student-t/ksivi-riesz: 1 of 3 runs (diverged at step 9)",
        "- bnn/boston-released-released-ksivi/nll",
    ],
)
def test_a_number_stands_where_it_belongs(page, line):
    assert line in page.read_text().splitlines()


def test_runs_that_failed_are_named(page):
    row = next(
        line for line in page.read_text().splitlines() if line.startswith("| KSIVI, Riesz kernel |")
    )
    assert "0.0500 ± 0.0100 † ≈[^student-t-ksivi-riesz] | 0.0451 ± 0.01" in row
    assert "not finite ✗[^student-t-ksivi-riesz] | 0.1136 ± 0.05" in row


def test_chains_agree_in_words(page):
    """Draws of one distribution: a divergence near 0."""
    found = re.search(
        r"from the tenth nearest neighbours: (\S+) \(paper: 0.0289\)", page.read_text()
    )
    assert abs(float(found[1].replace("−", "-"))) < 0.1


def test_every_figure_is_there_and_linked(page):
    figures = sorted((page.parent / "paper" / "figures").glob("*.png"))
    assert len(figures) == 10 - 1  # no record here has MMD
    assert all(f"(paper/figures/{figure.name})" in page.read_text() for figure in figures)
    assert all(b"Software" not in figure.read_bytes() for figure in figures)


def test_the_same_records_make_the_same_files(page, records, tmp_path):
    again = write_report(keep(tmp_path / "paper", reversed(records)), tmp_path / "paper.md")
    assert again.read_bytes() == page.read_bytes()
    for figure in (page.parent / "paper" / "figures").glob("*.png"):
        assert (tmp_path / "paper" / "figures" / figure.name).read_bytes() == figure.read_bytes(), (
            figure.name
        )


def test_a_smoke_run_says_so_and_any_subset_will_do(tmp_path):
    numbers = trained([0.2, 0.3], step=100)
    place = keep(tmp_path / "smoke", [record("waveform/sivi", numbers, preset="smoke")])
    text = write_report(place, tmp_path / "smoke.md").read_text()
    assert "Its numbers mean nothing" in text.split("##")[0]
    assert "d = 50 | paper |" in text
    assert "d = 100 | paper |" not in text
    assert not (tmp_path / "smoke" / "figures").exists()


def test_a_record_of_other_settings_is_named(tmp_path):
    old = record("waveform/ksivi", trained([0.1]))
    old["spec"]["seeds"] = 1
    assert [one["cell"] for one in RecordIndex([old]).outdated] == ["ksivi"]
    assert RecordIndex([record("waveform/ksivi", trained([0.1]))]).outdated == []


def test_a_record_from_before_a_plan_had_a_field_has_its_default():
    old = record("waveform/ksivi", trained([0.1]))
    assert old["spec"]["plan"].pop("annealed_share") == 0.5
    assert RecordIndex([old]).outdated == []
    old["spec"]["plan"]["annealed_share"] = 0.2
    assert [one["cell"] for one in RecordIndex([old]).outdated] == ["ksivi"]


def test_the_headline_stands_alone(records):
    text = headline(records)
    assert text.startswith("| KSIVI on | ours | paper |")
    assert "0.1000 ± 0.0100 ≈[^waveform-ksivi] | 0.0965 | 0.0332 | 3 |" in text
    assert "minus one standard deviation" in text


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ((0.0965, 0.0965), "✓"),
        ((0.09654, 0.09654), "✓"),  # as the paper rounds
        ((0.0966, 0.0966), "✗"),
        ((0.09, 0.11), "≈"),
        ((0.09, None), "✗"),
        ((None,), "✗"),
    ],
)
def test_the_rule(values, expected):
    assert verdict(Spread(values), 0.0965, 4) == expected


def test_remarks_become_footnotes_of_what_is_not_as_good():
    notes = Notes({"bnn/yacht-*/nll": "Yacht is small.", "bnn": "Networks."})
    bad, good = Spread((2.0, 2.0)), Spread((1.0, 1.0))

    def entry(name, field):
        return Entry("bnn", name, field, 1.5, 3)

    assert notes.mark(entry("yacht-released-paper-ksivi", "nll"), bad) == " ✗[^bnn-yacht-nll]"
    assert notes.mark(entry("wine-released-paper-ksivi", "nll"), bad) == " ✗[^bnn]"
    assert notes.mark(entry("wine-released-paper-sivi", "nll"), bad) == "[^bnn]"
    assert notes.mark(entry("wine-released-paper-sivi", "nll"), good) == ""
    assert notes.mark(Entry("waveform", "ksivi", paper=0.1), bad) == " ✗"
    assert notes.footnotes() == ["[^bnn-yacht-nll]: Yacht is small.", "[^bnn]: Networks."]
    assert notes.unexplained == ["waveform/ksivi"]


def test_the_headline_is_put_between_its_marks(tmp_path):
    path = tmp_path / "page.md"
    path.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    for _ in range(2):
        paper.embed(path, one_of_each())
    text = path.read_text()
    assert text.startswith(f"before\n{BEGIN}\n")
    assert text.endswith(f"{END}\nafter\n")
    assert "old" not in text
    assert text.count(paper.headline(one_of_each())) == 1
    path.write_text("no marks")
    with pytest.raises(ValueError, match=r"page\.md must contain the lines"):
        paper.embed(path, [])


def test_the_reproduction_page_shows_the_records():
    """The table in docs/reproduction.md is made from the committed records."""
    root = Path(__file__).parents[1]
    page = (root / "docs" / "reproduction.md").read_text()
    assert paper.headline(paper.Folder(root / "results" / "paper").records()) in page


@pytest.mark.slow
def test_the_page_is_that_of_the_records(tmp_path):
    """The committed page is what the committed records make."""
    root = Path(__file__).parents[1]
    paper.write_report(paper.Folder(root / "results" / "paper"), tmp_path / "paper.md")
    assert (tmp_path / "paper.md").read_text() == (root / "results" / "paper.md").read_text()
