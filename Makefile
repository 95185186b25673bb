# `make test` needs nothing but Python: it creates the virtual environment itself.
PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed

.PHONY: help setup test test-thorough test-real test-oldest test-browser test-cluster test-frameworks test-wheel coverage lint format \
	docs links tables results demo benchmark clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "make %-15s %s\n", $$1, $$2}'

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

setup: $(INSTALLED)  ## the virtual environment, with pinned dependencies

# One thread per worker: two workers that both use all cores slow each other down.
test: $(INSTALLED)  ## all tests but the long ones
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2

test-thorough: $(INSTALLED)  ## the paper's full randomised check, 25,920 cases
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 -m thorough

test-real: $(INSTALLED)  ## a real model on real data, if both are beside the project
	$(BIN)/python -m pytest -m real

test-browser: $(INSTALLED)  ## the report and the server's page in headless Chromium, if it is installed
	$(BIN)/python -m pytest -m browser

test-cluster: $(INSTALLED)  ## indexing on a Ray cluster that loses workers and nodes
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "cluster or not cluster" tests/indexing/test_cluster.py tests/indexing/test_ray.py

# `make test-oldest TORCH=2.13.0+cpu PIP_FIND_LINKS=FOLDER` if the oldest torch cannot be downloaded and a wheel is in a folder.
test-oldest:  ## the tests with the oldest versions of everything that pyproject.toml allows
	test -d .venv-oldest || $(PYTHON) -m venv .venv-oldest
	.venv-oldest/bin/pip install --quiet --disable-pip-version-check uv
	.venv-oldest/bin/uv pip install --quiet --python .venv-oldest --resolution lowest-direct \
		$(if $(PIP_FIND_LINKS),--find-links $(PIP_FIND_LINKS)) --index-strategy unsafe-best-match \
		-e '.[dev]' $(if $(TORCH),'torch==$(TORCH)')
	OMP_NUM_THREADS=1 .venv-oldest/bin/python -m pytest -n 2

test-wheel: $(INSTALLED)  ## the wheel, installed with each extra into an environment of its own: EXTRAS="base eval" for some
	$(BIN)/python .ci/wheel.py $(EXTRAS)

FRAMEWORKS = langchain-huggingface llama-index-embeddings-huggingface sentence-transformers-haystack chromadb qdrant-client \
	langchain-openai llama-index-embeddings-openai-like haystack-ai
test-frameworks:  ## the snippets for frameworks, and a server on Ray, in an environment with them
	test -d .venv-frameworks || $(PYTHON) -m venv .venv-frameworks
	.venv-frameworks/bin/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,serve-ray]' $(FRAMEWORKS)
	.venv-frameworks/bin/python -m pytest tests/test_frameworks.py tests/serving/test_snippets.py
	.venv-frameworks/bin/python -m pytest -m cluster tests/serving/test_cluster.py

coverage: $(INSTALLED)  ## the lines that the tests cover, in htmlcov/
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --cov --cov-report=term --cov-report=html

lint: $(INSTALLED)  ## ruff, mypy, the contract between the rooms, and the files of .github
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.github-issue-forms .github/ISSUE_TEMPLATE/[!c]*.yml
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.dependabot .github/dependabot.yml
	$(BIN)/check-jsonschema --quiet --builtin-schema vendor.citation-file-format CITATION.cff

format: $(INSTALLED)  ## let ruff fix and format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

demo: $(INSTALLED)  ## nDCG@10 with and without calibration, in about a minute
	$(BIN)/evenspan demo

benchmark: $(INSTALLED)  ## the time of calibration, search and scoring on this machine
	$(BIN)/python benchmarks/overhead.py
	$(BIN)/python benchmarks/scoring.py

docs: $(INSTALLED)  ## the site, in site/: a warning or a broken link fails
	$(BIN)/python -m sphinx -E -W --keep-going -q -b html docs site

links: $(INSTALLED)  ## the links of the site to other sites: needs the network
	$(BIN)/python -m sphinx -W --keep-going -q -b linkcheck docs site/.links

tables: $(INSTALLED)  ## the tables of README and docs, from the committed result files
	$(BIN)/python benchmarks/fill_tables.py

results: $(INSTALLED)  ## the result files behind the tables: make results DATA=DIR MODEL=DIR
	$(BIN)/python benchmarks/tables.py --data $(DATA) --model $(MODEL)

clean:  ## remove the virtual environments and caches
	rm -rf .venv .venv-oldest .venv-frameworks .venv-wheel dist site htmlcov .pytest_cache .mypy_cache .ruff_cache .hypothesis
