"""``doctor`` tells a usable machine from an unusable one, with a remedy for each lack."""

from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path

import pytest

from warpwatch import __main__ as cli
from warpwatch.commands.compiled import inspect
from warpwatch.commands.gpu import compare
from warpwatch.commands.setup import doctor
from warpwatch.config import package as configuration
from warpwatch.config.targets import TARGETS


def test_a_machine_that_runs_the_tests_can_do_the_main_job(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(["doctor", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["schema"] == doctor.SCHEMA_VERSION
    states = {check["name"]: check["state"] for check in report["checks"]}
    assert all(states[f"target {name}"] == "ok" for name in ("sm_80", "sm_90", "sm_100", "gfx942"))


def test_another_package_of_the_same_name_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "warpwatch.toml"
    # A folder without __init__.py stands behind every package of the same name.
    (tmp_path / "json").mkdir()
    config.write_text('[package]\nname = "json"\npath = "json"\nworkloads = "w"\n')
    monkeypatch.setenv("WARPWATCH_CONFIG", str(config))
    assert cli.main(["doctor"]) == 2
    out = capsys.readouterr().out
    assert "missing  measured package" in out
    assert "uninstall the other json" in out
    assert out.endswith("the main job cannot run\n")


def test_only_configured_targets_are_compiled_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "warpwatch.toml"
    head = '[package]\nname = "json"\npath = "json"\nworkloads = "w"\n'
    config.write_text(f'targets = ["sm_90", "gfx942"]\n{head}')
    monkeypatch.setenv("WARPWATCH_CONFIG", str(config))
    asked = [check.name for check in doctor.checks() if check.name.startswith("target ")]
    assert asked == ["target sm_90", "target gfx942"]
    assert configuration.chosen_targets() == ["sm_90", "gfx942"]
    assert configuration.chosen_targets(["sm_80"]) == ["sm_80"]
    with pytest.raises(ValueError, match="sm_91"):
        configuration.chosen_targets(["sm_91"])
    config.write_text(head)
    assert configuration.chosen_targets() == [one.name for one in TARGETS]
    config.unlink()  # `inspect` needs no configuration
    assert configuration.chosen_targets() == [one.name for one in TARGETS]


def test_a_fixed_set_keeps_its_own_targets(monkeypatch: pytest.MonkeyPatch) -> None:
    """A module of workloads names the targets of each. Only ``--target`` takes fewer."""
    monkeypatch.setattr(
        compare.configuration, "chosen_targets", lambda named=None: named or ["sm_90"]
    )
    monkeypatch.setattr(inspect, "chosen_targets", lambda named=None: named or ["sm_90"])
    every = {target for _, target in configuration.workloads().fixed_set()}
    assert len(every) > 1
    for named, expected in (([], every), (["sm_80"], {"sm_80"})):
        args = Namespace(workload=[], kernel=None, names=[], diff=["a", "b"], target=named)
        assert {target for _, target in compare._pairs(args)} == expected
        assert {job.target for job in inspect._asked(args)} == expected


def test_every_lack_comes_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.shutil, "which", lambda name: None)
    monkeypatch.setattr(doctor.sys, "version_info", (3, 10, 0))
    lacks = [check for check in doctor.checks() if check.state != "ok"]
    assert {"python", "git", "hardware counters"} <= {check.name for check in lacks}
    assert all(check.remedy for check in lacks)


@pytest.mark.parametrize(
    ("name", "without"), [("NVIDIA H200", False), ("NVIDIA H200 NVL", True)], ids=["known", "not"]
)
def test_a_card_without_a_datasheet_is_told(
    monkeypatch: pytest.MonkeyPatch, name: str, without: bool
) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: name)
    said = "; no datasheet: shares of peak are of ceilings measured on it" if without else ""
    assert doctor._gpu() == doctor.Check("gpu", "ok", name + said, False)


@pytest.mark.parametrize(
    ("system", "machine", "said"),
    [
        ("Darwin", "arm64", "reports, `compare --recorded` and `init` work here"),
        ("Linux", "aarch64", "no measurement was tried on it"),
    ],
)
def test_another_platform_gets_one_line_about_what_it_can(
    monkeypatch: pytest.MonkeyPatch, system: str, machine: str, said: str
) -> None:
    monkeypatch.setattr(doctor.platform, "system", lambda: system)
    monkeypatch.setattr(doctor.platform, "machine", lambda: machine)
    found = doctor._platform()
    assert (found.state, found.needed) == ("warning", False)
    assert said in found.remedy
