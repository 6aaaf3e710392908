PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CORES := $(shell nproc 2>/dev/null || sysctl -n hw.ncpu 2>/dev/null || echo 2)

.PHONY: demo help test lint slow browser bench docs fuzz soak hard lock sbom audit clean

SECONDS ?= 300

demo: $(VENV)/demo.done  ## A poisoned federation, with and without the filter
	@mkdir -p demo
	$(BIN)/flanders run examples/demo.toml --out demo/results.sqlite
	@$(BIN)/flanders report demo/results.sqlite --html demo/report.html >/dev/null
	@echo "Report: demo/report.html (open it in a browser)"

help:  ## This list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "make %-7s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

test: lint $(VENV)/browser.done  ## Everything that must hold: style, types, layers, tests; the same each time
	PYTHONHASHSEED=0 $(BIN)/python -m pytest -q -n $(CORES) -m "not slow"

lint: $(VENV)/dev.done  ## Style, types, layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

slow: $(VENV)/browser.done  ## The tests that take minutes, measure time, or try thousands of random examples
	HYPOTHESIS_PROFILE=thorough $(BIN)/python -m pytest -v -m "slow or hypothesis"

browser: $(VENV)/browser.done  ## Chromium for the tests of the report, if it can be installed without a person

bench: $(VENV)/dev.done  ## Speed and memory next to other libraries
	$(BIN)/python benchmarks/core.py

fuzz: $(VENV)/dev.done  ## Hostile input for everything that takes input, for SECONDS (300)
	$(BIN)/python -m hardening.fuzz --seconds $(SECONDS)

soak: $(VENV)/dev.done  ## A thousand rounds, ten thousand clients, a server that is killed every fifty rounds
	$(BIN)/python -m hardening.soak

hard: $(VENV)/dev.done  ## Hostile input, faults, kills, and other libraries on the same bad input: one table
	$(BIN)/python -m hardening.hard

lock: $(VENV)/release.done  ## Pin everything that development needs, with hashes
	$(BIN)/uv pip compile pyproject.toml --extra dev --constraint constraints.txt --universal --generate-hashes \
		--upgrade --no-emit-index-url --no-header --quiet --output-file requirements-dev.lock

sbom: $(VENV)/release.done  ## A list of all parts for a release, in CycloneDX format: dist/sbom.json
	@mkdir -p dist
	$(BIN)/cyclonedx-py requirements requirements-dev.lock --pyproject pyproject.toml --of JSON -o dist/sbom.json

audit: $(VENV)/release.done  ## Known weaknesses of pinned packages; asks the network
	$(BIN)/pip-audit --require-hashes --disable-pip --requirement requirements-dev.lock

docs: $(VENV)/docs.done  ## The documentation site, in the folder site/; a warning or a broken link is an error
	rm -rf site docs/reference docs/repository
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going -c docs/site docs site
	$(BIN)/python docs/site/html_check.py site
	@echo "Documentation: site/index.html (open it in a browser)"

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

$(VENV)/demo.done: $(BIN)/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[sim]"
	@touch $@

$(VENV)/dev.done: $(BIN)/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[dev]"
	@touch $@ $(VENV)/demo.done

$(VENV)/release.done: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install --quiet "cyclonedx-bom>=5" "pip-audit>=2.7" "uv>=0.5"
	@touch $@

$(VENV)/docs.done: $(BIN)/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[docs]"
	@touch $@ $(VENV)/demo.done

$(VENV)/browser.done: $(VENV)/dev.done
	@$(BIN)/python tests/chromium.py || true
	@touch $@

clean:  ## Remove what all this has made
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache demo dist site docs/reference docs/repository
