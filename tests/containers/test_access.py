"""How the GPU is handed over follows from what the engine says of itself."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from docker.errors import ImageNotFound

from warpwatch.__main__ import main
from warpwatch.commands.setup import container
from warpwatch.sandbox import containers, images
from warpwatch.sandbox.settings import (
    Access,
    EngineError,
    Run,
    command_line,
    gpu_access,
    gpu_of_nodes,
    settings,
)


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
        ("cuda", {"Runtimes": {"runc": {}, "nvidia": {}}}, Access(gpus="all")),
    ],
)  # fmt: skip
def test_cdi_first_then_the_vendor_s_own_way(
    backend: str, engine: dict[str, Any], access: Access, tmp_path: Path
) -> None:
    assert gpu_access(backend, engine, tmp_path) == access


@pytest.mark.parametrize("said", [None, []], ids=["absent", "empty"])
def test_podman_says_nothing_of_cdi_and_its_descriptions_count(tmp_path: Path, said: Any) -> None:
    """Its answer to `info`, as `test_engine.py` asks a real one."""
    (tmp_path / "nvidia.yaml").write_text("cdiVersion: 0.6.0\nkind: nvidia.com/gpu\n")
    engine = {"BuildahVersion": "1.41", "ServerVersion": "5.6.0"} | (
        {} if said is None else {"DiscoveredDevices": said}
    )
    found = gpu_access("cuda", engine, cdi_folders=[str(tmp_path)])
    assert found == Access(cdi="nvidia.com/gpu=all")
    with pytest.raises(EngineError, match="no NVIDIA GPU"):
        gpu_access("cuda", engine, cdi_folders=[str(tmp_path / "none")])
    with pytest.raises(EngineError, match="passes over GPUs"):  # it ignores requests
        gpu_access("cuda", engine | {"ServerVersion": "4.3.1"}, cdi_folders=[str(tmp_path)])
    with pytest.raises(EngineError, match="no NVIDIA GPU"):  # a Docker of which CDI is off
        gpu_access("cuda", {"CDISpecDirs": []}, cdi_folders=[str(tmp_path)])


def test_amd_s_groups_come_with_its_cdi_description_too(tmp_path: Path) -> None:
    """The user inside is nobody's on the host: without a group of the nodes there is no GPU."""
    (tmp_path / "dri").mkdir()
    for node in ("kfd", "dri/renderD128", "dri/renderD129", "dri/card0"):
        (tmp_path / node).touch()
    os.chown(tmp_path / "dri" / "renderD129", -1, 4711)
    engine = {"DiscoveredDevices": [{"Source": "cdi", "ID": "amd.com/gpu=0"}]}
    access = gpu_access("rocm", engine, tmp_path)
    own = str((tmp_path / "kfd").stat().st_gid)
    assert access == Access(cdi="amd.com/gpu=all", groups=tuple(sorted({own, "4711"})))
    given = run(tmp_path, "rocm", access=access)
    assert settings(given)["user"] == "7:8", "not root"
    assert settings(given)["group_add"] == list(access.groups)
    line = command_line(given)
    assert [line[i + 1] for i, word in enumerate(line) if word == "--group-add"] == [*access.groups]


UUID = "GPU-12345678-90ab-cdef-1234-567890abcdef"


@pytest.mark.parametrize(
    ("backend", "engine", "words", "request_"),
    [
        ("cuda", {"DiscoveredDevices": [{"ID": "nvidia.com/gpu=0"}]},
         ["--device", f"nvidia.com/gpu={UUID}"],
         {"Driver": "cdi", "DeviceIDs": [f"nvidia.com/gpu={UUID}"]}),
        ("cuda", {"Runtimes": {"nvidia": {}}}, ["--gpus", f"device={UUID}"],
         {"Driver": "", "DeviceIDs": [UUID], "Count": 0}),
        ("rocm", {"DiscoveredDevices": [{"ID": "amd.com/gpu=0"}]},
         ["--device", f"amd.com/gpu={UUID}"],
         {"Driver": "cdi", "DeviceIDs": [f"amd.com/gpu={UUID}"]}),
    ],
)  # fmt: skip
def test_one_gpu_of_several_is_handed_over_by_its_name(
    tmp_path: Path,
    backend: str,
    engine: dict[str, Any],
    words: list[str],
    request_: dict[str, Any],
) -> None:
    """Four pods of a node would time one GPU, were all handed to each."""
    given = run(tmp_path, backend, access=gpu_access(backend, engine, tmp_path, gpu=UUID))
    line = command_line(given)
    assert line[line.index(words[0]) + 1] == words[1]
    (asked,) = settings(given)["device_requests"]
    assert request_.items() <= asked.items()
    assert "=all" not in " ".join(line)


