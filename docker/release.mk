# What release.yml runs, for Warpwatch's own releases only. Values come from the environment.
RELEASE_VENV := .warpwatch-release

.PHONY: release-files release-image release-publish
release-files: $(STAMP) ## Build the wheel of $TAG and write its bill of materials into dist/
	@$(BIN)/python -m tools.release files --tag "$$TAG"

# Who may push installs no more than what talks to an engine; who may publish, nothing.
$(RELEASE_VENV)/.stamp: $(LOCKED)
	$(call installed,$(RELEASE_VENV),gpu)

release-image: $(RELEASE_VENV)/.stamp ## Build and push the image of $BACKEND to $REGISTRY, with its bill of materials
	@$(RELEASE_VENV)/bin/python -m tools.release image --tag "$$TAG" --backend "$$BACKEND" \
		--registry "$$REGISTRY" --actor "$$ACTOR"

release-publish: ## Make GitHub's release of $TAG from what is in dist/
	@$(PYTHON) -m tools.release publish --tag "$$TAG"
