# NVIDIA runners. Build with `make image-cuda`; versions.toml has the values.
ARG BASE
ARG COUNTERS

FROM ${COUNTERS} AS counters
# hadolint ignore=DL3002 # a stage that nothing runs in
USER 0
# Nsight Compute alone, from the image's own package index, where the image does not bring it.
# hadolint ignore=DL3008 # the package's name says which CUDA it is of
RUN if [ ! -d /opt/nvidia/nsight-compute ]; then \
        apt-get update \
        && apt-get install -y --no-install-recommends cuda-nsight-compute-13-0 \
        && rm -rf /var/lib/apt/lists/*; \
    fi

FROM ${BASE} AS system
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
# hadolint ignore=DL3002 # packages are installed as root; the runtime stage sets its own user
USER 0
# git for asv; a C compiler and Python's headers because Triton builds its launchers at the
# first launch.
# hadolint ignore=DL3008 # the base's digest already fixes which distribution this is
RUN apt-get update \
    && apt-get install -y --no-install-recommends gcc git libc6-dev python3-dev python3-venv \
    && rm -rf /var/lib/apt/lists/*
COPY --from=counters /opt/nvidia/nsight-compute /opt/nvidia/nsight-compute
RUN newest="$(find /opt/nvidia/nsight-compute -mindepth 1 -maxdepth 1 -type d | sort -V | tail -n 1)" \
    && test -x "${newest}/ncu" \
    && ln -s "${newest}/ncu" /usr/local/bin/ncu

FROM system AS environment
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
ARG PYTHON=python3
ARG TORCH
ARG TRITON
WORKDIR /build
# The base's Python is externally managed: a virtual environment over its site-packages keeps the
# base's torch and triton. That they are the promised ones is checked here, not at the first run.
RUN "${PYTHON}" -m venv --system-site-packages /opt/venv \
    && /opt/venv/bin/python -c "import importlib.metadata as m, sys; \
got = m.version('torch').split('+')[0], m.version('triton').split('+')[0]; \
sys.exit(None if got == ('${TORCH}', '${TRITON}') else \
'base has torch %s, triton %s; versions.toml says ${TORCH}, ${TRITON}' % got)"
# Only what decides the dependencies: an edit to the harness leaves this layer alone. The pip settings
# of whoever builds (indexes, certificates) come as a secret and stay outside.
COPY docker/constraints.txt docker/pip_arguments.py ./
COPY docker/locks ./locks
RUN --mount=type=secret,id=pip,target=/etc/pip.conf \
    /opt/venv/bin/python pip_arguments.py image \
    | xargs /opt/venv/bin/pip install --no-cache-dir --no-compile

FROM environment AS runtime
# Where Python finds the harness that is copied below, and its command.
RUN /opt/venv/bin/python -c "import pathlib, sysconfig; \
pathlib.Path(sysconfig.get_path('purelib'), 'warpwatch.pth').write_text('/opt/warpwatch\n')" \
    && printf '%s\n' '#!/opt/venv/bin/python' 'import sys' 'from warpwatch.__main__ import main' \
        'sys.exit(main())' > /opt/venv/bin/warpwatch \
    && chmod 755 /opt/venv/bin/warpwatch
# The revision is a label of the build command: as an ARG it would not be part of the layer's key.
LABEL org.opencontainers.image.title="warpwatch-cuda" \
      org.opencontainers.image.description="Catches performance regressions of GPU kernels commit by commit" \
      org.opencontainers.image.licenses="Apache-2.0"
# The root is read-only at run time: whatever is written goes to /tmp, HOME included.
ENV PATH=/opt/venv/bin:/usr/local/bin:/usr/bin:/bin \
    HOME=/tmp \
    XDG_CACHE_HOME=/tmp/cache \
    TRITON_CACHE_DIR=/tmp/triton \
    CUDA_CACHE_PATH=/tmp/cuda \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility \
    WARPWATCH_BACKEND=cuda
COPY docker/entrypoint.sh /usr/local/bin/warpwatch-entrypoint
# The harness is the one that builds: `warpwatch container build` hands over its own package. The
# measured project is mounted when the image runs, so one image serves all of its commits.
# hadolint ignore=DL3022 # no stage: the build command names this context
COPY --from=harness . /opt/warpwatch/warpwatch
RUN ["/opt/venv/bin/python", "-m", "compileall", "-q", "/opt/warpwatch"]
WORKDIR /src
USER 10001:10001
ENTRYPOINT ["/usr/local/bin/warpwatch-entrypoint"]
HEALTHCHECK --interval=5m --timeout=60s --start-period=10s \
    CMD ["python", "-m", "warpwatch", "doctor"]
CMD ["python", "-m", "warpwatch", "doctor"]
