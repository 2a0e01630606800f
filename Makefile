# Everything is set up in .venv, and again only when pyproject.toml or constraints.txt change.
PYTHON ?= python3
BIN := .venv/bin
# Constraints hold for what is installed and for what builds it.
PIP := PIP_BUILD_CONSTRAINT=constraints.txt $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt
LOWEST := .venv-lowest/bin
WHEEL_PIP := .venv-wheel/bin/pip install --quiet --disable-pip-version-check -c constraints.txt
BENCH := .venv-bench/bin
PEER := .venv-corruptions/bin
PEER_PIP := $(PEER)/pip install --quiet --disable-pip-version-check --only-binary numpy,scipy,scikit-image,opencv-python -c benchmarks/corruptions-constraints.txt
BENCH_PIP := PIP_BUILD_CONSTRAINT=benchmarks/constraints.txt $(BENCH)/pip install --quiet --disable-pip-version-check -c benchmarks/constraints.txt

# All but those of the clone itself: pages, benchmarks, stored results.
LIBRARY_TESTS := $(addprefix tests/,functional metrics losses metalearning posthoc evaluation reporting cli integrations lab)

.DEFAULT_GOAL := help
.PHONY: help demo wheel test test-slow test-lowest test-ray check format bench bench-corruptions conformance pages docs clean

help:  ## Show this list.
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## */\1\t/' | expand -t 19

.venv/.base: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "metacal needs Python 3.10 or newer: make PYTHON=python3.11 ..."; exit 1; }
	@echo "Setting up .venv (a minute or two, once)"
	@$(PYTHON) -m venv .venv
	@$(PIP) --upgrade pip
	@$(PIP) torch
	@$(PIP) -e '.[lab]'
	@touch $@

.venv/.dev: .venv/.base
	@echo "Adding the development tools to .venv"
	@$(PIP) -e '.[dev]'
	@touch $@

.venv-lowest/.ready: pyproject.toml constraints.txt tests/lowest.py
	@echo "Setting up .venv-lowest with the lowest stated versions (a minute or two, once)"
	@$(PYTHON) -m venv .venv-lowest
	@$(LOWEST)/pip install --quiet --disable-pip-version-check -c constraints.txt --upgrade pip
	@PIP_BUILD_CONSTRAINT=constraints.txt $(LOWEST)/pip install --quiet --disable-pip-version-check --no-deps -e .
	@$(LOWEST)/python tests/lowest.py all >.venv-lowest/requirements.txt
	@$(LOWEST)/pip install --quiet --disable-pip-version-check --only-binary :all: -r .venv-lowest/requirements.txt
	@touch $@

.venv-bench/.ready: benchmarks/constraints.txt pyproject.toml
	@echo "Setting up .venv-bench with the peers (a few minutes, once)"
	@$(PYTHON) -m venv .venv-bench
	@$(BENCH_PIP) --upgrade pip
	@$(BENCH_PIP) torch
	@$(BENCH_PIP) -e '.[lab]' netcal numba probmetrics pycalib relplot uncertainty-calibration
	@touch $@

.venv-corruptions/.ready: benchmarks/corruptions-constraints.txt
	@echo "Setting up .venv-corruptions with the peer (a minute, once)"
	@$(PYTHON) -m venv .venv-corruptions
	@$(PEER_PIP) setuptools scikit-image imagecorruptions
	@touch $@

demo: .venv/.base  ## Evaluate, fix and train on data that ships: tables, a recommendation and two pages.
	@$(BIN)/metacal demo

test: .venv/.dev  ## Run the tests and doctests on two cores: two to five minutes if they are idle.
	@$(BIN)/pytest -n 2 --dist worksteal -m 'not slow'

test-slow: .venv/.dev  ## Run the tests that take longer: several processes, kills, whole runs on real data.
	@$(BIN)/pytest -n 2 --dist worksteal -m slow

test-lowest: .venv-lowest/.ready  ## Run the tests with the lowest stated version of every dependency but torch.
	@$(LOWEST)/python -m pytest -n 2 --dist worksteal -m 'not slow and not browser' -W ignore::DeprecationWarning $(LIBRARY_TESTS)

test-ray: .venv/.dev  ## Run the tests on a Ray cluster of several nodes on this machine, alone.
	@METACAL_TEST_RAY=1 $(BIN)/pytest tests/lab/engines/test_ray.py

check: .venv/.dev  ## Lint, formatting, and types for every Python from 3.10 to 3.14.
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@printf '%s\n' 3.10 3.11 3.12 3.13 3.14 | xargs -P 2 -I % $(BIN)/mypy --python-version %

format: .venv/.dev  ## Fix formatting and what lint can fix.
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

bench: .venv-bench/.ready  ## Measure speed and memory side by side with the peers.
	@failed=; for words in calibration data_pipeline 'temperature --threads 1' evaluate_stream startup meta_step meta_step_size; do \
	  $(BENCH)/python -m benchmarks.$$words || failed="$$failed $${words%% *}"; \
	done; [ -z "$$failed" ] || { echo "Failed, or missed a target:$$failed"; exit 1; }

bench-corruptions: .venv/.dev .venv-corruptions/.ready  ## Corruptions: images a second and strength beside the peer.
	@$(BIN)/python -m benchmarks.corruptions --peer $(PEER)/python

conformance: .venv-bench/.ready  ## Ask the peers what they answer, and say on docs/conformance.md who is right.
	@$(BENCH)/python -m benchmarks.conformance
	@$(BENCH)/python -m benchmarks.pages

pages: .venv/.dev  ## Write the pages that hold measured figures, from docs/templates and results.
	@$(BIN)/python -m benchmarks.pages

wheel: .venv/.dev  ## Build the wheel, install it with and without extras, run the README with it, check its metadata.
	@rm -rf dist .venv-wheel
	@PIP_CONSTRAINT=constraints.txt PIP_DISABLE_PIP_VERSION_CHECK=1 $(BIN)/python -m build --outdir dist . >/dev/null
	@$(PYTHON) -m venv .venv-wheel
	@$(WHEEL_PIP) torch
	@$(WHEEL_PIP) dist/*.whl
	@.venv-wheel/bin/python -m tests.run_wheel core
	@$(WHEEL_PIP) "$$(echo dist/*.whl)[cli]"
	@.venv-wheel/bin/python -m tests.run_wheel cli
	@$(WHEEL_PIP) "$$(echo dist/*.whl)[lab]"
	@cd dist && ../.venv-wheel/bin/python ../tests/run_readme.py ../README.md ../docs/quickstart.md
	@$(WHEEL_PIP) twine
	@.venv-wheel/bin/twine check --strict dist/*.whl dist/*.tar.gz

docs: .venv/.dev  ## Build the documentation into site/.
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

clean:  ## Remove what these commands made.
	@rm -rf .venv .venv-wheel .venv-lowest .venv-bench .venv-corruptions build dist site metacal-demo .mypy_cache .pytest_cache .ruff_cache .hypothesis
