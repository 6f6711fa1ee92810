"""The page of a run in a real browser: no errors, everything is visible, tables sort."""

import json
import re
import shutil
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ksivi
from ksivi.report import comparison_page, run_page
from ksivi.report._run_page import _worst_first
from test_verdicts import a_fit, doubted, moves

pytest.importorskip("matplotlib")
CHROMIUM = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)
browser = pytest.mark.skipif(CHROMIUM is None, reason="no chromium here")

PROBE = """
<script>
const boxes = [...document.querySelectorAll("figure svg, figure img")].map((e) => e.getBoundingClientRect());
const table = document.querySelector("table.sortable"), column = 1;
const values = () => [...table.tBodies[0].rows].map((row) => Number(row.cells[column].dataset.value));
table.tHead.rows[0].cells[column].click();
const rising = values();
table.tHead.rows[0].cells[column].click();
const text = document.querySelector("figure svg text");
const found = {
  figures: boxes.length,
  smallest: Math.min(...boxes.map((box) => Math.min(box.width, box.height))),
  overflow: document.documentElement.scrollWidth - window.innerWidth,
  rising, falling: values(),
  order: table.tHead.rows[0].cells[column].getAttribute("aria-sort"),
  ink: text ? getComputedStyle(text).fill : "", paper: getComputedStyle(document.body).backgroundColor,
  network: performance.getEntriesByType("resource").filter((entry) => /^http/.test(entry.name)).length,
};
document.body.innerHTML = "<pre id=found>" + JSON.stringify(found) + "</pre>";
</script>
"""


def look(html, tmp_path, width=1100, dark=False):
    """What a script in the page finds in headless Chromium after its clicks."""
    path = tmp_path / "page.html"
    path.write_text(html.replace("</body>", PROBE + "</body>"), encoding="utf-8")
    options = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--enable-logging=stderr",
        f"--window-size={width},1600",
    ]
    options += [
        f"--user-data-dir={tmp_path / 'profile'}",
        "--blink-settings=preferredColorScheme=0",
    ][: 2 if dark else 1]
    done = subprocess.run(
        [CHROMIUM, *options, "--dump-dom", path.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert "CONSOLE" not in done.stderr, done.stderr
    found = re.search(r"<pre id=\"found\">(.*?)</pre>", done.stdout, re.S)
    assert found, done.stdout[-2_000:]
    return json.loads(found.group(1))


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    def log_density(p):
        return -0.5 * jnp.sum((p["theta"] - 3.0) ** 2) - 0.5 * p["a & <b>"] ** 2

    target = ksivi.Target.from_pytree(
        log_density, {"theta": jnp.zeros(3), "a & <b>": jnp.zeros(())}
    )
    family = ksivi.SemiImplicit.mlp(jax.random.key(0), dim=4, mixing_dim=2, hidden=(16, 16))
    fit = ksivi.train(
        jax.random.key(1),
        target,
        family,
        ksivi.KSIVI(num_samples=50),
        num_steps=400,
        learning_rate=1e-2,
    )
    folder = tmp_path_factory.mktemp("run")
    ksivi.Record.of(fit, model="model.py:log_density", seed=1).write(folder)
    return ksivi.read_record(folder)


def test_the_page_says_what_was_run_and_needs_no_network(record):
    html = run_page(record)
    for words in (
        "Not checked",
        "step limit: ran all 400 steps",
        "model.py:log_density",
        "theta[2]",
        "a &amp; &lt;b&gt;",
    ):
        assert words in html
    assert "a & <b>" not in html
    assert not re.search(r'(src|href)="(https?:)?//', html)
    assert html == run_page(record)


def test_doubted_numbers_are_drawn_first():
    fit = a_fit(doubted(moves(3)), off=0.2)  # a number beyond the first ones
    name = next(row.name for row in fit.table() if row.against)
    draws = {row.name: np.zeros(3) for row in fit.table()}
    assert next(iter(draws)) != name
    assert next(iter(_worst_first(draws, fit.table()))) == name
    assert next(iter(_worst_first(draws, ()))) == next(iter(draws))


STYLED = """
import matplotlib, pathlib, sys
from ksivi.report import growing_curve
assert matplotlib.rcParams["text.usetex"] == (sys.argv[1] == "styled")
before = dict(matplotlib.rcParams)
pathlib.Path("page.html").write_text(growing_curve([1, 2, 3], [3.0, 2.0, 1.0]))
assert dict(matplotlib.rcParams) == before
"""


def test_a_matplotlibrc_in_the_current_folder_changes_no_figure(tmp_path):
    pages = []
    for name, style in (("plain", ""), ("styled", "text.usetex: True\nlines.linewidth: 30\n")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "matplotlibrc").write_text(style)
        command = [sys.executable, "-W", "error", "-c", STYLED, name]
        subprocess.run(command, cwd=tmp_path / name, check=True, timeout=120)
        pages.append((tmp_path / name / "page.html").read_text())
    assert pages[0] == pages[1]


@browser
@pytest.mark.parametrize(("width", "dark"), [(1100, False), (1100, True), (500, False)])
def test_the_page_in_a_browser(record, tmp_path, width, dark):
    found = look(run_page(record), tmp_path, width, dark)
    assert found["figures"] == 2 + 4 + 6  # loss and Stein ratio, marginals, pairs
    assert found["smallest"] > 80
    assert found["overflow"] <= 0
    assert found["network"] == 0
    assert found["rising"] == sorted(found["rising"])
    assert found["falling"] == sorted(found["rising"], reverse=True)
    assert found["order"] == "descending"
    assert len(set(found["rising"])) == 4
    ink, paper = (sum(map(int, re.findall(r"\d+", found[name])[:3])) for name in ("ink", "paper"))
    assert (ink > paper) == dark


@browser
def test_the_page_of_a_comparison(tmp_path):
    methods = {
        name: {
            "status": "step limit: all",
            "sliced_wasserstein": w,
            "seconds": s,
            "steps": 10,
            "score_evals": 100,
        }
        for name, w, s in (("ksivi", 0.02, 3.0), ("svgd", None, 2.0), ("nuts", 0.01, 9.0))
    }
    html = comparison_page({"problem": "banana", "floor": 0.01, "methods": methods}, None)
    assert "banana: a comparison" in html
    found = look(html, tmp_path)
    assert found["rising"] == [0.01, 0.02, 0]  # the method without a distance comes last
    assert found["figures"] == 0
    assert found["order"] == "descending"


def test_a_record_that_is_not_whole_is_refused(record, tmp_path):
    with pytest.raises(ValueError, match="must be the folder of a finished"):
        ksivi.read_record(tmp_path)
    record.write(tmp_path / "run")
    same = ksivi.read_record(tmp_path / "run")
    assert jnp.array_equal(
        same.posterior.sample(jax.random.key(0), 5), record.posterior.sample(jax.random.key(0), 5)
    )
    for damage in (b"no", b"", b"PK\x03\x04"):
        (tmp_path / "run" / "history.npz").write_bytes(damage)
        with pytest.raises(ValueError, match="damaged record"):
            ksivi.read_record(tmp_path / "run")
    record.write(tmp_path / "run")
    (tmp_path / "run" / "fit.json").write_text(json.dumps({"format": 99}))
    with pytest.raises(ValueError, match="must be a record of format 1"):
        ksivi.read_record(tmp_path / "run")
