"""Which package imports which, what is public, what the core may import, and what an import costs."""

import ast
import functools
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "src" / "ksivi"
PAPER = Path(__file__).parents[1] / "paper" / "src" / "ksivi_paper"
# Every package may import `_core`. An edge that is not used must be taken out of this table.
EDGES = {
    "_core": set(),
    "targets": set(),
    "kernels": set(),
    "families": set(),
    "executors": set(),
    "metrics": {"kernels"},
    "results": {"targets", "families"},
    "objectives": {"targets", "kernels", "families"},
    "training": {"targets", "families", "objectives", "results"},
    "methods": {"targets", "kernels", "families", "results", "training"},
    "diagnostics": {"targets", "kernels", "families", "objectives", "results"},
    "problems": {"targets", "families", "methods", "metrics"},
    "auto": {"targets", "families", "objectives", "training", "results", "diagnostics"},
    "calibration": {"targets", "results", "training", "auto"},
    "report": {"targets", "results", "diagnostics"},
    "plugins": {"targets", "families", "objectives", "training", "results", "auto"},
    "comparison": {
        "targets",
        "kernels",
        "families",
        "objectives",
        "training",
        "methods",
        "metrics",
        "problems",
        "auto",
    }
    | {"results", "executors"},
    "cli": {
        "targets",
        "training",
        "results",
        "auto",
        "calibration",
        "problems",
        "comparison",
        "report",
        "executors",
    },
}
CORE = {"jax", "equinox", "optax", "numpy", "safetensors", "threadpoolctl", "jaxtyping"}
FILES = sorted(ROOT.rglob("*.py"))
LONGEST_CHAIN, MOST_AT_THE_TOP, MOST_NAMES, MOST_ATTRIBUTES = 14, 45, 150, 10


def package(path: Path) -> str:
    return path.relative_to(ROOT).parts[0]


