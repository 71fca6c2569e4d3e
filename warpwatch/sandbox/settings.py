"""What a container may do: one description, as the docker SDK's arguments or a command line."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .images import Backend

# Where podman and Docker look for descriptions of devices, if nobody tells them otherwise.
CDI_FOLDERS = ("/etc/cdi", "/var/run/cdi")
LABEL = "warpwatch.run"
SOURCE = "/src"  # where the repository is seen inside
RESULTS = ".asv"  # the only part of it that can be written


_GPU = re.compile(r"[A-Za-z0-9][A-Za-z0-9:_-]{0,80}")


class EngineError(ValueError):
    """The engine cannot do what was asked; the message carries the remedy."""


@dataclass(frozen=True)
class Access:
    """How a container gets at the GPU."""

    cdi: str = ""
    devices: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    gpus: str = ""
    """For engines with NVIDIA's runtime: ``all``, or the name of one."""


@dataclass(frozen=True)
class Run:
    """One run of an image over a repository. Everything is denied that is not named here."""

    backend: Backend
    command: tuple[str, ...]
    repository: Path
    results: Path
    machine: str
    image: str = ""
    access: Access = field(default_factory=Access)
    memory_gb: float = 32.0
    pids: int = 4096
    tmp_gb: float = 8.0
    results_gb: float = 8.0
    timeout_s: float | None = None
    trusted_counters: bool = False
    user: str = ""
    read_only: tuple[Path, ...] = ()

    @property
    def reference(self) -> str:
        return self.image or self.backend.tag


def settings(run: Run) -> dict[str, Any]:
    """The docker SDK's arguments for ``containers.create``."""
    from docker.types import DeviceRequest, LogConfig, Mount

    access = run.access
    requests = []
    if access.cdi:
        requests.append(DeviceRequest(driver="cdi", device_ids=[access.cdi]))
    if access.gpus == "all":
        requests.append(DeviceRequest(count=-1, capabilities=[["gpu"]]))
    elif access.gpus:
        requests.append(DeviceRequest(device_ids=[access.gpus], capabilities=[["gpu"]]))
    bind = "bind"
    return {
        "image": run.reference,
        "command": list(run.command),
        "hostname": run.machine,
        "network_mode": "none",
        "read_only": True,
        "tmpfs": {"/tmp": _tmpfs(run)},
        "cap_drop": ["ALL"],
        "cap_add": ["SYS_ADMIN"] if run.trusted_counters else [],
        "security_opt": ["no-new-privileges"],
        "pids_limit": run.pids,
        "mem_limit": _memory(run),
        "memswap_limit": _memory(run),
        "shm_size": "1g",
        "user": run.user,
        "working_dir": SOURCE,
        "environment": _environment(run),
        # What it prints is passed on and kept by nobody: a log would grow on the host's disk.
        "log_config": LogConfig(type="none"),
        "mounts": [
            Mount(inside, str(outside), type=bind, read_only=not writable)
            for outside, inside, writable in _mounts(run)
        ],
        "devices": [f"{device}:{device}:rw" for device in access.devices],
        "group_add": list(access.groups),
        "device_requests": requests,
        "labels": {LABEL: str(os.getpid())},
        # doctor every five minutes would disturb what is being measured
        "healthcheck": {"test": ["NONE"]},
    }


def command_line(run: Run, engine: str = "podman") -> list[str]:
    """The same run as a command line of docker or podman, for those who want to see it."""
    access = run.access
    line = [engine, "run", "--rm", "--hostname", run.machine, "--network", "none", "--read-only"]
    line += ["--tmpfs", f"/tmp:{_tmpfs(run)}", "--cap-drop", "all"]
    if run.trusted_counters:
        line += ["--cap-add", "SYS_ADMIN"]
    line += ["--security-opt", "no-new-privileges", "--pids-limit", str(run.pids)]
    line += ["--memory", _memory(run), "--memory-swap", _memory(run), "--shm-size", "1g"]
    line += ["--user", run.user, "--workdir", SOURCE]
    line += ["--no-healthcheck", "--log-driver", "none"]
    for name, value in _environment(run).items():
        line += ["--env", f"{name}={value}"]
    for outside, inside, writable in _mounts(run):
        line += ["--volume", f"{outside}:{inside}" + ("" if writable else ":ro")]
    if access.cdi:
        line += ["--device", access.cdi]
    if access.gpus:
        line += ["--gpus", "all" if access.gpus == "all" else f"device={access.gpus}"]
    for device in access.devices:
        line += ["--device", device]
    for group in access.groups:
        line += ["--group-add", group]
    return [*line, run.reference, *run.command]


