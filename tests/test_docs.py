"""Documents: every example runs, the reference is complete, and pages stay short and free of private names."""

import ast
import importlib
import inspect
import json
import pkgutil
import re
import runpy
import typing
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ksivi

ROOT = Path(__file__).parents[1]
USER_PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PRIVATE = re.compile(r"\bksivi(?:_paper)?(?:\.\w+)*\._\w+|from ksivi[\w.]* import [^\n]*\b_\w+")
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)
LONG = re.compile(
    r"(fit|compare|reference_draws|NUTS|MALA|train|run|calibrate|gradient_variance)\("
)
"""Calls in docstrings that take seconds."""


def examples():
    for path in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                for i, code in enumerate(BLOCK.findall(ast.get_docstring(node) or "")):
                    name = f"{path.stem}.{getattr(node, 'name', '')}.{i}"
                    is_long = LONG.search(code) and name not in ("_train.train.0", "_run.run.0")
                    marks = [pytest.mark.slow] if is_long else []
                    yield pytest.param(code, id=name, marks=marks)


@pytest.fixture(scope="module")
def fit():
    target = ksivi.Target(lambda x: -0.5 * jnp.sum(x**2), dim=2)
    family = ksivi.SemiImplicit.location_scale(2)
    return target, ksivi.train(
        jax.random.key(0), target, family, ksivi.KSIVI(num_samples=10), num_steps=2
    )


