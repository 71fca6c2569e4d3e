"""The gallery: its readers, the whole tool on a small history, and pages that agree with labels."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.spine import strangers
from tools.gallery import __main__ as gallery
from tools.gallery import labels as reading
from tools.gallery import libraries as places
from tools.gallery import measuring, pages
from tools.gallery.findings import astray, unlabelled
from tools.gallery.labels import labels
from tools.gallery.libraries import libraries

HEADER = ",".join(reading.COLUMNS) + "\n"
CONFIGURATION = """targets = ["sm_90"]

[package]
name = "fastops"
path = "src/fastops"

[[workload]]
name = "gelu"
call = "fastops.ops.activation:gelu"
args = "bf16[4096]"
"""


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A library of three releases, of which the second copies its input; pages go elsewhere."""
    work = tmp_path / "work"
    work.mkdir()
    layout = strangers.LAYOUTS["src"]
    strangers.repository(work, layout)
    (work / "notes").write_text("nothing that is measured")
    strangers.git(work, "add", "--all")
    strangers.git(work, "commit", "--quiet", "--message", "Write notes")
    for tag, commit in (("v1", "HEAD~2"), ("v2", "HEAD~1"), ("v3", "HEAD")):
        strangers.git(work, "tag", tag, commit)
    folder = tmp_path / "shelf"
    folder.mkdir()
    strangers.git(work, "clone", "--quiet", "--bare", str(work), str(folder / "who+fastops"))
    own = tmp_path / "libraries" / "fastops"
    own.mkdir(parents=True)
    (own / "warpwatch.toml").write_text(CONFIGURATION)
    head = strangers.git(work, "rev-parse", "HEAD")
    (own / "source.toml").write_text(
        f'title = "Fastops"\nsource = "who/fastops"\nhead = "{head}"\ntags = "v*"\n'
    )
    monkeypatch.setattr(places, "HERE", own.parent)
    monkeypatch.setattr(pages, "DATA", tmp_path / "data")
    monkeypatch.setattr(pages, "PAGES", tmp_path / "pages")
    monkeypatch.delenv("WARPWATCH_CONFIG", raising=False)
    pages.published.cache_clear()
    yield folder
    pages.published.cache_clear()


