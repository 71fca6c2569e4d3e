# The runner of a pod (docs/guides/gpu-runner.md): GitHub's own, with what a job of ours needs as well. The
# engine is another container, which pulls the images.
#   docker buildx build --file docker/runner/runner.Dockerfile --tag REGISTRY/warpwatch-runner:latest docker/runner
# GitHub refuses runners that are too old, so the base follows its newest: build it anew each month.
# That base is Ubuntu 24.04 with Python 3.12; an older one, whose Python the harness cannot use, fails here.
ARG BASE=ghcr.io/actions/actions-runner:latest

# hadolint ignore=DL3006 # the tag is in the argument above
FROM ${BASE}
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
# hadolint ignore=DL3002 # packages are installed as root; the runner's own user is set below
USER 0
# hadolint ignore=DL3008 # the runner's base decides which distribution this is
RUN apt-get update \
    && apt-get install -y --no-install-recommends \
        ca-certificates git make python3 python3-venv \
    && rm -rf /var/lib/apt/lists/* \
    && python3 -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Warpwatch needs Python 3.11: choose a newer BASE")'
USER 1001