@pytest.mark.parametrize("code", list(examples()))
def test_docstring_examples_run(code, fit, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fit[1].posterior.save("post.safetensors")
    exec(code, {"ksivi": ksivi, "jax": jax, "jnp": jnp, "np": np, "target": fit[0], "fit": fit[1]})


def test_public_names_have_docstrings():
    for module in (ksivi, ksivi.kernels, ksivi.families, ksivi.metrics, ksivi.problems):
        for name in module.__all__:
            assert getattr(module, name).__doc__, f"{module.__name__}.{name}"


def run_page(path):
    """All blocks of a page, in order and in one namespace."""
    blocks = BLOCK.findall(path.read_text())
    assert blocks
    names = {}
    for code in blocks:
        exec(code, names)


def quick_fit(key, target, *, init=None, callbacks=(), mesh=None, progress=None):
    """Replaces `ksivi.fit` by a few steps of training. Pages are tested for what they do with a fit.

    The seconds of `ksivi.fit` are search, compilation and checks, and pages have many fits.
    """
    family = (
        ksivi.SemiImplicit.location_scale(target.dim) if init is None else init.posterior.family
    )
    return ksivi.train(
        key,
        target,
        family,
        ksivi.SIVI(num_samples=10, num_mixing=0),
        num_steps=5,
        callbacks=callbacks,
        mesh=mesh,
        progress=progress,
    )


NEEDS = {
    "arviz": ["numpyro", "arviz"],
    "blackjax": ["blackjax"],
    "numpyro": ["numpyro", "arviz"],
    "calibrate": ["numpyro", "matplotlib"],
    "check-a-model": ["numpyro", "matplotlib"],
    "compare-models": ["numpyro", "arviz", "pandas"],
    "pymc": ["pymc", "bambi", "arviz"],
    "pytorch": ["torch"],
    "minibatches": ["blackjax", "numpyro", "pandas"],
    "compare": ["blackjax", "ot"],
    "methods": ["blackjax", "ot"],
    "extend": ["blackjax", "ot"],
    "supports": ["numpyro"],
    "terminal": ["matplotlib"],
}
SLOW = {
    "black-box",
    "calibrate",
    "check-a-model",
    "checkpoints",
    "compare",
    "compare-models",
    "devices",
    "extend",
    "gpu",
    "methods",
    "minibatches",
    "numpyro",
    "pymc",
    "train",
}
"""Pages that train for long, several times or on several devices, or run NUTS."""


@pytest.mark.slow
@pytest.mark.filterwarnings(
    "ignore:Estimated shape parameter:UserWarning"
)  # ArviZ's, at a few draws in a thousand
@pytest.mark.parametrize("page", ["README.md", "docs/tutorial.md"])
def test_the_readme_and_the_tutorial_run_as_printed(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_page(ROOT / page)


def pages():
    docs = ROOT / "docs"
    guides = [docs / f"{name}.md" for name in ("index", "fit", "supports", "troubleshooting")]
    for path in [*guides, *sorted((docs / "how-to").glob("*.md"))]:
        marks = [pytest.mark.slow] if path.stem in SLOW else []
        yield pytest.param(path, id=path.stem, marks=marks)


@pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS")  # on some machines
@pytest.mark.filterwarnings("ignore:invalid value encountered in divide")  # few steps: only zeros
@pytest.mark.parametrize("path", list(pages()))
def test_pages_run_with_a_quick_fit(path, tmp_path, monkeypatch):
    for package in NEEDS.get(path.stem, []):
        pytest.importorskip(package, reason=f"{package} is not installed")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ksivi, "fit", quick_fit)
    monkeypatch.setattr("ksivi.calibration._calibrate.run_fit", quick_fit)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    run_page(path)


def test_the_notebook_is_the_tutorial():
    """`make notebook` makes it."""
    script = runpy.run_path(str(ROOT / "scripts" / "notebook.py"))
    assert json.loads(script["NOTEBOOK"].read_text()) == script["notebook"](
        script["SOURCE"].read_text()
    )


def public_packages():
    """The package, and every package in it that users import. `ksivi --help` is the reference of `cli`."""
    folders = sorted(path.parent.name for path in (ROOT / "src" / "ksivi").glob("*/__init__.py"))
    names = [name for name in folders if not name.startswith("_") and name != "cli"]
    return [ksivi, *(importlib.import_module(f"ksivi.{name}") for name in names)]


def shown_in_the_reference():
    """What the pages of the reference show, by its path there."""
    pages = "\n".join(path.read_text() for path in (ROOT / "docs" / "api").glob("*.md"))
    paths = re.findall(r"^::: (ksivi[\w.]*)$", pages, re.MULTILINE)
    assert len(paths) > 100
    return {path: pkgutil.resolve_name(path) for path in paths}


@pytest.mark.parametrize("package", public_packages(), ids=lambda package: package.__name__)
def test_the_reference_has_every_public_name(package):
    """Packages themselves are no entries: their names are."""
    shown = {id(one) for one in shown_in_the_reference().values()}
    packages = {id(one) for one in public_packages()}
    for name in package.__all__:
        public = getattr(package, name)
        assert id(public) in shown | packages, f"docs/api lacks {package.__name__}.{name}"


def test_what_the_reference_shows_has_docstrings():
    for path, public in shown_in_the_reference().items():
        is_value = isinstance(public, tuple) or typing.get_origin(public) is not None
        assert is_value or inspect.getdoc(public), path


@pytest.mark.parametrize("page", ["README.md", "docs/index.md"])
def test_the_first_pages_are_short(page):
    assert len((ROOT / page).read_text().split()) <= 700


def test_the_design_is_short():
    assert len((ROOT / "docs" / "design.md").read_text().splitlines()) <= 200


@pytest.mark.parametrize("path", USER_PAGES, ids=lambda path: path.stem)
def test_pages_name_no_private_module(path):
    assert not PRIVATE.findall(path.read_text())


def test_private_modules_are_found():
    assert PRIVATE.search("from ksivi.kernels._distances import squared_euclidean")
    assert PRIVATE.search("from ksivi.kernels import _distances")
    assert PRIVATE.search("ksivi._core.checks")
    assert not PRIVATE.search("from ksivi.kernels import Gaussian; ksivi.Target.from_data")


def texts_of_fit():
    """All text constants in the source of `fit`."""
    for path in (ROOT / "src" / "ksivi" / "auto").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


def tables_of_doubts():
    """The section of docs/fit.md with the table of doubts, and the table of endings behind it."""
    return (ROOT / "docs" / "fit.md").read_text().partition("## What to do about each doubt")[2]


def documented_doubts():
    """The sentences in the first column of the tables of docs/fit.md, cut at … and behind their subject."""
    for doubt in re.findall(r"^\| `(.+?)` \|", tables_of_doubts(), re.MULTILINE):
        yield [
            part.strip() for part in re.split(r"…|(?<=HMC)(?= move)|(?<=weights)(?= move)", doubt)
        ]


def test_documented_doubts_are_written_so_in_the_source():
    texts, doubts = list(texts_of_fit()), list(documented_doubts())
    assert len(doubts) >= 15
    for doubt in doubts:
        for part in doubt:
            assert any(part in text for text in texts), (
                f"docs/fit.md has a doubt that fit does not raise: {doubt}"
            )


def returned_texts(source):
    """The text constants anywhere below a `return`, without the formats of numbers, as in `:.1%`."""
    for returned in [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Return)]:
        formatted = [node for node in ast.walk(returned) if isinstance(node, ast.FormattedValue)]
        formats = {id(x) for one in formatted if one.format_spec for x in ast.walk(one.format_spec)}
        for node in ast.walk(returned):
            is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
            if is_text and id(node) not in formats:
                yield node.value.strip(" :;,%")


def test_every_doubt_of_fit_is_documented():
    """Each function of _doubts.py that returns a sentence has a row in the table of docs/fit.md."""
    table = tables_of_doubts().partition("Some endings")[0]
    rows = "\n".join(re.findall(r"^\| `(.+?)` \|", table, re.MULTILINE))
    for text in returned_texts((ROOT / "src" / "ksivi" / "auto" / "_doubts.py").read_text()):
        assert text in rows, f"the table of doubts in docs/fit.md lacks: {text}"


def test_the_doubt_of_the_example_is_found():
    """The check that docs/how-to/extend.md writes returns its sentence from a conditional."""
    page = (ROOT / "docs" / "how-to" / "extend.md").read_text()
    example = page.partition("## A check of `fit`")[2].partition("```{.python .no-run}\n")[2]
    found = list(returned_texts(example.partition("```")[0]))
    assert found == ["only", "of the importance weights count"]
