# Containers and workflows. A workflow runs `make --file docker/targets.mk TARGET` and nothing else;
# so a project that is measured keeps its own Makefile. Warpwatch's own includes this file.
PYTHON ?= python3
COMMITS ?= 5
# What the harness is installed from: Warpwatch's own checkout brings it along. Elsewhere `warpwatch init`
# has written the place: any address that pip takes without a password, or a version of the package
# index once Warpwatch is there.
ifneq ($(wildcard warpwatch/__main__.py),)
WARPWATCH ?= --no-build-isolation --editable .
else
WARPWATCH ?= $(error WARPWATCH: expected the place that pip installs Warpwatch from)
endif

# What is installed for which use, each file by its hash: docker/locks. Only what measures needs torch;
# whoever writes results or talks to an engine gets the little that he reads with.
PIP = -m pip install --disable-pip-version-check --no-compile --progress-bar off
NOT_THERE = { rm -rf .warpwatch-bare; echo "error: Warpwatch was not installed from $(WARPWATCH): \
push it there, or name another place, such as WARPWATCH=../warpwatch for a clone" >&2; exit 1; }
define installed
@echo "installing what $(2) needs into $(1)" >&2
$(PYTHON) -m venv $(1)
$(1)/bin/python docker/pip_arguments.py $(2) | xargs $(1)/bin/python $(PIP) --quiet
$(if $(and $(CHECKOUT),$(filter-out compile,$(2))),,$(1)/bin/python $(PIP) --quiet --no-deps $(WARPWATCH) || $(NOT_THERE))
@touch $(1)/.stamp
endef
CHECKOUT := $(wildcard warpwatch/__main__.py)
LOCKED = docker/constraints.txt docker/pip_arguments.py docker/locks

ifndef STAMP
# Of a checkout the harness is run from where it lies: `python -m warpwatch` finds it.
ifeq ($(origin VENV),undefined)
VENV := .warpwatch-venv
VENV_READER := .warpwatch-reports
VENV_HOST := .warpwatch-gpu
endif
STAMP := $(VENV)/.stamp
BIN := $(VENV)/bin
# Packages come without bytecode: see Warpwatch's own Makefile.
unexport PYTHONDONTWRITEBYTECODE
.DEFAULT_GOAL := help
.PHONY: help

help: ## Show what can be made
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 20

$(STAMP): $(LOCKED)
	$(call installed,$(VENV),compile)
endif

# One environment for all where somebody names it.
VENV_READER ?= $(VENV)
VENV_HOST ?= $(VENV)
READER_BIN := $(VENV_READER)/bin
HOST_BIN := $(VENV_HOST)/bin
READER_STAMP := $(VENV_READER)/.stamp
HOST_STAMP := $(VENV_HOST)/.stamp
ifneq ($(VENV_READER),$(VENV))
$(READER_STAMP): $(LOCKED)
	$(call installed,$(VENV_READER),reports)
endif
ifneq ($(VENV_HOST),$(VENV))
$(HOST_STAMP): $(LOCKED)
	$(call installed,$(VENV_HOST),gpu)
endif

# What needs nothing but Python does not wait for torch: the checkout's own harness is run from
# where it lies, any other is installed without what it depends on.
ifneq ($(CHECKOUT),)
BARE := $(PYTHON)
BARE_READY :=
else
BARE := .warpwatch-bare/bin/python
BARE_READY := $(BARE)
$(BARE):
	$(PYTHON) -m venv .warpwatch-bare
	$(BARE) -m pip install --quiet --disable-pip-version-check --no-deps $(WARPWATCH) || $(NOT_THERE)
endif

DOCKER_RUN = $(HOST_BIN)/python -m warpwatch container run
MACHINE ?=
BUILDER ?= docker
BUILD = $(HOST_BIN)/python -m warpwatch container build --builder $(BUILDER) $(if $(BASE_IMAGE),--base $(BASE_IMAGE))
TIMEOUT ?= 14400

.PHONY: image-cpu image-cuda image-rocm bench-cuda bench-rocm container-clean

image-cpu: $(HOST_STAMP) ## Build the container image of the compile lane
	@$(BUILD) --backend cpu

image-cuda: $(HOST_STAMP) ## Build the container image for NVIDIA runners
	@$(BUILD) --backend cuda

image-rocm: $(HOST_STAMP) ## Build the container image for AMD runners
	@$(BUILD) --backend rocm

bench-cuda: $(HOST_STAMP) ## Measure the newest commits in the CUDA image: no network, read-only
	@$(DOCKER_RUN) --backend cuda $(if $(MACHINE),--machine $(MACHINE)) --timeout $(TIMEOUT) \
		-- python -m warpwatch history --commits $(COMMITS)
	@$(HOST_BIN)/python -m warpwatch report

bench-rocm: $(HOST_STAMP) ## Measure the newest commits in the ROCm image: no network, read-only
	@$(DOCKER_RUN) --backend rocm $(if $(MACHINE),--machine $(MACHINE)) --timeout $(TIMEOUT) \
		-- python -m warpwatch history --commits $(COMMITS)
	@$(HOST_BIN)/python -m warpwatch report

container-clean: $(HOST_STAMP) ## Remove containers whose run has died
	@$(HOST_BIN)/python -m warpwatch container clean

