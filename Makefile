# Everything is set up in .venv, and again only when pyproject.toml or constraints.txt change.
PYTHON ?= python3
BIN := .venv/bin
# Constraints hold for what is installed and for what builds it.
PIP := PIP_BUILD_CONSTRAINT=constraints.txt $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt
BENCH := .venv-bench/bin
BENCH_PIP := PIP_BUILD_CONSTRAINT=benchmarks/constraints.txt $(BENCH)/pip install --quiet --disable-pip-version-check -c benchmarks/constraints.txt

.DEFAULT_GOAL := help
.PHONY: help demo test test-slow test-ray check format bench conformance docs clean

help:  ## Show this list.
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## */\1\t/' | expand -t 14

.venv/.base: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || \
	  { echo "metacal needs Python 3.11: make PYTHON=python3.11 ..."; exit 1; }
	@echo "Setting up .venv (a minute or two, once)"
	@$(PYTHON) -m venv .venv
	@$(PIP) --upgrade pip
	@$(PIP) torch
	@$(PIP) -e .
	@touch $@

.venv/.dev: .venv/.base
	@echo "Adding the development tools to .venv"
	@$(PIP) -e '.[dev]'
	@touch $@

.venv-bench/.ready: benchmarks/constraints.txt pyproject.toml
	@echo "Setting up .venv-bench with the peers (a few minutes, once)"
	@$(PYTHON) -m venv .venv-bench
	@$(BENCH_PIP) --upgrade pip
	@$(BENCH_PIP) torch
	@$(BENCH_PIP) -e . netcal numba probmetrics pycalib relplot uncertainty-calibration
	@touch $@

demo: .venv/.base  ## Score the predictions that ship with the package and print a table.
	@$(BIN)/metacal demo

test: .venv/.dev  ## Run the tests and doctests, on two cores, in under five minutes.
	@$(BIN)/pytest -n 2 --dist worksteal -m 'not slow'

test-slow: .venv/.dev  ## Run the tests that take longer: several processes, kills, whole runs on real data.
	@$(BIN)/pytest -n 2 --dist worksteal -m slow

test-ray: .venv/.dev  ## Run the tests on a Ray cluster of several nodes on this machine, alone.
	@METACAL_TEST_RAY=1 $(BIN)/pytest tests/engines/test_ray.py

check: .venv/.dev  ## Lint, formatting and types.
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

format: .venv/.dev  ## Mend formatting and what lint can mend.
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

bench: .venv-bench/.ready  ## Measure speed and memory side by side with the peers.
	@$(BENCH)/python -m benchmarks.calibration
	@$(BENCH)/python -m benchmarks.meta_step
	@$(BENCH)/python -m benchmarks.data_pipeline
	@$(BENCH)/python -m benchmarks.temperature
	@$(BENCH)/python -m benchmarks.evaluate_stream

conformance: .venv-bench/.ready  ## Write docs/conformance.md: our figures and the peers', and who is right.
	@$(BENCH)/python -m benchmarks.conformance

docs: .venv/.dev  ## Build the documentation into site/.
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

clean:  ## Remove what these commands made.
	@rm -rf .venv .venv-bench build dist site .mypy_cache .pytest_cache .ruff_cache .hypothesis