def gpu_access(
    backend: str,
    engine: Mapping[str, Any],
    devices: Path = Path("/dev"),
    *,
    gpu: str = "",
    cdi_folders: Sequence[str] = CDI_FOLDERS,
) -> Access:
    """How the GPU is handed over, from what the engine says of itself (``docker info``).

    CDI where the engine knows the devices, else the vendor's own way.

    Args:
        backend: ``cpu``, ``cuda`` or ``rocm``.
        engine: The engine's answer to ``info``.
        devices: Where the device nodes are.
        gpu: The one GPU that is handed over, as its vendor names it; all of them without.
        cdi_folders: Where podman looks for descriptions: its answer does not say.

    Returns:
        The way.

    Raises:
        EngineError: There is no GPU, or none that can be handed over.
    """
    if backend == "cpu":
        return Access()
    if gpu and not _GPU.fullmatch(gpu):
        raise EngineError(f"--gpu: expected what the vendor's tool calls it, got {gpu!r}")
    kind = {"cuda": "nvidia.com/gpu", "rocm": "amd.com/gpu"}[backend]
    groups = _amd_groups(devices) if backend == "rocm" else ()
    if _knows(kind, engine, cdi_folders):
        version = str(engine.get("ServerVersion", ""))
        if _is_podman(engine) and version.partition(".")[0] in ("1", "2", "3", "4"):
            raise EngineError(
                f"podman {version} passes over GPUs that are requested by its API: use podman 5 or "
                "later, or run what --print podman prints"
            )
        return Access(cdi=f"{kind}={gpu or 'all'}", groups=groups)
    if backend == "cuda":
        if "nvidia" in (engine.get("Runtimes") or {}):
            return Access(gpus=gpu or "all")
        raise EngineError(
            "the engine has no NVIDIA GPU: install the NVIDIA container toolkit, then "
            "nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml, and restart the engine"
        )
    if gpu:
        raise EngineError(
            "--gpu: one AMD GPU of several is handed over by CDI alone: "
            "amd-ctk cdi generate --output=/etc/cdi/amd.json"
        )
    if (devices / "kfd").exists() and (devices / "dri").is_dir():
        return Access(devices=(str(devices / "kfd"), str(devices / "dri")), groups=groups)
    raise EngineError(
        "the engine has no AMD GPU: /dev/kfd and /dev/dri are missing; install the amdgpu driver, "
        "or describe the GPU for CDI with amd-ctk cdi generate --output=/etc/cdi/amd.json"
    )


def gpu_of_nodes(folder: Path, cdi_folders: Sequence[str] = CDI_FOLDERS) -> str:
    """What CDI calls the one AMD GPU whose device nodes are in this folder.

    Args:
        folder: ``/dev/dri`` of a container that was given one GPU of several.
        cdi_folders: Where the descriptions are; ``amd-ctk`` writes them as JSON.

    Returns:
        The name.

    Raises:
        EngineError: The nodes are those of none, or of several.
    """
    found = set()
    for path in (file for one in cdi_folders for file in sorted(Path(one).glob("*.json"))):
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
            if document["kind"] != "amd.com/gpu":
                continue
            for device in document["devices"]:
                nodes = [Path(node["path"]) for node in device["containerEdits"]["deviceNodes"]]
                drm = [node for node in nodes if node.parent == Path("/dev/dri")]
                if drm and device["name"] != "all" and all((folder / n.name).exists() for n in drm):
                    found.add(str(device["name"]))
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise EngineError(f"{path}: is not a description of devices: {error!r}") from None
    if len(found) != 1:
        raise EngineError(
            f"--gpu @{folder}: expected the nodes of one GPU, got those of {len(found)} by the "
            f"descriptions in {', '.join(map(str, cdi_folders))} (amd-ctk cdi generate "
            "--output=/etc/cdi/amd.json)"
        )
    return found.pop()


def _knows(kind: str, engine: Mapping[str, Any], cdi_folders: Sequence[str]) -> bool:
    """Whether the engine hands over devices of this kind by CDI."""
    discovered = [str(device.get("ID", "")) for device in engine.get("DiscoveredDevices") or ()]
    if any(identity.startswith(kind) for identity in discovered):
        return True
    folders = engine.get("CDISpecDirs") or ()
    if not folders and _is_podman(engine):
        folders = cdi_folders
    files = (path for folder in folders for path in sorted(Path(folder).glob("*.[jy]*")))
    return any(kind in path.read_text(errors="replace") for path in files)


def _is_podman(engine: Mapping[str, Any]) -> bool:
    """It speaks CDI always and says nothing of it; the name of its builder gives it away."""
    return "BuildahVersion" in engine


def _amd_groups(devices: Path) -> tuple[str, ...]:
    """The groups that own the nodes, by number: those of the host need not exist in the image.

    AMD's descriptions name none, and the nodes are open to their groups alone.
    """
    nodes = (devices / "kfd", *sorted((devices / "dri").glob("renderD*")))
    return tuple(sorted({str(node.stat().st_gid) for node in nodes if node.exists()}))


def _environment(run: Run) -> dict[str, str]:
    return {
        # The mounted repository belongs to somebody else than the user inside.
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "safe.directory",
        "GIT_CONFIG_VALUE_0": "*",
        "GIT_OPTIONAL_LOCKS": "0",
        "WARPWATCH_MACHINE": run.machine,
        "WARPWATCH_IMAGE": run.reference,
        "WARPWATCH_BACKEND": run.backend.name,
    }


def _mounts(run: Run) -> list[tuple[Path, str, bool]]:
    """What is seen where: outside, inside, and whether it can be written."""
    mounts = [
        (run.repository, SOURCE, False),
        (run.results, f"{SOURCE}/{RESULTS}", True),
    ]
    return mounts + [(path, str(path), False) for path in (*_git_folder(run), *run.read_only)]


def _git_folder(run: Run) -> tuple[Path, ...]:
    """The folder that holds the commits, where it is not inside the repository (a worktree)."""
    answer = subprocess.run(
        ["git", "-C", str(run.repository), "rev-parse", "--git-common-dir"],
        capture_output=True,
        text=True,
    )
    if answer.returncode != 0:
        return ()
    folder = (run.repository / answer.stdout.strip()).resolve()
    return () if folder.is_relative_to(run.repository.resolve()) else (folder,)


def _tmpfs(run: Run) -> str:
    # exec: Triton loads the launchers that it compiles from its cache there.
    return f"rw,exec,nosuid,nodev,size={int(run.tmp_gb * 1024)}m,mode=1777"


def _memory(run: Run) -> str:
    return f"{int(run.memory_gb * 1024)}m"
