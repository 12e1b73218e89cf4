# Every target sets up what it needs: a virtual environment in .venv with the
# versions of constraints.txt. Nothing has to be installed or activated first.
PYTHON ?= python3
VENV ?= .venv
OLDEST ?= .venv-oldest
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# processes that tests run in: as many as there are cores
WORKERS ?= auto
PARALLEL := -n $(WORKERS) --maxprocesses 8
COVERAGE := --cov=fbeta --cov-report=term:skip-covered --cov-fail-under=95

# the Markdown extension of the documentation is beside its pages
SITE := PYTHONPATH=docs $(BIN)/zensical

.PHONY: demo test test-all test-oldest lint format docs serve bench bench-gpu dist clean

demo: $(STAMP)
	$(BIN)/fbeta demo --output demo

# with what of src the tests cover
test: $(STAMP)
	$(BIN)/python -m pytest $(PARALLEL) -m "not slow" $(COVERAGE)

# with the slow ones
test-all: $(STAMP)
	$(BIN)/python -m pytest $(PARALLEL) $(COVERAGE)

# with the lowest versions that are allowed; what needs PyTorch or the documentation is skipped
test-oldest: $(OLDEST)/.installed
	$(OLDEST)/bin/python -m pytest $(PARALLEL) -m "not slow" tests

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(STAMP)
	$(SITE) build --clean --strict

serve: $(STAMP)
	$(SITE) serve

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

$(STAMP): pyproject.toml constraints.txt setup.py $(wildcard src/fbeta/linear/*.hpp src/fbeta/linear/*.cpp \
	src/fbeta/linear/*.pyx)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $@

$(OLDEST)/.installed: pyproject.toml constraints-oldest.txt setup.py
	$(PYTHON) -m venv $(OLDEST)
	$(OLDEST)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints-oldest.txt \
	-e ".[all,dask,test]"
	touch $@

# the source archive, a wheel made from it, and both tried in new virtual environments
dist: $(STAMP)
	rm -rf dist
	$(BIN)/python -m build
	$(BIN)/python -m tests.installed dist

bench: $(STAMP)
	$(BIN)/python -m benchmarks
	$(BIN)/python -m benchmarks.blocks

# on a machine with a GPU: CASES="decode loss" runs some of it
bench-gpu: $(STAMP)
	$(BIN)/python -m benchmarks.gpu $(CASES)

clean:
	rm -rf $(VENV) $(OLDEST) demo results site dist build .cache .pytest_cache .mypy_cache .ruff_cache