def test_one_amd_gpu_without_cdi_and_a_name_that_is_none_are_refused(tmp_path: Path) -> None:
    (tmp_path / "dri").mkdir()
    (tmp_path / "kfd").touch()
    with pytest.raises(EngineError, match="by CDI alone"):
        gpu_access("rocm", {}, tmp_path, gpu="0")
    for name in ("all,1", "a b", "=all", "-1"):
        with pytest.raises(EngineError, match="--gpu: expected"):
            gpu_access("cuda", {}, tmp_path, gpu=name)


def test_the_gpu_s_name_comes_from_a_file_of_the_container_that_was_given_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".git").mkdir()
    file = tmp_path / "gpu"
    monkeypatch.setattr(container, "_offline_info", lambda: {"Runtimes": {"nvidia": {}}})
    command = ["container", "run", "--backend", "cuda", "--print", "docker"]
    command += ["--repository", str(tmp_path), "--gpu", f"@{file}", "--", "true"]
    for text, code in ((f"{UUID}\n", 0), ("", 2), ("GPU-1,GPU-2", 2), (None, 2)):
        file.unlink() if text is None else file.write_text(text)
        assert main(command) == code
        out = capsys.readouterr().out
        assert (f"--gpus device={UUID} " in out) == (code == 0)


def amd_description(folder: Path, gpus: int) -> None:
    """As ``amd-ctk cdi generate`` writes it."""
    nodes = [[f"/dev/dri/card{i}", f"/dev/dri/renderD{128 + i}"] for i in range(gpus)]
    named = [*((str(i), paths) for i, paths in enumerate(nodes)), ("all", [*chain(*nodes)])]
    devices = [
        {
            "name": name,
            "containerEdits": {"deviceNodes": [{"path": p} for p in [*paths, "/dev/kfd"]]},
        }
        for name, paths in named
    ]
    document = {"cdiVersion": "0.6.0", "kind": "amd.com/gpu", "devices": devices}
    (folder / "amd.json").write_text(json.dumps(document))


@pytest.mark.parametrize(
    ("seen", "name"), [((2,), "2"), ((0,), "0"), ((), ""), ((0, 2), ""), ((9,), "")]
)
def test_an_amd_gpu_is_known_by_the_nodes_that_a_container_was_given(
    tmp_path: Path, seen: tuple[int, ...], name: str
) -> None:
    """AMD's device plugin names none, and an engine next to it sees the GPUs of the whole node."""
    amd_description(tmp_path, 4)
    dri = tmp_path / "dri"
    dri.mkdir()
    for one in seen:
        (dri / f"card{one}").touch()
        (dri / f"renderD{128 + one}").touch()
    if name:
        assert gpu_of_nodes(dri, [str(tmp_path)]) == name
    else:
        with pytest.raises(EngineError, match="expected the nodes of one GPU"):
            gpu_of_nodes(dri, [str(tmp_path)])


def test_half_of_a_gpu_s_nodes_and_a_broken_description_are_refused(tmp_path: Path) -> None:
    amd_description(tmp_path, 2)
    dri = tmp_path / "dri"
    dri.mkdir()
    (dri / "renderD128").touch()
    with pytest.raises(EngineError, match="got those of 0"):
        gpu_of_nodes(dri, [str(tmp_path)])
    (tmp_path / "amd.json").write_text('{"kind": "amd.com/gpu", "devices": [{"name": "0"}]}')
    with pytest.raises(EngineError, match="is not a description of devices"):
        gpu_of_nodes(dri, [str(tmp_path)])


def test_a_folder_of_nodes_chooses_the_gpu_of_a_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".git").mkdir()
    amd_description(tmp_path, 3)
    (tmp_path / "dri").mkdir()
    for node in ("card1", "renderD129"):
        (tmp_path / "dri" / node).touch()
    folders = [str(tmp_path)]
    monkeypatch.setattr(container, "_offline_info", lambda: {"CDISpecDirs": folders})
    monkeypatch.setattr(container, "gpu_of_nodes", partial(gpu_of_nodes, cdi_folders=folders))
    command = ["container", "run", "--backend", "rocm", "--print", "podman"]
    command += ["--repository", str(tmp_path), "--gpu", f"@{tmp_path}/dri", "--", "true"]
    assert main(command) == 0
    assert "--device amd.com/gpu=1 " in capsys.readouterr().out


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


def test_an_image_that_somebody_else_builds_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = []

    class Engine:
        @property
        def images(self) -> Engine:
            return self

        def get(self, reference: str) -> None:
            asked.append(reference)
            if len(asked) > 1:
                raise ImageNotFound("no such image")

    monkeypatch.setattr(containers, "connect", Engine)
    command = ["container", "build", "--backend", "cuda", "--builder", "none"]
    assert [main(command), main(command)] == [0, 3]
    assert asked == [images.get("cuda").tag] * 2
    assert "let it pull one first" in capsys.readouterr().err
