# The two commands are `make bench` and `make test`; both set up everything they need.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.stamp
COMMITS ?= 3
ASV := $(BIN)/asv
RESULTS := .asv/results

# Packages come without bytecode. Were Python kept from writing it, every process that imports torch
# would compile it anew: 3 to 9 s each, hundreds of times in `make test`.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup bench bench-flash bench-matmul bench-all report overhead demo museum gallery test bytecode test-tritons test-every-pair lint wheel docs docs-site doctor upgrade-check clean

help: ## Show what can be made
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 20

setup: $(STAMP) ## Make .venv with the pinned dependencies

$(STAMP): docker/constraints.txt docker/locks docker/pip_arguments.py pyproject.toml
	@test "$$(uname -s)" = Linux || { \
		echo "error: Linux is needed to measure, this is $$(uname -s): Triton has no packages for it; pip install . reads results" >&2; exit 2; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "error: Python 3.11 or later is needed, $(PYTHON) is $$($(PYTHON) -V 2>&1); try make PYTHON=python3.12" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)
	@# Most of what is installed is never imported: Python compiles a module when it first is.
	@echo "installing torch, Triton and the tools: some 0.5 GB to fetch without an NVIDIA GPU, 2.8 GB with" >&2
	$(BIN)/python docker/pip_arguments.py development | \
		xargs $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

bench: $(STAMP) ## Measure the newest commits that touch the kernels, then write the report
	@$(BIN)/python -m warpwatch history --commits $(COMMITS)
	@$(MAKE) --no-print-directory report

bench-flash: $(STAMP) ## Only the attention benchmarks
	@$(BIN)/python -m warpwatch history --commits $(COMMITS) --bench Attention
	@$(MAKE) --no-print-directory report

bench-matmul: $(STAMP) ## Only the matmul benchmarks
	@$(BIN)/python -m warpwatch history --commits $(COMMITS) --bench Matmul
	@$(MAKE) --no-print-directory report

bench-all: $(STAMP) ## Every commit that touches the kernels
	@$(BIN)/python -m warpwatch history --commits 0
	@$(MAKE) --no-print-directory report

report: $(STAMP) ## Write the report to reports/html
	@$(BIN)/python -m warpwatch report

overhead: $(STAMP) ## Host overhead of a call, without a GPU: kept in .benchmarks, which reports read
	@$(BIN)/python -m pytest tests/overhead --benchmark-autosave

demo: $(STAMP) ## Plant changes in a git history and check that each is found (TRITON=3.6.0: with that one)
	@$(BIN)/python -m examples.demo $(if $(TRITON),--triton $(TRITON))

museum: $(STAMP) ## Replay regressions that others reported, without a GPU, and harmless edits next to them
	@$(BIN)/python -m examples.museum

gallery: $(STAMP) ## Measure histories of public libraries, cloned in FOLDER, and list findings without a label
	@$(BIN)/python -m tools.gallery $(or $(FOLDER),$(error name it: make gallery FOLDER=DIR)) --measure

# Three test processes keep two cores busy: each waits now and then for a browser, a container, a
# disk. So none computes in threads, which would wait for each other's turn. What times the host's
# work is alone on the machine, and finds compiled what the others have compiled. Where a process
# dies pytest-xdist would deal its finished files again, in which nothing is left to run, and wait
# for them for ever: the run ends instead, and names the test.
test: $(STAMP) lint ## Lint, types and tests
	compiled=$$(mktemp -d) && trap 'rm -rf "$$compiled"' EXIT && \
	export WARPWATCH_COMPILER_CACHE="$$compiled/compiled" && \
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1 \
		$(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder --max-worker-restart 0 \
			--ignore tests/overhead && \
	$(BIN)/python -m pytest tests/overhead

bytecode: $(STAMP) ## Compile to bytecode what the tests import, once: each of their processes would
	-@$(BIN)/python -m pytest --collect-only -q >/dev/null

test-tritons: $(STAMP) ## Compile every kernel under the oldest Triton supported and, for the newest targets, the newest
	@WARPWATCH_MUST_RUN=tritons WARPWATCH_EVERY_PAIR=yes $(BIN)/python -m pytest tests/spine/test_tritons.py

test-every-pair: $(STAMP) ## As test, with each form of a kernel compiled for every target and mask
	@WARPWATCH_EVERY_PAIR=yes $(MAKE) --no-print-directory test

lint: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

wheel: $(STAMP) ## Build the wheel into dist/
	@$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .

docs: $(STAMP) ## Check the documents and build their site into .site/docs
	@$(BIN)/python -m tools.docs.results --check
	@$(BIN)/python -m tools.docs.style --quiet
	@$(MAKE) --no-print-directory docs-site

# Its packages are apart from all others: nothing but the site needs them, and make may install both at once.
DOCS_TOOLS := .docs-tools
DOCS_OUT ?= .site/docs

$(DOCS_TOOLS)/.stamp: tools/docs/site/requirements.txt
	$(PYTHON) -m venv $(DOCS_TOOLS)
	$(DOCS_TOOLS)/bin/python -m pip install --quiet --disable-pip-version-check --no-compile -r $<
	@touch $@

docs-site: $(DOCS_TOOLS)/.stamp ## Build the site of the documents only; a warning fails it
	@NO_MKDOCS_2_WARNING=1 $(DOCS_TOOLS)/bin/python -m mkdocs build --site-dir $(DOCS_OUT)

doctor: $(STAMP) ## Say what this machine can measure and what is missing
	@$(BIN)/python -m warpwatch doctor

upgrade-check: $(STAMP) ## Say what another Triton does to our kernels: make upgrade-check TRITON=3.9.0
	@$(BIN)/python -m warpwatch upgrade $(or $(TRITON),$(error name it: make upgrade-check TRITON=3.9.0)) $(if $(FROM),--from $(FROM))

clean: ## Remove what was built; results stay
	rm -rf $(VENV) .asv/env reports/html

-include docker/targets.mk docker/tools.mk docker/release.mk
