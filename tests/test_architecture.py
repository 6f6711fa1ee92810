"""The house: which room may import which, what the core may import, and what an import costs."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "src" / "ksivi"
LEAVES = {"_checks", "_numerics", "_archive", "_cache", "_closures", "_compile", "_files", "_normals", "_sharding"}
METHODS_AND_PROBLEMS = {
    "targets",
    "kernels",
    "families",
    "posterior",
    "objectives",
    "training",
    "methods",
    "particles",
    "mcmc",
    "metrics",
    "problems",
}
ALLOWED = {
    "rows": set(),
    "keys": set(),
    "targets": {"rows"},
    "kernels": set(),
    "families": set(),
    "export": {"targets", "families"},
    "posterior": {"targets", "families", "export"},
    "record": {"posterior"},
    "objectives": {"posterior", "targets", "kernels", "families"},
    "training": {"posterior", "targets", "families", "objectives"},
    "methods": {"posterior", "targets", "families", "training"},
    "particles": {"methods", "targets", "kernels"},
    "mcmc": {"methods", "posterior", "targets", "families"},
    "diagnostics": {"targets", "kernels", "families", "posterior", "objectives"},
    "metrics": {"kernels"},
    "problems": {"targets", "metrics", "mcmc", "families"},
    "executors": set(),
    "comparison": METHODS_AND_PROBLEMS | {"executors"},
    "auto": {"posterior", "targets", "families", "objectives", "training", "diagnostics"},
    "calibration": {"posterior", "targets", "auto"},
    "report": {"targets", "export", "posterior", "diagnostics", "record"},
    "demo": {"targets", "kernels", "families", "posterior", "objectives", "training", "metrics", "problems"},
    "paper": METHODS_AND_PROBLEMS | {"diagnostics", "comparison", "report", "executors"},
    "cli": {"demo", "comparison", "problems", "report", "training", "paper", "auto", "export", "record", "targets"}
    | {"executors", "calibration"},
}
CORE = {"jax", "equinox", "optax", "numpy", "safetensors", "jaxtyping"}
FILES = sorted(path for path in ROOT.rglob("*.py") if path != ROOT / "__init__.py")


def room(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def top_imports(path: Path):
    """(absolute?, dotted name) of everything a file imports at its top level."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Import):
            yield from ((True, alias.name) for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            yield node.level == 0, node.module or ""


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_rooms_import_one_way(path):
    depth = len(path.relative_to(ROOT).parts)
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.ImportFrom) or node.level != depth:
            continue
        names = [node.module.split(".")[0]] if node.module else [alias.name for alias in node.names]
        for name in names:
            assert name in {room(path), "__version__"} | LEAVES | ALLOWED.get(room(path), set()), (
                f"{path} imports {name}"
            )


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_core_imports_little(path):
    if room(path) == "cli":
        return
    for absolute, name in top_imports(path):
        package = name.split(".")[0]
        assert not absolute or package in CORE or package in sys.stdlib_module_names, f"{path} imports {name}"


def test_importing_ksivi_is_cheap():
    """At most 0.3 s of the processor beyond its dependencies, at least once in eight times. It starts no device."""
    code = (
        "import time, jax, equinox, optax; t = time.process_time(); import ksivi; s = time.process_time() - t;"
        "from jax._src import xla_bridge; assert not xla_bridge._backends; print(s)"
    )
    run = lambda: subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: E731
    assert any(float(run().stdout) < 0.3 for _ in range(8))


def test_files_stay_readable():
    assert all(len(path.read_text().splitlines()) <= 320 for path in FILES)
