# Every target installs what it needs; only make, git and python3 (3.11 or 3.12) with venv must be there.
SCALE  ?=
BIN    := .venv/bin
export PATH := $(CURDIR)/$(BIN):$(PATH)
unexport PYTHONDONTWRITEBYTECODE  # with it, every process compiles PyTorch's and SciPy's modules again: 8 s each
# The installed project by a relative path: with an umlaut in it Python 3.11 cannot start under LC_ALL=C.
relative = cd $(1)/lib/python3.*/site-packages && for path in _*fedlib_*.pth; do rm $$path && echo ../../../.. > $$path; done

.PHONY: help repro report test test-slow flower lab bench bench-gpu deposit lint clean

help:                           ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

repro: $(BIN)/.ready            ## regenerate every figure and table, then the site (SCALE=demo|cpu|paper)
	fedlib repro $(if $(SCALE),--scale $(SCALE))

report: $(BIN)/.ready           ## make every page and the site from finished or archived runs, without training (SCALE=...)
	fedlib report $(if $(SCALE),--scale $(SCALE))

test: $(BIN)/.ready             ## run the tests
	pytest -n auto --dist loadfile --no-loadscope-reorder  # in the order of tests/conftest.py

test-slow: $(BIN)/.ready        ## run the tests that kill programs, follow whole pages of docs/ and run whole commands
	pytest -m "slow and not dataset" -n auto --dist loadfile --no-loadscope-reorder

flower: .venv-flower/.ready     ## run the tests of fedlib.flower in a separate environment
	.venv-flower/bin/python -m pytest tests/flower

lab: $(BIN)/.ready              ## open JupyterLab on the lab: train, watch, stop, write a sampler
	jupyter lab --ServerApp.root_dir="$(CURDIR)" --LabApp.default_url=/lab/tree/notebooks/explore.ipynb

bench: $(BIN)/.ready            ## compare the engine's speed with the plain loop and the peers
	python -m benchmarks

bench-gpu: $(BIN)/.ready        ## verify, measure and tune the executor for CNNs on a GPU: ten minutes
	python -m benchmarks.gpu

deposit: $(BIN)/.ready          ## pack source, archive and site with checksums into one file, for a data repository
	fedlib deposit

lint: $(BIN)/.ready             ## check style and types
	ruff check .
	ruff format --check .
	ty check

clean:                          ## remove all generated files except prepared datasets and the archive
	rm -rf reports data/artifacts data/chosen data/inputs data/making data/notebooks data/results data/runs data/site data/repro.* data/report.*
	rm -rf .dvc/cache .dvc/tmp .pytest_cache .ruff_cache .hypothesis

$(BIN)/.ready: requirements-setup.lock requirements.lock pyproject.toml workspace/pyproject.toml
	python3 -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements-setup.lock
	$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes -r requirements.lock
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation -e . -e workspace
	$(call relative,.venv)
	cp workspace/activated.pth $(BIN)/../lib/python3.*/site-packages/  # so that `.venv/bin/dvc repro` finds `fedlib`
	touch $@

.venv-flower/.ready: $(BIN)/.ready tests/flower/requirements.lock
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python .venv-flower
	$(BIN)/uv pip install --quiet --python .venv-flower/bin/python --require-hashes -r requirements-setup.lock
	$(BIN)/uv pip install --quiet --python .venv-flower/bin/python --require-hashes -r tests/flower/requirements.lock
	$(BIN)/uv pip install --quiet --python .venv-flower/bin/python --no-deps --no-build-isolation -e .
	$(call relative,.venv-flower)
	touch $@
