# AMD runners. Build with `make image-rocm`; versions.toml has the values.
ARG BASE

FROM ${BASE} AS system
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
# hadolint ignore=DL3002 # packages are installed as root; the runtime stage sets its own user
USER 0
# git for asv; a C compiler and Python's headers because Triton builds its launchers at the
# first launch. rocprofv3 and amdsmi are the base's own.
# hadolint ignore=DL3008 # the base's digest already fixes which distribution this is
RUN apt-get update \
    && apt-get install -y --no-install-recommends gcc git libc6-dev python3-dev python3-venv \
    && rm -rf /var/lib/apt/lists/*

FROM system AS environment
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
ARG PYTHON=python3
ARG TORCH
WORKDIR /build
# torch and triton are the base's: AMD's builds of them carry the vendor's own versions of triton,
# so only torch's version is checked here.
RUN "${PYTHON}" -m venv --system-site-packages /opt/venv \
    && /opt/venv/bin/python -c "import importlib.metadata as m, sys; \
got = m.version('torch').split('+')[0]; \
sys.exit(None if got == '${TORCH}' else \
'base has torch %s; versions.toml says ${TORCH}' % got)"
# Only what decides the dependencies: an edit to the harness leaves this layer alone. The pip settings
# of whoever builds (indexes, certificates) come as a secret and stay outside.
COPY docker/constraints.txt docker/pip_arguments.py ./
COPY docker/locks ./locks
RUN --mount=type=secret,id=pip,target=/etc/pip.conf \
    /opt/venv/bin/python pip_arguments.py image \
    | xargs /opt/venv/bin/pip install --no-cache-dir --no-compile

FROM environment AS runtime
# The base ships amdsmi, which reads clocks, where no Python looks for it.
RUN /opt/venv/bin/python -c "import pathlib, sys, sysconfig; \
places = ['/opt/rocm', *(f'{path}/_rocm_sdk_core' for path in sys.path)]; \
found = [f'{one}/share/amd_smi\n' for one in places if pathlib.Path(one, 'share/amd_smi/amdsmi').is_dir()]; \
pathlib.Path(sysconfig.get_path('purelib'), 'amdsmi.pth').write_text(''.join(found[:1]))"
# Where Python finds the harness that is copied below, and its command.
RUN /opt/venv/bin/python -c "import pathlib, sysconfig; \
pathlib.Path(sysconfig.get_path('purelib'), 'warpwatch.pth').write_text('/opt/warpwatch\n')" \
    && printf '%s\n' '#!/opt/venv/bin/python' 'import sys' 'from warpwatch.__main__ import main' \
        'sys.exit(main())' > /opt/venv/bin/warpwatch \
    && chmod 755 /opt/venv/bin/warpwatch
# The revision is a label of the build command: as an ARG it would not be part of the layer's key.
LABEL org.opencontainers.image.title="warpwatch-rocm" \
      org.opencontainers.image.description="Catches performance regressions of GPU kernels commit by commit" \
      org.opencontainers.image.licenses="Apache-2.0"
# The root is read-only at run time: whatever is written goes to /tmp, HOME included. The older
# images keep ROCm in /opt/rocm, the newer ones have its tools on the system's path.
ENV PATH=/opt/venv/bin:/opt/rocm/bin:/usr/local/bin:/usr/bin:/bin \
    HOME=/tmp \
    XDG_CACHE_HOME=/tmp/cache \
    TRITON_CACHE_DIR=/tmp/triton \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    WARPWATCH_BACKEND=rocm
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