# What the workflows run. Values come from the environment and reach the shell as "$$NAME", never
# as $(NAME): make must not expand what an event holds.
LANE_DIR := .lane
# Outside of a workflow the commands print what a later job would ask.
OUTPUT := $${GITHUB_OUTPUT:+--output "$$GITHUB_OUTPUT"}
TRUSTED := .trusted
# The name on the pages and in the feed, whose readers tell feeds apart by it.
NAMED = $${GITHUB_REPOSITORY:+--project "$$GITHUB_REPOSITORY"}

.PHONY: image ci-plan ci-gate ci-all-green fetch-commit lane-cpu lane-gpu history-gpu deliver
.PHONY: trusted judge merge-shards shards-complete record site silent-machines

image: $(HOST_STAMP) ## Build the image of $BACKEND
	@$(BUILD) --backend "$${BACKEND:?cpu, cuda or rocm}"

ci-plan: $(BARE_READY) ## Write the matrix of $BACKENDS for a workflow
	@$(BARE) -m warpwatch container plan --backends $${BACKENDS:?backends} $(OUTPUT)

ci-gate: $(BARE_READY) ## Write what a GPU machine may measure for this event; fail where it may not
	@$(BARE) -m warpwatch ci gate --environment "$${ENVIRONMENT:?environment}" --base "$$BASE" \
		$(OUTPUT)

ci-all-green: $(BARE_READY) ## Fail unless every job in $NEEDS succeeded
	@$(BARE) -m warpwatch ci needs "$$NEEDS"

fetch-commit: $(HOST_STAMP) ## Fetch the objects of $HEAD and $BASE; nothing of them is checked out
	@$(HOST_BIN)/python -m warpwatch ci record commit "$$HEAD" "$$BASE"

lane-cpu: $(STAMP) ## Compile $BASE and $HEAD for all targets, for the judge
	@rm -rf $(LANE_DIR)
	@$(BIN)/python -m warpwatch ci lane --lane cpu --base "$$BASE" --head "$$HEAD" --bench '^compiled\.' \
		--out $(LANE_DIR)

lane-gpu: $(HOST_STAMP) ## Measure $BASE and $HEAD in the container of $BACKEND, for the judge
	@rm -rf $(LANE_DIR) && mkdir -p $(LANE_DIR)
	@$(DOCKER_RUN) --backend "$$BACKEND" --machine "$$MACHINE" --results $(LANE_DIR) --timeout $(TIMEOUT) \
		-- python -m warpwatch ci lane --lane "$$BACKEND" --machine "$$MACHINE" \
		--base "$$BASE" --head "$$HEAD" --shard "$$SHARD/$$SHARDS"

# The container sees what is known read-only, in the checkout; what it hands over is new. Suspects
# exits 3 when there are some.
history-gpu: $(HOST_STAMP) ## Measure commits that the history lacks or suspects in the container of $BACKEND
	@rm -rf $(LANE_DIR) && mkdir -p $(LANE_DIR)
	@$(HOST_BIN)/python -m warpwatch suspects --results $(TRUSTED)/results --json >$(TRUSTED)/suspects.json \
		|| test $$? -eq 3
	@$(DOCKER_RUN) --backend "$$BACKEND" --machine "$$MACHINE" --results $(LANE_DIR) --timeout $(TIMEOUT) \
		-- python -m warpwatch ci lane --lane "$$BACKEND" --machine "$$MACHINE" --commits $(COMMITS) \
		--shard "$$SHARD/$$SHARDS" --known $(TRUSTED)/results --again $(TRUSTED)/suspects.json

deliver: $(HOST_STAMP) ## Copy plain files within limits from .lane to .delivery, for an upload
	@$(HOST_BIN)/python -m warpwatch container deliver --results $(LANE_DIR) --out .delivery

trusted: $(READER_STAMP) ## Check the data branch out into .trusted
	@rm -rf $(TRUSTED)
	@$(READER_BIN)/python -m warpwatch ci record fetch --out $(TRUSTED)

judge: $(READER_STAMP) ## Judge the artifacts of run $RUN for the lanes $LANE
	@$(READER_BIN)/python -m warpwatch ci judge --lane $${LANE:?lanes} --run "$$RUN" --trusted $(TRUSTED)/results

merge-shards: $(READER_STAMP) ## Merge the shards of $LANES in .artifacts into .merged; says what is missing
	@rm -rf .merged
	@$(READER_BIN)/python -m warpwatch ci merge .artifacts --expect "$$LANES" --out .merged $(OUTPUT)

shards-complete: ## Fail if $MISSING names a shard
	@test -z "$$MISSING" || { echo "error: missing: $$MISSING; what the others measured is recorded" >&2; exit 3; }

record: $(READER_STAMP) ## Append .merged to the data branch
	@$(READER_BIN)/python -m warpwatch ci record push .merged/*

# Warpwatch's own site holds its documents, too.
WITH_DOCS := $(if $(and $(wildcard warpwatch/__main__.py),$(wildcard mkdocs.yml)),$(MAKE) \
	--no-print-directory docs-site DOCS_OUT=.site/html/docs,:)

site: $(READER_STAMP) ## Build the site of the data branch for Pages
	@rm -rf .site && mkdir -p .site
	@$(READER_BIN)/python -m warpwatch report --results $(TRUSTED)/results --out .site/html $(NAMED)
	@$(WITH_DOCS)
	@tar --create --file .site/artifact.tar --directory .site/html .

silent-machines: $(READER_STAMP) ## Open an issue for each machine without new results
	@$(READER_BIN)/python -m warpwatch ci record silent --issue
