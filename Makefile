# Every target sets itself up: it needs make, git and python3 (3.11 or 3.12) with venv, nothing else.
SCALE  ?=
UV     := uv==0.13.8
BIN    := .venv/bin
export PATH := $(CURDIR)/$(BIN):$(PATH)

.PHONY: help repro report test flower lab bench lint clean

help:                           ## say what there is
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

repro: $(BIN)/.ready            ## regenerate every figure and table, then the report (SCALE=demo|cpu|paper)
	$(if $(SCALE),fedlib scale $(SCALE))
	fedlib repro

report: $(BIN)/.ready           ## make every page and the site from what is finished or archived, training nothing (SCALE=...)
	$(if $(SCALE),fedlib scale $(SCALE))
	fedlib report

test: $(BIN)/.ready             ## run the tests
	pytest -n auto --dist loadfile

flower: .venv-flower/.ready     ## run the tests of fedlib.flower, in an environment of their own
	.venv-flower/bin/python -m pytest tests/flower/test_strategy.py

lab: $(BIN)/.ready              ## open JupyterLab on the lab: train, watch, stop, write a sampler
	jupyter lab notebooks/explore.ipynb

bench: $(BIN)/.ready            ## time the engine beside the plain loop and the peers
	python -m benchmarks

lint: $(BIN)/.ready             ## check style
	ruff check .
	ruff format --check .

clean:                          ## remove everything that was made here, except prepared datasets and the archive
	rm -rf reports data/artifacts data/inputs data/notebooks data/results data/runs data/site
	rm -rf .dvc/cache .dvc/tmp .pytest_cache .ruff_cache .hypothesis

$(BIN)/.ready: requirements.lock pyproject.toml
	python3 -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check $(UV)
	$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes -r requirements.lock
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps -e .
	touch $@

.venv-flower/.ready: $(BIN)/.ready tests/flower/requirements.lock
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python .venv-flower
	$(BIN)/uv pip install --quiet --python .venv-flower/bin/python --require-hashes -r tests/flower/requirements.lock
	$(BIN)/uv pip install --quiet --python .venv-flower/bin/python --no-deps -e .
	touch $@
