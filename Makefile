# Every target sets up what it needs: a virtual environment in .venv with the
# versions of constraints.txt. Nothing has to be installed or activated first.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test test-fast lint format docs bench clean

demo: $(STAMP)
	$(BIN)/fbeta demo --output demo

test: $(STAMP)
	$(BIN)/python -m pytest

test-fast: $(STAMP)
	$(BIN)/python -m pytest -m "not slow"

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

$(STAMP): pyproject.toml constraints.txt setup.py $(wildcard src/fbeta/linear/*.hpp src/fbeta/linear/*.cpp \
	src/fbeta/linear/*.pyx)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $@

bench: $(STAMP)
	$(BIN)/python -m benchmarks
	$(BIN)/python -m benchmarks.blocks

clean:
	rm -rf $(VENV) demo results site .pytest_cache .mypy_cache .ruff_cache
