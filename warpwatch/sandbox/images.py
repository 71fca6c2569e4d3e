"""The images: what docker/versions.toml says of each backend, and the command that builds one."""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import warpwatch
from warpwatch import project

REVISION_LABEL = "org.opencontainers.image.revision"
HARNESS = "harness"  # the build context that holds the package, in the Dockerfiles

Builder = Literal["docker", "buildah"]  # `none`: somebody else has built it
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_PINNED = re.compile(r"[a-z0-9][a-z0-9./_-]*:[A-Za-z0-9._-]+")
# The name becomes the container's host name and asv's folder.
MACHINE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?")


@dataclass(frozen=True)
class Backend:
    """One section of versions.toml: an image, and the runners that measure with it."""

    name: str
    base: str
    digest: str
    python: str
    torch: str
    platform: str
    runner: tuple[str, ...]
    shards: int
    machine: str
    triton: str = ""
    counters: str = ""
    counters_digest: str = ""
    driver: str = ""

    @property
    def dockerfile(self) -> str:
        return f"docker/{self.name}.Dockerfile"

    @property
    def tag(self) -> str:
        return f"localhost/warpwatch:{self.name}"

    @property
    def pinned_base(self) -> str:
        return f"{self.base}@{self.digest}"

    @property
    def pinned_counters(self) -> str:
        return f"{self.counters}@{self.counters_digest}" if self.counters else ""


def root() -> Path:
    """The folder that holds ``docker/``: the project's."""
    return project.folder()


def versions_file() -> Path:
    """The one file that pins base images."""
    return root() / "docker" / "versions.toml"


def load(path: Path | None = None) -> dict[str, Backend]:
    """All backends by name. ``ValueError`` lists every mistake of the file at once."""
    path = path or versions_file()
    document = read_document(path)
    mistakes: list[str] = []
    if document.get("schema") != 1:
        mistakes.append(f"schema: expected 1, got {document.get('schema')!r}")
    sections = document.get("backends")
    if not isinstance(sections, dict) or not sections:
        raise ValueError(f"{path}: expected at least one section [backends.NAME]")
    backends = {}
    for name, section in sections.items():
        found, backend = _check(name, section)
        mistakes += found
        if backend is not None:
            backends[name] = backend
    if mistakes:
        raise ValueError(f"{path}: " + "; ".join(mistakes))
    return backends


def read_document(path: Path | None = None) -> dict[str, Any]:
    """The whole of versions.toml as it stands."""
    path = path or versions_file()
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ValueError(f"{path} is missing: it pins what the images are built from") from None
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path}: not valid TOML: {error}") from None


def get(name: str, path: Path | None = None) -> Backend:
    """The backend called ``name``; ``ValueError`` names the known ones."""
    backends = load(path)
    if name not in backends:
        raise ValueError(f"unknown backend {name!r}: expected one of {' '.join(backends)}")
    return backends[name]


def matrix(backends: Sequence[Backend]) -> dict[str, list[dict[str, Any]]]:
    """The matrix of a workflow: one entry for each shard of each backend."""
    return {
        "include": [
            {
                "backend": backend.name,
                "runner": list(backend.runner),
                "machine": backend.machine,
                "shard": shard,
                "shards": backend.shards,
            }
            for backend in backends
            for shard in range(1, backend.shards + 1)
        ]
    }


def build_arguments(backend: Backend, base: str = "") -> dict[str, str]:
    """The ``ARG`` values of the backend's Dockerfile. ``base`` stands in for the pinned images."""
    arguments = {
        "BASE": base or backend.pinned_base,
        "PYTHON": backend.python,
    }
    if backend.counters:
        arguments["COUNTERS"] = base or backend.pinned_counters
    if backend.name != "cpu":  # there the lock file alone decides
        arguments["TORCH"] = backend.torch
        if backend.triton:
            arguments["TRITON"] = backend.triton
    return arguments


def copy_harness(folder: Path) -> Path:
    """Copy the package that runs now, for an image: the same harness on both sides.

    Args:
        folder: Where to; it is made, and must not exist.

    Returns:
        ``folder``.
    """
    # Bytecode would change the layer whenever a module was imported; the starter is for `init`.
    left_out = shutil.ignore_patterns("__pycache__", "*.pyc", "starter")
    shutil.copytree(Path(warpwatch.__file__).resolve().parent, folder, ignore=left_out)
    return folder


