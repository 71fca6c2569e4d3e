"""How the GPU is handed over follows from what the engine says of itself."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from warpwatch.sandbox import containers, images
from warpwatch.sandbox.settings import Access, EngineError, Run, command_line, gpu_access, settings


def run(folder: Path, backend: str = "cuda", **more: Any) -> Run:
    return Run(
        images.get(backend), ("asv", "run"), folder, folder / ".asv", "box", user="7:8", **more
    )


@pytest.mark.parametrize(
    ("backend", "engine", "access"),
    [
        ("cpu", {}, Access()),
        ("cuda", {"DiscoveredDevices": [{"Source": "cdi", "ID": "nvidia.com/gpu=0"}]},
         Access(cdi="nvidia.com/gpu=all")),
        ("rocm", {"DiscoveredDevices": [{"Source": "cdi", "ID": "amd.com/gpu=0"}]},
         Access(cdi="amd.com/gpu=all")),
        ("cuda", {"Runtimes": {"runc": {}, "nvidia": {}}}, Access(all_gpus=True)),
    ],
)  # fmt: skip
def test_cdi_first_then_the_vendor_s_own_way(
    backend: str, engine: dict[str, Any], access: Access, tmp_path: Path
) -> None:
    assert gpu_access(backend, engine, tmp_path) == access


def test_a_cdi_description_on_this_host_counts(tmp_path: Path) -> None:
    (tmp_path / "nvidia.yaml").write_text("cdiVersion: 0.6.0\nkind: nvidia.com/gpu\n")
    engine = {"CDISpecDirs": [str(tmp_path), str(tmp_path / "none")]}
    assert gpu_access("cuda", engine).cdi == "nvidia.com/gpu=all"
    with pytest.raises(EngineError, match="no AMD GPU"):
        gpu_access("rocm", engine, tmp_path)


def test_amd_s_devices_come_with_the_groups_that_own_them(tmp_path: Path) -> None:
    (tmp_path / "dri").mkdir()
    for node in ("kfd", "dri/renderD128", "dri/card0"):
        (tmp_path / node).touch()
    group = str((tmp_path / "kfd").stat().st_gid)
    access = gpu_access("rocm", {}, tmp_path)
    assert access.devices == (f"{tmp_path}/kfd", f"{tmp_path}/dri")
    assert access.groups == (group,)
    given = settings(run(tmp_path, "rocm", access=access))
    assert given["devices"] == [
        f"{tmp_path}/{name}:{tmp_path}/{name}:rw" for name in ("kfd", "dri")
    ]
    assert given["group_add"] == [group]


def test_the_profiler_s_capability_only_when_asked_for(tmp_path: Path) -> None:
    assert settings(run(tmp_path))["cap_add"] == []
    assert settings(run(tmp_path, trusted_counters=True))["cap_add"] == ["SYS_ADMIN"]
    assert "--cap-add" not in command_line(run(tmp_path))


def test_sdk_and_command_line_say_the_same(tmp_path: Path) -> None:
    given = settings(run(tmp_path, access=Access(cdi="nvidia.com/gpu=all")))
    line = " ".join(command_line(run(tmp_path, access=Access(cdi="nvidia.com/gpu=all"))))
    assert given["network_mode"] == "none" and "--network none" in line
    assert given["read_only"] is True and "--read-only" in line
    assert given["cap_drop"] == ["ALL"] and "--cap-drop all" in line
    assert given["pids_limit"] == 4096 and "--pids-limit 4096" in line
    assert given["mem_limit"] == given["memswap_limit"] == "32768m" and "--memory 32768m" in line
    assert given["user"] == "7:8" and "--user 7:8" in line
    (request,) = given["device_requests"]
    assert request["Driver"] == "cdi" and request["DeviceIDs"] == ["nvidia.com/gpu=all"]
    writable = {mount["Target"] for mount in given["mounts"] if not mount["ReadOnly"]}
    assert writable == {"/src/.asv"}


def test_a_worktree_brings_the_folder_of_its_commits(tmp_path: Path) -> None:
    main, tree = tmp_path / "main", tmp_path / "tree"
    author = ["-c", "user.name=t", "-c", "user.email=t@localhost"]
    subprocess.run(["git", "init", "-q", str(main)], check=True, timeout=120)
    subprocess.run(
        ["git", "-C", str(main), *author, "commit", "-q", "--allow-empty", "-m", "x"],
        check=True,
        timeout=120,
    )
    subprocess.run(
        ["git", "-C", str(main), "worktree", "add", "-q", str(tree)], check=True, timeout=120
    )
    mounts = {m["Target"]: m["ReadOnly"] for m in settings(run(tree))["mounts"]}
    assert mounts[str(main / ".git")] is True


def test_all_mistakes_of_a_call_are_named_at_once(tmp_path: Path) -> None:
    wrong = replace(run(tmp_path), command=(), machine="a/b", memory_gb=0)
    with pytest.raises(ValueError, match="not the root of a git repository") as caught:
        containers.check(wrong)
    for words in ("a command is missing", "--machine", "--memory-gb"):
        assert words in str(caught.value)
