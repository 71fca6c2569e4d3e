# Containers and workflows. A workflow runs `make --file docker/targets.mk TARGET` and nothing else;
# so a project that is measured keeps its own Makefile. Warpwatch's own includes this file.
PYTHON ?= python3
COMMITS ?= 5
# What the harness is installed from: Warpwatch's own checkout brings it along.
ifneq ($(wildcard warpwatch/__main__.py),)
WARPWATCH ?= --editable .
else
WARPWATCH ?= warpwatch==0.2.0
endif

ifndef STAMP
VENV ?= .warpwatch-venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.stamp
# Packages come without bytecode: see Warpwatch's own Makefile.
unexport PYTHONDONTWRITEBYTECODE
.DEFAULT_GOAL := help
.PHONY: help

help: ## Show what can be made
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 20

$(STAMP): docker/constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -r docker/constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps $(WARPWATCH)
	@touch $@
endif

# What needs nothing but Python does not wait for torch: the checkout's own harness is run from
# where it lies, any other is installed without what it depends on.
ifneq ($(wildcard warpwatch/__main__.py),)
BARE := $(PYTHON)
BARE_READY :=
else
BARE := .warpwatch-bare/bin/python
BARE_READY := $(BARE)
$(BARE):
	$(PYTHON) -m venv .warpwatch-bare
	$(BARE) -m pip install --quiet --disable-pip-version-check --no-deps $(WARPWATCH)
endif

DOCKER_RUN = $(BIN)/python -m warpwatch container run
MACHINE ?=
BUILDER ?= docker
BUILD = $(BIN)/python -m warpwatch container build --builder $(BUILDER) $(if $(BASE_IMAGE),--base $(BASE_IMAGE))
TIMEOUT ?= 14400

.PHONY: image-cpu image-cuda image-rocm bench-cuda bench-rocm container-clean

image-cpu: $(STAMP) ## Build the container image of the compile lane
	@$(BUILD) --backend cpu

image-cuda: $(STAMP) ## Build the container image for NVIDIA runners
	@$(BUILD) --backend cuda

image-rocm: $(STAMP) ## Build the container image for AMD runners
	@$(BUILD) --backend rocm

bench-cuda: $(STAMP) ## Measure the newest commits in the CUDA image: no network, read-only
	@$(DOCKER_RUN) --backend cuda $(if $(MACHINE),--machine $(MACHINE)) --timeout $(TIMEOUT) \
		-- python -m warpwatch history --commits $(COMMITS)
	@$(BIN)/python -m warpwatch report

bench-rocm: $(STAMP) ## Measure the newest commits in the ROCm image: no network, read-only
	@$(DOCKER_RUN) --backend rocm $(if $(MACHINE),--machine $(MACHINE)) --timeout $(TIMEOUT) \
		-- python -m warpwatch history --commits $(COMMITS)
	@$(BIN)/python -m warpwatch report

container-clean: $(STAMP) ## Remove containers whose run has died
	@$(BIN)/python -m warpwatch container clean

# What the workflows run. Values come from the environment and reach the shell as "$$NAME", never
# as $(NAME): make must not expand what an event holds.
LANE_DIR := .lane
TRUSTED := .trusted

.PHONY: image ci-plan ci-gate ci-all-green fetch-commit lane-cpu lane-gpu history-gpu deliver
.PHONY: trusted judge merge-shards shards-complete record site silent-machines

image: $(STAMP) ## Build the image of $BACKEND
	@$(BUILD) --backend "$${BACKEND:?cpu, cuda or rocm}"

ci-plan: $(BARE_READY) ## Write the matrix of $BACKENDS for a workflow
	@$(BARE) -m warpwatch container plan --backends $${BACKENDS:?backends} --output "$$GITHUB_OUTPUT"

ci-gate: $(BARE_READY) ## Write what a GPU machine may measure for this event; fail where it may not
	@$(BARE) -m warpwatch ci gate --environment "$${ENVIRONMENT:?environment}" --base "$$BASE" \
		--output "$$GITHUB_OUTPUT"

