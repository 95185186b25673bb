# Everything sets itself up: `make test` on a machine with nothing but Python does the whole job.
PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed

.PHONY: tables help setup test test-thorough test-real test-oldest test-browser test-cluster test-frameworks lint format demo benchmark clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "make %-15s %s\n", $$1, $$2}'

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

setup: $(INSTALLED)  ## the virtual environment, with pinned dependencies

# One thread per worker: two workers that both use all cores get in each other's way.
test: $(INSTALLED)  ## all tests but the long ones
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2

test-thorough: $(INSTALLED)  ## the paper's full randomised check, 25,920 cases
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 -m thorough

test-real: $(INSTALLED)  ## a real model on real data, where they lie beside the project
	$(BIN)/python -m pytest -m real

test-browser: $(INSTALLED)  ## the report and the server's page in headless Chromium, where there is one
	$(BIN)/python -m pytest -m browser

test-cluster: $(INSTALLED)  ## indexing on a Ray cluster that loses workers and nodes
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "cluster or not cluster" tests/indexing/test_cluster.py tests/indexing/test_ray.py

test-oldest:  ## the tests with the oldest transformers and sentence-transformers that are supported
	test -d .venv-oldest || $(PYTHON) -m venv .venv-oldest
	.venv-oldest/bin/pip install --quiet --disable-pip-version-check torch==2.13.0 transformers==5.17.0 \
		sentence-transformers==6.0.1 -e '.[dev]'
	OMP_NUM_THREADS=1 .venv-oldest/bin/python -m pytest -n 2

FRAMEWORKS = langchain-huggingface llama-index-embeddings-huggingface sentence-transformers-haystack chromadb qdrant-client \
	langchain-openai llama-index-embeddings-openai-like haystack-ai
test-frameworks:  ## the snippets for frameworks, and a server on Ray, in an environment with them
	test -d .venv-frameworks || $(PYTHON) -m venv .venv-frameworks
	.venv-frameworks/bin/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,serve-ray]' $(FRAMEWORKS)
	.venv-frameworks/bin/python -m pytest tests/test_frameworks.py tests/serving/test_snippets.py
	.venv-frameworks/bin/python -m pytest -m cluster tests/serving/test_cluster.py

lint: $(INSTALLED)  ## ruff, mypy and the contract between the rooms
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(INSTALLED)  ## let ruff fix and format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

demo: $(INSTALLED)  ## the bias and its cure, in two minutes
	$(BIN)/evenspan demo

benchmark: $(INSTALLED)  ## what calibration, search and scoring cost on this machine
	$(BIN)/python benchmarks/overhead.py
	$(BIN)/python benchmarks/scoring.py

tables: $(INSTALLED)  ## every table of README and docs: make tables DATA=DIR MODEL=DIR
	$(BIN)/python benchmarks/tables.py --data $(DATA) --model $(MODEL)

clean:  ## remove the virtual environments and caches
	rm -rf .venv .venv-oldest .venv-frameworks .pytest_cache .mypy_cache .ruff_cache .hypothesis
