# The compile lane: everything but a GPU. Build with `make image-cpu`; versions.toml has the values.
ARG BASE

FROM ${BASE} AS system
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
# git for asv; a C compiler because Triton builds its launchers at the first launch.
# hadolint ignore=DL3008 # the base's digest already fixes which Debian this is
RUN apt-get update \
    && apt-get install -y --no-install-recommends gcc git libc6-dev \
    && rm -rf /var/lib/apt/lists/*

FROM system AS environment
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
ARG PYTHON=python3
WORKDIR /build
# Only what decides the dependencies: an edit to the harness leaves this layer alone.
COPY docker/constraints.txt docker/pip_arguments.py ./
COPY docker/locks ./locks
# The pip settings of whoever builds (indexes, certificates) come as a secret and stay outside.
RUN --mount=type=secret,id=pip,target=/etc/pip.conf \
    "${PYTHON}" -m venv /opt/venv \
    && /opt/venv/bin/python pip_arguments.py development \
    | xargs /opt/venv/bin/pip install --no-cache-dir --no-compile

FROM environment AS runtime
# Where Python finds the harness that is copied below, and its command.
RUN /opt/venv/bin/python -c "import pathlib, sysconfig; \
pathlib.Path(sysconfig.get_path('purelib'), 'warpwatch.pth').write_text('/opt/warpwatch\n')" \
    && printf '%s\n' '#!/opt/venv/bin/python' 'import sys' 'from warpwatch.__main__ import main' \
        'sys.exit(main())' > /opt/venv/bin/warpwatch \
    && chmod 755 /opt/venv/bin/warpwatch
# pip leaves no bytecode and the root is read-only at run time: were it not compiled here, every
# process that imports torch would compile it anew, for 3 to 9 s.
RUN ["/opt/venv/bin/python", "-c", "import asv.main, scipy.special, torch._dynamo, triton.experimental.gluon"]
# The revision is a label of the build command: as an ARG it would not be part of the layer's key.
LABEL org.opencontainers.image.title="warpwatch-cpu" \
      org.opencontainers.image.description="Catches performance regressions of GPU kernels commit by commit" \
      org.opencontainers.image.licenses="Apache-2.0"
# The root is read-only at run time: whatever is written goes to /tmp, HOME included.
ENV PATH=/opt/venv/bin:/usr/local/bin:/usr/bin:/bin \
    HOME=/tmp \
    XDG_CACHE_HOME=/tmp/cache \
    TRITON_CACHE_DIR=/tmp/triton \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    WARPWATCH_BACKEND=cpu
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