@pytest.mark.slow
def test_a_history_is_measured_labelled_and_shown(
    shelf: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    own = places.HERE / "fastops"
    assert gallery.main([str(shelf)]) == 2
    assert "no results yet: add --measure" in capfd.readouterr().err
    assert gallery.main([str(shelf), "--measure"]) == 1
    said = capfd.readouterr().out
    assert "fastops: 3 commits, 1 findings" in said
    (line,) = [one for one in said.splitlines() if one.startswith("no label: ")]
    finding, copied = line.split()[2], line.split()[4].rstrip(":")
    row = f"{finding},gelu,{copied[:8]},yes,yes,#7 copies the input,\n"
    (own / "checked.csv").write_text(HEADER + row)
    assert gallery.main([str(shelf), "--pages"]) == 0
    page = (pages.PAGES / "fastops.md").read_text()
    assert "3 releases `v*`.\n" in page
    assert "regressed, open<br>gelu: copied_bytes 0 -> 8,192 on sm_90; launches" in page
    assert "[#7](https://github.com/who/fastops/pull/7) copies the input | yes | yes |" in page
    kept = json.loads((pages.DATA / "fastops.json").read_text())
    assert [one["tag"] for one in kept["findings"]] == ["v2"]
    assert "clone()" not in json.dumps(kept), "nothing of the library's code is kept"
    capfd.readouterr()
    # Labels that fit no finding: another finding, and a commit outside of the range.
    (own / "checked.csv").write_text(
        HEADER + row.replace(copied[:8], "0" * 8) + "f" * 12 + row[12:]
    )
    assert gallery.main([str(shelf)]) == 1
    said = capfd.readouterr().out
    assert f"{finding}: its range holds no commit 00000000" in said
    assert f"{'f' * 12}: the report has no such finding" in said


def test_what_is_missing_is_named_with_its_command(
    shelf: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.rmtree(shelf / "who+fastops")
    with (places.HERE / "fastops" / "source.toml").open("a") as file:
        file.write('needs = ["pytest", "no-such-package==1.0"]\n')
    assert gallery.main([str(shelf)]) == 2
    said = capsys.readouterr().err
    assert f"git clone --bare https://github.com/who/fastops {shelf / 'who+fastops'}" in said
    assert "-m pip install no-such-package==1.0" in said


def test_a_library_gets_its_environment(shelf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (places.HERE / "fastops" / "source.toml").open("a") as file:
        file.write('environment = ["FASTOPS_VENDOR=nvidia"]\n')
    place = measuring.prepare(shelf, libraries()["fastops"])
    python = shelf / "python"
    python.write_text("#!/bin/sh\nenv > environment\n")
    python.chmod(0o755)
    monkeypatch.setattr(measuring.sys, "executable", str(python))
    measuring.measure(place, libraries()["fastops"])
    assert "FASTOPS_VENDOR=nvidia" in (place / "environment").read_text().splitlines()


def test_a_clone_without_the_commit_is_named(shelf: Path) -> None:
    path = places.HERE / "fastops" / "source.toml"
    path.write_text(path.read_text().replace('head = "', 'head = "' + "0" * 40 + '"\n#'))
    with pytest.raises(ValueError, match=r"who\+fastops lacks commit 0{40}: fetch it"):
        measuring.prepare(shelf, libraries()["fastops"])


def test_all_mistakes_of_a_source_are_listed(shelf: Path) -> None:
    (places.HERE / "fastops" / "source.toml").write_text(
        'source = "fastops"\nhead = "main"\ntags = "v*"\ntouching = ["a"]\n'
        'needs = "b"\nbranch = 1\nenvironment = ["vendor nvidia", "GEMS_VENDOR=nvidia"]\n'
    )
    with pytest.raises(ValueError) as raised:
        libraries()
    for said in (
        "unknown key 'branch'",
        "title: missing",
        "head: expected a whole commit hash, got 'main'",
        "source: expected owner/name, got 'fastops'",
        "expected tags or touching, got both",
        "needs: expected a list of texts, got 'b'",
        "environment: expected NAME=value, got 'vendor nvidia'",
    ):
        assert said in str(raised.value)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("abc,w,01234567,yes,yes,d,", "finding: expected twelve digits of a report, got 'abc'"),
        ("{f},,01234567,yes,yes,d,", r"workloads: expected names .* got nothing"),
        ("{f},w,main,yes,yes,d,", "commit: expected at least eight digits of a hash, got 'main'"),
        ("{f},w,,yes,yes,d,", "commit: expected"),
        ("{f},w,01234567,true,yes,d,", "true: expected yes or no, got 'true'"),
        ("{f},w,,no,yes,d,", "cause: a finding that is not true has no right cause"),
        ("{f},w,01234567,yes,yes,,", "diff: expected what the library's diff says"),
        ("{f},w,01234567,yes,yes,d,#3", "later: expected the address of an issue"),
        ("{f},w,01234567,yes,yes,d", "expected 7 cells"),
        ("{f},w,01234567,yes,yes,d,\n{f},w v,,no,no,d,", "w of f{12} has two rows"),
    ],
)
def test_a_malformed_label_is_refused_with_its_line(tmp_path: Path, row: str, said: str) -> None:
    path = tmp_path / "checked.csv"
    path.write_text(HEADER + row.format(f="f" * 12) + "\n")
    with pytest.raises(ValueError, match=said):
        labels(path)


@pytest.mark.parametrize("name", [path.stem for path in sorted(pages.DATA.glob("*.json"))])
def test_everypublished_finding_has_a_label_and_each_label_a_finding(name: str) -> None:
    library = libraries()[name]
    found = json.loads((pages.DATA / f"{name}.json").read_text(encoding="utf-8"))
    rows = labels(library.folder / "checked.csv")
    assert unlabelled(found, rows) == [] and astray(found, rows) == []
    assert found["head"] == library.head and found["commits"] >= 25
    assert (pages.PAGES / f"{name}.md").exists()


def test_findings_are_true_and_causes_right_as_often_as_they_must_be() -> None:
    every = [pages.counts(found, own) for _, found, own in pages.published().values()]
    findings, true, cause, later = (
        sum(getattr(one, key) for one in every) for key in ("findings", "true", "cause", "later")
    )
    assert true >= 0.95 * findings and cause >= 0.85 * findings and later >= 10
