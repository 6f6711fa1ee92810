# `make demo` and `make test` do their whole set-up on a machine that has python3, pip and make.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: install demo test test-quick test-slow lint format bench docs notebook clean

install: .venv/installed

.venv/installed: pyproject.toml paper/pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[dev]' --editable paper
	touch $@

demo: install
	$(BIN)/ksivi demo

# Files go to the workers in the order of tests/conftest.py, the longest first. Compiled programs are kept
# in ~/.cache/ksivi-tests: the next run compiles only what has changed.
test: install lint
	$(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder -m 'not slow'

# For every change: formulas, one objective, one method, the architecture, bad input and the pages.
test-quick: install
	$(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder -m 'quick and not slow'

test-slow: install
	$(BIN)/python -m pytest -n auto -m slow

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: install
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: install
	$(BIN)/python -m pip install --quiet --editable '.[bench]'
	$(BIN)/python -m benchmarks.step

docs: install
	$(BIN)/python -m pip install --quiet --editable '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

notebook: install
	$(BIN)/python scripts/notebook.py

clean:
	rm -rf .venv demo dist site .pytest_cache .ruff_cache
