"""A release is of one version, has its bill of materials, and is signed by who builds nothing."""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

import warpwatch
from tests.containers.foreign import git, source_of_wheel
from tests.root import ROOT
from tools import release

TAG = f"v{warpwatch.__version__}"
WORKFLOW: dict[str, Any] = yaml.safe_load(
    (ROOT / ".github" / "workflows" / "release.yml").read_text()
)
DIGEST = "sha256:" + "d" * 64


def program(folder: Path, name: str, answer: str = "") -> Path:
    """A program on the path that writes down its arguments and its input."""
    log = folder / f"{name}.log"
    path = folder / "bin" / name
    path.parent.mkdir(exist_ok=True)
    # Only what is asked to read has an input that ends.
    path.write_text(f"""#!/bin/sh
printf '%s\\n' "$*" >> {log}
case "$*" in *-stdin*|*"--notes-file -"*) sed 's/^/  /' >> {log} ;; esac
echo '{answer}'
""")
    path.chmod(0o755)
    return log


def run(monkeypatch: pytest.MonkeyPatch, folder: Path, *arguments: str) -> Path:
    out = folder / "dist"
    monkeypatch.setenv("PATH", f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(sys, "argv", ["release", *arguments, "--tag", TAG, "--out", str(out)])
    assert release.main() == 0
    return out


def test_this_checkout_is_of_one_version_and_another_tag_is_refused_with_all_that_differs() -> None:
    assert release.disagreements(TAG) == []
    found = release.disagreements("v9.9.9")
    assert [one.split(" ")[0] for one in found] == [
        "warpwatch/__init__.py",
        "CHANGELOG.md",
        "CITATION.cff",
    ]
    assert release.disagreements(TAG.removeprefix("v"))[0].startswith("--tag: expected one such as")


def test_the_wheel_comes_with_the_bill_of_all_that_its_user_may_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = source_of_wheel(tmp_path)
    for name in ("CHANGELOG.md", "CITATION.cff"):
        (source / name).write_bytes((ROOT / name).read_bytes())
    git(tmp_path, "init", "--quiet", str(source))
    git(source, "commit", "--quiet", "--allow-empty", "--message", "it")
    monkeypatch.setattr(release, "ROOT", source)
    out = run(monkeypatch, tmp_path, "files")
    (wheel,) = (out / "wheel").iterdir()
    assert wheel.name.startswith(f"warpwatch-{warpwatch.__version__}-")
    times = {entry.date_time for entry in zipfile.ZipFile(wheel).infolist()}
    assert len(times) == 1, "the commit's, whenever it is built"
    bill = json.loads((out / release.WHEEL_BILL).read_text())
    assert bill["metadata"]["component"]["version"] == warpwatch.__version__
    kinds = {one["type"] for one in bill["components"]}
    names = {one["name"] for one in bill["components"]}
    assert kinds == {"library"} and {"numpy", "torch", "docker"} <= names


@pytest.mark.parametrize("backend", ["cpu", "cuda"])
def test_an_image_is_pushed_with_its_digest_and_bill_and_the_token_is_in_no_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    log = program(
        tmp_path, "docker", f'["ghcr.io/other/x@{DIGEST}", "ghcr.io/team/warpwatch@{DIGEST}"]'
    )
    monkeypatch.setenv("GITHUB_TOKEN", "secret")
    given = ["image", "--backend", backend, "--registry", "ghcr.io/Team", "--actor", "me"]
    out = run(monkeypatch, tmp_path, *given)
    tag = f"ghcr.io/team/warpwatch:{warpwatch.__version__}-{backend}"
    build, login, token, push, look = log.read_text().splitlines()
    assert build.startswith("buildx build ") and f"--tag {tag} " in build
    assert login == "login ghcr.io --username me --password-stdin" and token == "  secret"
    assert push == f"push --quiet {tag}" and look.endswith(tag)
    line = f"{DIGEST.removeprefix('sha256:')}  ghcr.io/team/warpwatch\n"
    assert (out / f"image-{backend}.sha256").read_text() == line
    components = json.loads((out / f"image-{backend}.cdx.json").read_text())["components"]
    bases = [one["name"] for one in components if one["type"] == "container"]
    assert bases == {"cpu": ["python"], "cuda": ["pytorch/pytorch", "nvidia/cuda"]}[backend]


def test_the_release_has_the_changelog_s_words_and_every_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = program(tmp_path, "gh")
    (tmp_path / "dist" / "wheel").mkdir(parents=True)
    for name in ("wheel/a.whl", "b.cdx.json"):
        (tmp_path / "dist" / name).touch()
    out = run(monkeypatch, tmp_path, "publish")
    first, *text = log.read_text().splitlines()
    assert first.startswith(f"release create {TAG} --verify-tag ")
    assert first.endswith(f" {out}/b.cdx.json {out}/wheel/a.whl")
    notes = release.notes(warpwatch.__version__)
    assert [line[2:] for line in text] == notes.splitlines() and "\n## [" not in notes


def test_everything_that_is_made_is_attested_with_its_bill() -> None:
    jobs = WORKFLOW["jobs"]
    made = jobs["image"]["strategy"]["matrix"]["backend"]
    steps = [s["with"] for s in jobs["attest"]["steps"] if s["uses"].startswith("actions/attest@")]
    subjects = [("dist/wheel/*.whl", f"dist/{release.WHEEL_BILL}")]
    subjects += [(f"dist/image-{one}.sha256", f"dist/image-{one}.cdx.json") for one in made]
    expected = [(one, bill) for one, with_bill in subjects for bill in ("", with_bill)]
    found = [
        (s.get("subject-path") or s["subject-checksums"], s.get("sbom-path", "")) for s in steps
    ]
    assert found == expected
    assert jobs["publish"]["needs"] == jobs["index"]["needs"] == "attest"


def test_who_signs_runs_no_code_of_the_repository_and_who_builds_cannot_sign() -> None:
    jobs = WORKFLOW["jobs"]
    signs = {name for name, job in jobs.items() if job["permissions"].get("id-token") == "write"}
    assert signs == {"attest", "index"}
    for name, job in jobs.items():
        code = [s for s in job["steps"] if "run" in s or "checkout" in s.get("uses", "")]
        assert (not code) == (name in signs), name
    writes = {
        name: [k for k, v in j["permissions"].items() if v == "write"] for name, j in jobs.items()
    }
    assert writes == {
        "files": [],
        "image": ["packages"],
        "attest": ["attestations", "id-token"],
        "publish": ["contents"],
        "index": ["id-token"],
    }
    # Neither the one that may push nor the one that may publish waits for torch.
    text = (ROOT / "docker" / "release.mk").read_text()
    needs = dict(re.findall(r"^(release-\w+): ?(\S*)", text, re.MULTILINE))
    assert needs["release-image"] == "$(RELEASE_VENV)/.stamp" and needs["release-publish"] == "##"
    assert "$(call installed,$(RELEASE_VENV),gpu)" in text


def test_the_same_locks_make_the_same_bill() -> None:
    bills = [json.dumps(release.bill(list(release.WHEEL_USES), backends=())) for _ in range(2)]
    assert len({hashlib.sha256(one.encode()).hexdigest() for one in bills}) == 1
