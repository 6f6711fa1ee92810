"""Every example in a docstring or the README runs as printed."""

import ast
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ksivi

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)


def examples():
    for path in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                for i, code in enumerate(BLOCK.findall(ast.get_docstring(node) or "")):
                    name = f"{path.stem}.{getattr(node, 'name', '')}.{i}"
                    yield pytest.param(code, id=name)


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


@pytest.mark.slow
def test_readme_examples_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = BLOCK.findall((ROOT / "README.md").read_text())
    assert blocks
    names = {}
    for code in blocks:
        exec(code, names)
