"""Every example in a docstring, the README or the pages of docs/ runs."""

import ast
import json
import re
import runpy
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ksivi

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)
LONG = re.compile(r"ksivi\.(fit|reference_draws|NUTS|MALA)\(")
"""Calls in docstrings that take seconds."""


def examples():
    for path in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                for i, code in enumerate(BLOCK.findall(ast.get_docstring(node) or "")):
                    name = f"{path.stem}.{getattr(node, 'name', '')}.{i}"
                    marks = [pytest.mark.slow] if LONG.search(code) else []
                    yield pytest.param(code, id=name, marks=marks)


@pytest.fixture(scope="module")
def fit():
    target = ksivi.Target(lambda x: -0.5 * jnp.sum(x**2), dim=2)
    family = ksivi.SemiImplicit.location_scale(2)
    return target, ksivi.train(jax.random.key(0), target, family, ksivi.KSIVI(num_samples=10), num_steps=2)


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


def brief_fit(key, target, *, init=None, callbacks=()):
    """In place of `ksivi.fit`, most of whose minute is search, compilation and checks, however few its steps.

    A few steps of training: what a page does with a fit is tried, not the fit.
    """
    family = ksivi.SemiImplicit.location_scale(target.dim) if init is None else init.posterior.family
    return ksivi.train(key, target, family, ksivi.SIVI(num_samples=10, num_mixing=0), num_steps=5, callbacks=callbacks)


NEEDS = {
    "numpyro": ["numpyro", "arviz"],
    "pymc": ["pymc", "arviz"],
    "pytorch": ["torch"],
    "minibatches": ["blackjax", "numpyro"],
    "compare": ["blackjax", "ot"],
    "extend": ["blackjax", "ot"],
    "terminal": ["matplotlib"],
}
SLOW = {"black-box", "checkpoints", "compare", "devices", "extend", "gpu", "minibatches", "numpyro"}
"""Pages that train at length, several times or on several devices, or run NUTS."""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Estimated shape parameter:UserWarning")  # ArviZ's, at a few draws in a thousand
@pytest.mark.parametrize("page", ["README.md", "docs/tutorial.md"])
def test_the_readme_and_the_tutorial_run_as_printed(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_page(ROOT / page)


def pages():
    for path in [ROOT / "docs" / "index.md", *sorted((ROOT / "docs" / "how-to").glob("*.md"))]:
        marks = [pytest.mark.slow] if path.stem in SLOW else []
        yield pytest.param(path, id=path.stem, marks=marks)


@pytest.mark.parametrize("path", list(pages()))
def test_pages_run_with_a_brief_fit(path, tmp_path, monkeypatch):
    for package in NEEDS.get(path.stem, []):
        pytest.importorskip(package, reason=f"{package} is not installed")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ksivi, "fit", brief_fit)
    run_page(path)


def test_the_notebook_is_the_tutorial():
    """`make notebook` makes it."""
    script = runpy.run_path(str(ROOT / "scripts" / "notebook.py"))
    assert json.loads(script["NOTEBOOK"].read_text()) == script["notebook"](script["SOURCE"].read_text())


def test_the_reference_has_every_public_name():
    pages = "\n".join(path.read_text() for path in (ROOT / "docs" / "api").glob("*.md"))
    shown = re.findall(r"^::: (ksivi[\w.]*)$", pages, re.MULTILINE)
    rooms = ("calibration", "diagnostics", "families", "kernels", "metrics", "problems", "report")
    names = {"": ksivi.__all__} | {room: getattr(ksivi, room).__all__ for room in rooms}
    for room, public in names.items():
        found = {name.rpartition(".")[2] for name in shown if name.startswith(f"ksivi.{room}")}
        assert not set(public) - found - set(rooms), f"docs/api lacks names of ksivi.{room}"
