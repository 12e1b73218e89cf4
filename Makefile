# Every target sets up what it needs: a virtual environment in .venv with the
# versions of constraints.txt. Nothing has to be installed or activated first.
PYTHON ?= python3
VENV ?= .venv
CORE ?= .venv-core
OLDEST ?= .venv-oldest
BIN := $(VENV)/bin
# all that developers need; what the demo needs
STAMP := $(VENV)/.installed
DEMO_STAMP := $(VENV)/.installed-demo
SOURCES := pyproject.toml setup.py requirements.py $(wildcard src/fbeta/linear/*.hpp src/fbeta/linear/[a-z]*.cpp \
	src/fbeta/linear/*.pyx)
# what is imported is compiled then: most modules of what is installed never are
PIP := -m pip install --quiet --disable-pip-version-check --no-compile
# Tests start many interpreters: these are to find the modules that others have compiled, which takes
# a quarter off each start.
unexport PYTHONDONTWRITEBYTECODE
# processes that tests run in: one more than there are cores, as many tests wait for others
WORKERS ?= $(shell cores=$$(getconf _NPROCESSORS_ONLN); echo $$((cores < 7 ? cores + 1 : 8)))
PARALLEL := -n $(WORKERS) --dist worksteal
# COVER=1 measures what of src the tests cover, and asks for 95 %
COVERAGE := $(if $(COVER),--cov=fbeta --cov-report=term:skip-covered --cov-fail-under=95)

# the Markdown extension of the documentation is beside its pages
SITE := PYTHONPATH=docs $(BIN)/zensical

# rooms that need NumPy, SciPy and scikit-learn only
CORE_TESTS := $(addprefix tests/,labels statistics decoding linear estimators rivals)

.PHONY: demo test test-slow test-all test-core test-gpu test-oldest lint format docs serve bench bench-gpu \
	dist clean build-in needs-in

demo: $(DEMO_STAMP)
	$(BIN)/fbeta demo --output demo

# all but the slow ones
test: $(STAMP)
	$(BIN)/python -m pytest $(PARALLEL) -m "not slow" $(COVERAGE)

# the slow ones alone: long generators, whole suites of other libraries
test-slow: $(STAMP)
	$(BIN)/python -m pytest $(PARALLEL) -m slow

test-all: $(STAMP)
	$(BIN)/python -m pytest $(PARALLEL) $(COVERAGE)

# a light environment, for a first change
test-core: $(CORE)/.installed
	$(CORE)/bin/python -m pytest -m "not slow" $(CORE_TESTS)

# on a machine with a GPU: all tests that have a form for CUDA
test-gpu: $(STAMP)
	$(BIN)/python -m pytest -m gpu tests

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

# The package is built while pip installs what it needs: $(call install,ENVIRONMENT,CONSTRAINTS,EXTRAS)
define install
	$(PYTHON) -m venv $(1)
	$(PYTHON) requirements.py $(3) > $(1)/requirements.txt
	$(MAKE) --no-print-directory -j2 build-in needs-in INTO=$(1) WITH=$(2)
endef

build-in:
	$(INTO)/bin/python $(PIP) --no-deps -e .

needs-in:
	$(INTO)/bin/python $(PIP) -c $(WITH) -r $(INTO)/requirements.txt

$(STAMP): $(SOURCES) constraints.txt
	$(call install,$(VENV),constraints.txt,dev)
	touch $@ $(DEMO_STAMP)

$(DEMO_STAMP): $(SOURCES) constraints.txt
	$(call install,$(VENV),constraints.txt,cli plot data)
	touch $@

$(CORE)/.installed: $(SOURCES) constraints.txt
	$(call install,$(CORE),constraints.txt,pytest)
	touch $@

$(OLDEST)/.installed: $(SOURCES) constraints-oldest.txt
	$(call install,$(OLDEST),constraints-oldest.txt,all dask test)
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
	rm -rf $(VENV) $(CORE) $(OLDEST) demo results site dist build .cache .pytest_cache .mypy_cache .ruff_cache
