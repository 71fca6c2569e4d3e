"""A finding reads like a bug report: a sentence, few rows, the source that changed."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

from tests.reports import trees
from tests.reports.test_index import words_of
from warpwatch.report.charts.strips import Strip, draw
from warpwatch.report.pages.machine_code import hot_lines, side_by_side
from warpwatch.report.source_changes import source_changes

BYTES = "own.Attention.track_peak_bytes"
NAMES = [f"attention-{number}" for number in range(6)]


def finding_page(tree: trees.Tree, out: Path) -> str:
    site = trees.build_site(tree, out)
    (finding,) = json.loads((site / "regressions.json").read_text())["findings"]
    return (site / finding["page"]).read_text()


def test_series_that_moved_alike_are_one_row_and_an_outlier_is_named(tmp_path: Path) -> None:
    tree = trees.make_repository(tmp_path, 2)
    given = {"param_names": ["workload"], "unit": "bytes", "exact": True, "better": "lower"}
    tree.add_benchmark(BYTES, [NAMES], metric="peak_bytes", instrument="allocator", **given)
    tree.write_benchmarks()
    tree.write_machine("rig")
    before = [1000.0] * 6
    tree.write_result(0, {BYTES: before})
    tree.write_result(1, {BYTES: [1100.0, 1101.0, 1102.0, 1103.0, 1104.0, 3000.0]})
    said = words_of(finding_page(tree, tmp_path / "html"))
    assert "rose to up to 3 times as much" in said
    table = said[said.index("Series that changed") : said.index("Commits in range")]
    assert "5 workloads alike" in table
    assert re.search(r"attention-5 outlier\s+1,000 B\s+2.93 KiB", table)
    assert table.count("regressed") == 2
    assert "+10 % to +10.4 %" in table
    # A time cannot follow from memory only.
    assert "a run of the suite" not in said


def commit(repo: Path, files: dict[str, str], subject: str) -> str:
    git = ["git", "-C", str(repo), "-c", "user.name=a", "-c", "user.email=a@example.invalid"]
    for name, text in files.items():
        (repo / name).parent.mkdir(parents=True, exist_ok=True)
        (repo / name).write_text(text)
    subprocess.run([*git, "add", "."], check=True, timeout=120)
    subprocess.run([*git, "commit", "-qm", subject], check=True, timeout=120)
    done = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, timeout=120)
    return done.stdout.strip()


def test_the_source_of_a_commit_is_that_of_its_folder_and_as_long_as_people_read(
    tmp_path: Path,
) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True, timeout=120)
    first = commit(tmp_path, {"kernels/a.py": "old\nsame\n", "docs/a": "x\n"}, "one")
    # What the repository's own attributes ask for is not run.
    hostile = "*.py diff=evil\n"
    second = commit(tmp_path, {"kernels/a.py": "new\nsame\n", ".gitattributes": hostile}, "two")
    evil = ["config", "diff.evil.textconv", f"touch {tmp_path}/ran; cat"]
    subprocess.run(["git", "-C", str(tmp_path), *evil], check=True, timeout=120)
    third = commit(tmp_path, {"kernels/b.py": "<b>\n" * 900}, "three")
    found = source_changes(tmp_path, [third, second, first], "kernels")
    assert [one.commit for one in found] == [third, second, first]
    assert found[1].files == (("kernels/a.py", 1, 1),)
    assert found[0].added == 900
    assert found[0].left > 400
    assert ("-", "old") not in found[1].lines  # the longest one took all the room
    (alone,) = source_changes(tmp_path, [second], "kernels")
    assert [line for line in alone.lines if line[0] in "+-"] == [("-", "old"), ("+", "new")]
    assert not (tmp_path / "ran").exists()
    assert source_changes(tmp_path, ["0" * 40], "kernels") == ()
    assert source_changes(tmp_path, ["--output=x"], "kernels") == ()
    assert source_changes(None, [second], "kernels") == ()


def test_a_finding_shows_what_its_commits_changed_and_runs_none_of_it(tmp_path: Path) -> None:
    tree = trees.compiled_tree(tmp_path, {"launches": [1, 1]}, sources="kernels")
    reset = ["git", "-C", str(tree.repo), "reset", "-q", "--hard"]
    subprocess.run(reset, check=True, timeout=120)
    line = "</pre><script>window.pwned=1</script>\n"
    tree.commits.append(commit(tree.repo, {"kernels/a.py": line, "docs/b": "b\n"}, "worse"))
    tree.write_result(2, {"compiled.Attention.track_launches": [2.0]})
    page = finding_page(tree, tmp_path / "html")
    assert "&lt;/pre&gt;&lt;script&gt;window.pwned=1&lt;/script&gt;</ins>" in page
    assert "<script>window" not in page
    said = words_of(page)
    assert "1 file of kernels, +1 −0" in said
    assert "docs/b" not in said


def test_machine_code_stands_side_by_side() -> None:
    old, new = ["same", "old", "gone", "end"], ["same", "new", "end", "came"]
    rows, total, hot, left = side_by_side(old, new)
    assert [(one.what, one.before, one.after) for one in rows] == [
        ("place", "line 1 of 4; after, line 1 of 4", ""),
        ("same", "same", "same"),
        ("changed", "old", "new"),
        ("removed", "gone", ""),
        ("same", "end", "end"),
        ("added", "", "came"),
    ]
    assert (total, hot, left) == (4, 0, 0)


def test_the_hot_loop_is_the_innermost_that_multiplies_and_waits_are_none() -> None:
    wait = ["L1:", "SYNCS.PHASECHK R2", "@!P1 BRA L1"]
    body = ["L0:", "LDS R1", *wait, "HGMMA R0", "@P0 BRA L0"]
    tail = ["L2:", *["FADD R1"] * 9, "@P0 BRA L2"]
    assert hot_lines(["MOV R1", *body, *tail]) == frozenset(range(1, 1 + len(body)))
    assert hot_lines([*tail, "EXIT"]) == frozenset(range(len(tail)))
    assert hot_lines(["MOV R1", "BRA L9", "L9:", "EXIT"]) == frozenset()


def test_where_a_difference_is_long_what_is_in_the_hot_loop_is_shown_first() -> None:
    before = [f"MOV R{i}" for i in range(40)]
    loop = ["L0:", *["LDS R1"] * 9, "HGMMA R0", "@P0 BRA L0"]
    worse = ["L0:", *["LDS R1"] * 9, "HMMA R0", "@P0 BRA L0"]
    gap = ["NOP"] * 20
    rows, total, hot, left = side_by_side(
        [*before, *gap, *loop], [*(one.lower() for one in before), *gap, *worse], most=8
    )
    (moved,) = [one for one in rows if one.what == "changed"]
    assert (moved.before, moved.after, moved.hot) == ("HGMMA R0", "HMMA R0", True)
    assert (total, hot, left) == (82, 2, 80)


def test_the_ends_of_a_narrow_strip_do_not_lie_on_each_other() -> None:
    rows = [Strip("before", 1.000, interval=(0.999, 1.001)), Strip("after", 1.002)]
    drawn = str(draw(rows, "us"))
    ends = re.findall(r'<text x="(\d+)" y="\d+" text-anchor="(start|end)">[^<]+</text>', drawn)
    (left, before), (right, after) = ends[-2:]
    assert int(left) < int(right)
    assert (before, after) == ("end", "start")