ci-all-green: $(BARE_READY) ## Fail unless every job in $NEEDS succeeded
	@$(BARE) -m warpwatch ci needs "$$NEEDS"

fetch-commit: $(STAMP) ## Fetch the objects of $HEAD and $BASE; nothing of them is checked out
	@$(BIN)/python -m warpwatch ci record commit "$$HEAD" "$$BASE"

lane-cpu: $(STAMP) ## Compile $BASE and $HEAD for all targets, for the judge
	@rm -rf $(LANE_DIR)
	@$(BIN)/python -m warpwatch ci lane --lane cpu --base "$$BASE" --head "$$HEAD" --bench '^compiled\.' \
		--out $(LANE_DIR)

lane-gpu: $(STAMP) ## Measure $BASE and $HEAD in the container of $BACKEND, for the judge
	@rm -rf $(LANE_DIR) && mkdir -p $(LANE_DIR)
	@$(DOCKER_RUN) --backend "$$BACKEND" --machine "$$MACHINE" --results $(LANE_DIR) --timeout $(TIMEOUT) \
		-- python -m warpwatch ci lane --lane "$$BACKEND" --machine "$$MACHINE" \
		--base "$$BASE" --head "$$HEAD" --shard "$$SHARD/$$SHARDS"

# The container sees what is known read-only, in the checkout; what it hands over is new. Suspects
# exits 3 when there are some.
history-gpu: $(STAMP) ## Measure commits that the history lacks or suspects in the container of $BACKEND
	@rm -rf $(LANE_DIR) && mkdir -p $(LANE_DIR)
	@$(BIN)/python -m warpwatch suspects --results $(TRUSTED)/results --json >$(TRUSTED)/suspects.json \
		|| test $$? -eq 3
	@$(DOCKER_RUN) --backend "$$BACKEND" --machine "$$MACHINE" --results $(LANE_DIR) --timeout $(TIMEOUT) \
		-- python -m warpwatch ci lane --lane "$$BACKEND" --machine "$$MACHINE" --commits $(COMMITS) \
		--shard "$$SHARD/$$SHARDS" --known $(TRUSTED)/results --again $(TRUSTED)/suspects.json

deliver: $(STAMP) ## Copy plain files within limits from .lane to .delivery, for an upload
	@$(BIN)/python -m warpwatch container deliver --results $(LANE_DIR) --out .delivery

trusted: $(STAMP) ## Check the data branch out into .trusted
	@rm -rf $(TRUSTED)
	@$(BIN)/python -m warpwatch ci record fetch --out $(TRUSTED)

judge: $(STAMP) ## Judge the artifacts of run $RUN for the lanes $LANE
	@$(BIN)/python -m warpwatch ci judge --lane $${LANE:?lanes} --run "$$RUN" --trusted $(TRUSTED)/results

merge-shards: $(STAMP) ## Merge the shards of $LANES in .artifacts into .merged; says what is missing
	@rm -rf .merged
	@$(BIN)/python -m warpwatch ci merge .artifacts --expect "$$LANES" --out .merged --output "$$GITHUB_OUTPUT"

shards-complete: ## Fail if $MISSING names a shard
	@test -z "$$MISSING" || { echo "error: missing: $$MISSING; what the others measured is recorded" >&2; exit 3; }

record: $(STAMP) ## Append .merged to the data branch
	@$(BIN)/python -m warpwatch ci record push .merged/*

site: $(STAMP) ## Build the site of the data branch for Pages
	@rm -rf .site && mkdir -p .site
	@$(BIN)/python -m warpwatch report --results $(TRUSTED)/results --out .site/html
	@tar --create --file .site/artifact.tar --directory .site/html .

silent-machines: $(STAMP) ## Open an issue for each machine without new results
	@$(BIN)/python -m warpwatch ci record silent --issue