def build_command(
    backend: Backend,
    *,
    harness: Path,
    builder: Builder = "docker",
    base: str = "",
    tag: str = "",
    revision: str = "unknown",
    pip_config: Path | None = None,
    volumes: Sequence[str] = (),
) -> list[str]:
    """The command line that builds the image, to be run from the repository's root.

    ``harness`` holds the package that the image gets (:func:`copy_harness`). ``pip_config`` is
    handed over as a build secret and leaves no trace in the image. ``volumes``
    (``HOST:CONTAINER:ro``) are buildah's: certificates and wheels of the machine that builds.
    """
    if builder == "docker":
        if volumes:
            raise ValueError("--volume: only buildah mounts folders in a build; use --pip-config")
        command = ["docker", "buildx", "build", "--load", "--platform", backend.platform]
    else:
        command = ["buildah", "bud", "--format", "docker", "--isolation", "chroot", "--layers"]
    for name, value in build_arguments(backend, base).items():
        command += ["--build-arg", f"{name}={value}"]
    command += ["--build-context", f"{HARNESS}={harness}"]
    # Not an ARG: buildah leaves those out of the key of a LABEL, and an old layer would name an
    # old revision.
    command += ["--label", f"{REVISION_LABEL}={revision}"]
    if pip_config is not None:
        command += ["--secret", f"id=pip,src={pip_config}"]
    for volume in volumes:
        command += ["--volume", volume]
    return [*command, "--file", backend.dockerfile, "--tag", tag or backend.tag, "."]


def pip_settings(environment: Mapping[str, str] = os.environ) -> str:
    """The caller's own pip settings (files and ``PIP_*``) as the text of a pip.conf.

    Empty where there are none. ``PIP_*`` win over files, as they do in pip.
    """
    listing = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"],
        capture_output=True,
        text=True,
        env=dict(environment),
    ).stdout
    values: dict[str, str] = {}
    found = re.findall(r"^(global|install|:env:)\.([a-z-]+)='(.*)'$", listing, re.MULTILINE)
    for section in ("global", "install", ":env:"):
        values |= {key: value for where, key, value in found if where == section}
    values = {key: " ".join(value.split("\\n")).strip() for key, value in values.items()}
    kept = ("cert", "extra-index-url", "find-links", "index-url", "timeout", "trusted-host")
    lines = [f"{key} = {value}" for key, value in values.items() if key in kept]
    return "\n".join(["[global]", *lines, ""]) if lines else ""


def _check(name: str, section: Any) -> tuple[list[str], Backend | None]:
    place = f"[backends.{name}]"
    if not isinstance(section, dict):
        return [f"{place}: expected a section"], None
    fields = {field.name: field for field in dataclasses.fields(Backend) if field.name != "name"}
    required = {k for k, field in fields.items() if field.default is dataclasses.MISSING}
    mistakes = [f"{place} {key}: missing" for key in sorted(required - section.keys())]
    mistakes += [f"{place} {key}: unknown key" for key in sorted(section.keys() - fields.keys())]

    def hold(key: str, good: bool, expected: str) -> None:
        if key in section and not good:
            mistakes.append(f"{place} {key}: expected {expected}, got {section[key]!r}")

    for key in ("base", "counters"):
        value = section.get(key)
        hold(key, isinstance(value, str) and bool(_PINNED.fullmatch(value)), "IMAGE:TAG")
    for key in ("digest", "counters_digest"):
        value = section.get(key)
        hold(key, isinstance(value, str) and bool(_DIGEST.fullmatch(value)), "sha256 and 64 digits")
    for key in ("python", "torch", "triton", "platform", "driver"):
        value = section.get(key)
        hold(key, isinstance(value, str) and bool(value), "a text")
    labels = section.get("runner")
    hold(
        "runner",
        isinstance(labels, list) and bool(labels) and all(isinstance(x, str) for x in labels),
        "a list of labels",
    )
    shards = section.get("shards")
    hold("shards", type(shards) is int and 1 <= shards <= 64, "a whole number from 1 to 64")
    one = name != "cpu" or shards in (None, 1)
    hold("shards", one, "1: the workflows compile in one job")
    machine = section.get("machine")
    hold(
        "machine",
        isinstance(machine, str) and bool(MACHINE.fullmatch(machine)),
        "letters, digits and hyphens, at most 63",
    )
    if ("counters" in section) != ("counters_digest" in section):
        mistakes.append(f"{place} counters and counters_digest: expected both or neither")
    if mistakes:
        return mistakes, None
    return [], Backend(name=name, **(section | {"runner": tuple(section["runner"])}))