@functools.cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def module_of(path: Path) -> str:
    return ".".join(("ksivi", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(
        ".__init__"
    )


MODULES = {module_of(path): path for path in FILES}


def imported(path: Path, nodes) -> set[tuple[str, str]]:
    """The (module, name) pairs that a file of ksivi takes from ksivi."""
    here = module_of(path).split(".")
    here = here if path.name == "__init__.py" else here[:-1]
    found = set()
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.level:
            base = [
                *here[: len(here) - node.level + 1],
                *(node.module.split(".") if node.module else []),
            ]
            found |= {(".".join(base), alias.name) for alias in node.names}
    return found


def at_the_top(tree: ast.Module):
    """Import statements that run when a module is imported."""
    for node in tree.body:
        yield from (
            ast.walk(node)
            if isinstance(node, ast.Import | ast.ImportFrom | ast.If | ast.Try)
            else ()
        )


def defined_in(module: str, name: str) -> str | None:
    """The module that a name comes from, through each `__init__.py` that re-exports it."""
    if f"{module}.{name}" in MODULES:
        return f"{module}.{name}"
    if module not in MODULES or MODULES[module].name != "__init__.py":
        return module if module in MODULES else None
    for source, taken in imported(MODULES[module], parsed(MODULES[module]).body):
        if taken == name:
            return defined_in(source, taken)
    return module


@functools.cache
def graph() -> dict[str, set[str]]:
    """The modules that each module imports when it is imported itself."""
    edges = {}
    for module, path in MODULES.items():
        found = {defined_in(*one) for one in imported(path, at_the_top(parsed(path)))}
        edges[module] = {one for one in found if one is not None and one != module}
    return edges


@functools.cache
def longest_from(module: str) -> tuple[str, ...]:
    return (module, *max((longest_from(one) for one in graph()[module]), key=len, default=()))


def test_packages_import_what_is_declared_and_nothing_else():
    found: dict[str, set[str]] = {}
    for path in FILES:
        names = imported(path, ast.walk(parsed(path)))
        packages = {
            (f"{module}.{name}").split(".")[1]
            for module, name in names
            if module.startswith("ksivi")
        }
        found.setdefault(package(path), set()).update(packages - {package(path), "_core"})
    del found["__init__.py"]
    assert found == EDGES


def test_there_are_no_circles_not_even_of_types():
    """Without `TYPE_CHECKING` there are no imports for types alone."""
    assert not [path for path in FILES if "TYPE_CHECKING" in path.read_text()]
    visiting: list[str] = []
    done: set[str] = set()

    def visit(module: str) -> None:
        assert module not in visiting, (
            f"a circle: {' -> '.join([*visiting[visiting.index(module) :], module])}"
        )
        if module in done:
            return
        visiting.append(module)
        for one in sorted(graph()[module]):
            visit(one)
        done.add(visiting.pop())

    for module in graph():
        visit(module)


def test_import_chains_are_short():
    chain = max((longest_from(module) for module in graph()), key=len)
    assert len(chain) <= LONGEST_CHAIN, " -> ".join(chain)


@pytest.mark.parametrize("root", [ROOT, PAPER], ids=["ksivi", "ksivi_paper"])
def test_packages_import_only_what_others_export(root):
    """Modules of another package are private; its `__init__.py` has what others may use.

    Only ksivi may import `_core`.
    """
    for path in sorted(root.rglob("*.py")):
        here = package(path) if root == ROOT else None
        for node in ast.walk(ast.parse(path.read_text())):
            if root == ROOT:
                names = {f"{module}.{name}" for module, name in imported(path, [node])}
            else:
                names = {
                    f"{node.module}.{x.name}"
                    for x in getattr(node, "names", ())
                    if hasattr(node, "level")
                }
            for name in names:
                parts = name.split(".")
                reaches = parts[0] == "ksivi" and parts[1] not in {here, "_core"} and len(parts) > 2
                assert not (reaches and parts[2].startswith("_")), f"{path} reaches into {name}"
                assert root == ROOT or parts[:2] != ["ksivi", "_core"], (
                    f"{path} reaches into {name}"
                )


def test_modules_are_private():
    public = {"targets/supports.py"}
    for path in FILES:
        name = str(path.relative_to(ROOT))
        assert path.name.startswith("_") or name in public or package(path) == "_core", name


def exported(path: Path) -> list[str]:
    for node in parsed(path).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            return [element.value for element in node.value.elts]  # type: ignore[attr-defined]
    return []


ONE_TOO_MANY = """{number} public names {where}, and at most {limit} are allowed. Either leave the new name out of
`__all__`, and import it in the `__init__.py` of its package with a redundant alias: `from ._name import Name as Name`.
Users then import it from the package. Or take a name out that users do not need."""


@pytest.mark.parametrize(
    ("files", "limit", "where"),
    [
        ([ROOT / "__init__.py"], MOST_AT_THE_TOP, "in ksivi.__all__"),
        (FILES, MOST_NAMES, "in all `__all__` together"),
    ],
    ids=["top", "all"],
)
def test_there_are_few_public_names(files, limit, where):
    number = sum(len(exported(path)) for path in files)
    assert number <= limit, ONE_TOO_MANY.format(number=number, where=where, limit=limit)


def assigned(node: ast.ClassDef) -> set[str]:
    """Attributes that methods of a class write to itself."""
    found = set()
    for one in ast.walk(node):
        targets = (
            one.targets
            if isinstance(one, ast.Assign)
            else [one.target]
            if isinstance(one, ast.AnnAssign)
            else []
        )
        for target in targets:
            for part in target.elts if isinstance(target, ast.Tuple) else [target]:
                if isinstance(part, ast.Attribute) and getattr(part.value, "id", "") == "self":
                    found.add(part.attr)
    return found


def test_mutable_classes_are_small():
    """Equinox modules, named tuples and frozen dataclasses are not mutable; what is left holds little."""
    for path in FILES:
        for node in ast.walk(parsed(path)):
            plain = isinstance(node, ast.ClassDef) and not node.bases and not node.decorator_list
            assert not plain or len(assigned(node)) <= MOST_ATTRIBUTES, f"{path}: {node.name}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_core_imports_little(path):
    if package(path) == "cli":
        return
    for node in parsed(path).body:
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module] if isinstance(node, ast.ImportFrom) and not node.level else []
        for name in names:
            top = name.split(".")[0]
            assert top in CORE or top in sys.stdlib_module_names, f"{path} imports {name}"


def test_importing_ksivi_is_cheap(tmp_path):
    """At most 0.6 times what JAX, Equinox and Optax take, at least once in eight times. It starts no device.

    Bytecode is kept, as for a user: the first import compiles every file.
    """
    code = (
        "import time; s = time.process_time(); import jax, equinox, optax; t = time.process_time(); import ksivi;"
        "r = (time.process_time() - t) / (t - s);"
        "from jax._src import xla_bridge; assert not xla_bridge._backends; print(r)"
    )

    kept = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(tmp_path)}

    def relative_time():
        command, env = [sys.executable, "-c", code], os.environ | kept
        found = subprocess.run(command, capture_output=True, text=True, check=True, env=env)
        return float(found.stdout)

    assert any(relative_time() < 0.6 for _ in range(8))


def test_the_plug_ins_import_no_tool_before_it_is_used():
    code = (
        "import sys, ksivi.plugins;"
        "print([name for name in ('pymc', 'bambi', 'numpyro', 'blackjax', 'arviz') if name in sys.modules])"
    )
    command = [sys.executable, "-c", code]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_files_stay_readable():
    lines = [line for path in FILES for line in path.read_text().splitlines()]
    assert all(len(path.read_text().splitlines()) <= 320 for path in FILES)
    assert sum(len(line) > 100 for line in lines) < 0.01 * len(lines)


def test_one_place_answers_which_device():
    """The arrays', the mesh's or the program's platform, from `_core.sharding`; never the process default."""
    asking = [path for path in FILES if re.search(r"default_backend\(", path.read_text())]
    assert asking == [ROOT / "_core" / "sharding.py"]
