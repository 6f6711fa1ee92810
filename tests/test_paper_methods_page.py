"""The page of all methods from records alone: every number where it belongs, and gaps where nothing has run."""

from pathlib import Path

import pytest

pytest.importorskip("matplotlib")

import ksivi_paper as paper
from kept_records import keep
from ksivi_paper import Folder
from ksivi_paper.methods import methods
from ksivi_paper.records import plain
from ksivi_paper.report import method_numbers as numbers
from ksivi_paper.report.index import RecordIndex

FLOOR = {"sliced_w2": 0.1, "kl": -0.001, "log_kde": 75.2}


def record(name, rows, *, status=None, preset="paper", training=50.0):
    """A record as the runner writes it, but for its numbers."""
    cell = next(cell for cell in methods(preset) if cell.name == name)
    floor = {} if "rmse" in rows[0] else {"floor": FLOOR}
    return {
        "experiment": cell.experiment,
        "cell": name,
        "spec": plain(cell.spec),
        "numbers": {"rows": rows} | floor,
        "status": status or ["step limit: ran all steps"] * len(rows),
        "notes": {},
        "seconds": {"training": training, "a_step": 0.0004, "measuring": 1.0},
        "device": "NVIDIA H200, JAX 0.11.2",
        "versions": {"jax": "0.11.2"},
        "finished": "2026-11-20",
    }


def runs(*values, **others):
    return [
        {"seed": i, "step": 9, "sliced_w2": value, "sliced_w2_sd": 0.01, **others}
        for i, value in enumerate(values)
    ]


def scores(*values):
    return [{"seed": i, "rmse": value, "nll": 2.6} for i, value in enumerate(values)]


def few():
    """Few records, so that every table has gaps."""
    return [
        record("banana-ksivi", runs(0.1, 0.2, 0.3, kl=0.05)),
        record("banana-kpg", runs(0.2, 1.1, None, kl=None)),
        record("student-t-ksivi", runs(0.2, 0.4, kl=0.1), status=["", "diverged at step 9"]),
        record("diffusion-100-pvi", runs(0.2, 0.2, log_kde=47.853)),
        record("boston-released-released-aisivi", scores(3.0, 3.2)),
        record("boston-released-released-ksivi", scores(2.5, 2.5)),
    ]


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    out = tmp_path_factory.mktemp("results")
    return paper.write_methods(keep(out / "paper", few()), out / "methods.md")


@pytest.mark.parametrize(
    "line",
    [
        # sliced W₂ and KL of the toys, with their floors
        "| KSIVI | 0.2000 ± 0.1000 | – | – | 0.3000 ± 0.1414 † [1] | – |",
        "| KPG | 0.6500 ± 0.6364 (1 of 3 not finite) | – | – | – | – |",
        "| *truth against itself* | 0.1000 | – | – | 0.1000 | – |",
        "| KSIVI | 0.0500 ± 0.0000 | – | – | 0.1000 ± 0.0000 † | – |",
        "| AISIVI | 37.000 | 0.037 | 0.191 |",
        # the diffusions, and published numbers beside ours
        "| PVI | – | – | 0.2000 ± 0.0000 | – |",
        "| PVI | – | – | – | 47.85 ± 0.00 | – |",
        "| PVI | 47,853 | 47,853 | 47.853 | – |",
        "| AISIVI | – | – | – | 74.740 |",
        # the networks
        "| AISIVI | 3.100 ± 0.141 (3.294) | – (8.243) | – (4.007) | – (0.625) | – (2.539) | – (4.934) |",
        "| KPG | – | – | – | – | – | – |",
        # runs that failed: above 10 floors, not finite, diverged
        "| KPG | 2 of 3" + " | –" * 14 + " | 2 of 3 |",
        "| KSIVI | 0 | – | – | 1 of 2" + " | –" * 5 + " | 0" + " | –" * 5 + " | 1 of 7 |",
        # seconds: 50 in all, 20 of them in 50,000 steps of three runs
        "| KPG | 37" + " | –" * 14 + " |",
        "| KPG | 0.4" + " | –" * 8 + " |",
    ],
)
def test_a_number_stands_where_it_belongs(page, line):
    assert line in page.read_text().splitlines()


def test_the_page_says_what_it_is_and_what_is_missing(page):
    text = page.read_text()
    assert "ksivi paper run methods\n" in text
    assert "| [1] | student-t/ksivi | Runs that end too wide" in text
    assert "[2] |" not in text  # a remark on a cell that has not run
    missing = text.split("## What is missing")[1]
    assert missing.count(",") == 13 * 15 + 9 - len(few()) - 1
    assert "robust/banana," in missing
    assert "banana-ksivi-u" in missing


def test_the_figure_is_there_and_the_same_every_time(page, tmp_path):
    figure = page.parent / "methods/figures/all-methods.png"
    assert "(methods/figures/all-methods.png)" in page.read_text()
    again = paper.write_methods(keep(tmp_path / "paper", few()[::-1]), tmp_path / "methods.md")
    assert again.read_bytes() == page.read_bytes()
    assert (tmp_path / "methods/figures/all-methods.png").read_bytes() == figure.read_bytes()


def test_the_figure_shows_medians_in_floors():
    index = RecordIndex(few(), "paper", {"methods": methods})
    assert numbers.in_floors(index, "banana", "ksivi") == pytest.approx(2.0)
    assert numbers.in_floors(index, "banana", "kpg") == pytest.approx(11.0)
    assert numbers.in_floors(index, "banana", "pvi") is None
    assert numbers.seconds(index, "boston", "ksivi").a_run == 25.0


def test_pages_do_not_show_each_others_records(tmp_path):
    """The paper's page has no cell of this one, and a folder without its records makes no page."""
    folder = keep(tmp_path / "paper", few())
    text = paper.write_report(folder, tmp_path / "paper.md").read_text()
    assert "kpg" not in text.lower()
    assert "| **all** | 199 | 1 |" in text
    only_papers = keep(tmp_path / "other/paper", few()[-1:])
    assert paper.write_methods(only_papers, tmp_path / "methods.md") is None


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("eight-gaussians-pvi", {"PVI": 2}),
        pytest.param("friedman-released-paper-kpg", {"KPG": 2}, marks=pytest.mark.slow),
        pytest.param("waveform-aisivi", {"AISIVI": 2}, marks=pytest.mark.slow),
    ],
)
def test_a_cell_of_a_smoke_run_end_to_end(tmp_path, capsys, name, rows):
    """The cell through the runner, then the command that writes the pages."""
    from ksivi.cli import app

    cells = [cell for cell in methods("smoke") if cell.name == name]
    done = paper.run_cells(cells, Folder(tmp_path / "smoke"))
    assert [one.state for one in done] == ["measured"]
    with pytest.raises(SystemExit) as exit:
        app(["paper", "report", "--out", str(tmp_path)])
    assert exit.value.code == 0
    lines = (tmp_path / "smoke-methods.md").read_text().splitlines()
    assert any("Its numbers mean nothing" in line for line in lines)
    for label, tables in rows.items():
        found = [line for line in lines if line.startswith(f"| {label} |") and "±" in line]
        assert len(found) == tables
    assert (tmp_path / "smoke-methods/figures/all-methods.png").is_file()


@pytest.mark.slow
def test_the_committed_page_is_that_of_the_records(tmp_path):
    """As for the paper's page; until cells have run there is neither."""
    results = Path(__file__).parents[1] / "results"
    made = paper.write_methods(Folder(results / "paper"), tmp_path / "methods.md")
    committed = results / "methods.md"
    assert (made is not None) == committed.is_file()
    assert made is None or made.read_text() == committed.read_text()
