"""The index: what needs attention and whose it is, machines, and every kernel beside its bound."""

from __future__ import annotations

import datetime
import json
import re
import subprocess
from itertools import combinations
from pathlib import Path

import pytest

from tests.reports import keeping, trees
from warpwatch.__main__ import main
from warpwatch.judge.evidence.roofs import ceilings_of
from warpwatch.judge.findings import triage
from warpwatch.judge.results.strict_json import RejectedError
from warpwatch.report.charts import roofline
from warpwatch.report.charts.series import _benchmarks
from warpwatch.report.view import many

ATTENTION, MATMUL = "attention-fp16-B1", "matmul-fp16-64"


def test_a_count_of_one_is_written_in_the_singular() -> None:
    findings = [many(count, "finding") for count in (0, 1, 2)]
    assert findings == ["0 findings", "1 finding", "2 findings"]
    assert [many(count, "series") for count in (1, 1200)] == ["1 series", "1,200 series"]


@pytest.mark.parametrize(
    ("benchmarks", "said"),
    [
        (["a.B.time_x"], "a.B.time_x"),
        (["a.B.time_x", "a.C.time_x"], "time_x of B, C"),
        (["a.B.time_x", "b.B.time_x"], "time_x of a.B, b.B"),
        (["a.b.C.time_x", "a.d.C.time_x"], "time_x of b.C, d.C"),
        (["a.B.t", "a.B.u", "a.B.v", "a.B.w", "a.B.x"], "a.B: t, u, v and 2 more"),
        (["a.B.t", "c.D.u", "e.F.v"], "a.B.t, c.D.u and 1 more"),
        (["alone", "a.B.t"], "alone, a.B.t"),
    ],
)
def test_what_names_of_benchmarks_share_is_said_once(benchmarks: list[str], said: str) -> None:
    assert _benchmarks(benchmarks) == said


def index_of(tree: trees.Tree, out: Path) -> str:
    arguments = ["--results", str(tree.results), "--repo", str(tree.repo), "--out", str(out)]
    assert main(["report", *arguments]) == 0
    return (out / "index.html").read_text()


def words_of(page: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", page))


def test_a_kernel_stands_against_its_bound_and_its_peers(tmp_path: Path) -> None:
    tree = trees.make_repository(tmp_path, 2)
    measured = {"param_names": ["workload"], "unit": "%", "better": "higher"}
    tree.add_benchmark(
        "own.track_tensor_pipe", [[ATTENTION, MATMUL]], metric="tensor_pipe", **measured
    )
    peers = [f"{ATTENTION} @ torch-cudnn", f"{MATMUL} @ cublas"]
    tree.add_benchmark("peers.track_tensor_pipe", [peers], metric="tensor_pipe", **measured)
    compiled = {"param_names": ["workload", "target"], "instrument": "compiled", "exact": True}
    both = [[ATTENTION], ["sm_90", "gfx942"]]
    tree.add_benchmark(
        "compiled.track_bound_utilization", both, metric="bound_utilization", unit="%", **compiled
    )
    tree.add_benchmark(
        "compiled.track_bound_us",
        both,
        metric="bound_us",
        unit="us",
        flops=[1e9],
        bytes_moved=[1e6],
        peaks={"sm_90": [989.0], "gfx942": [1307.0]},
        bandwidths={"sm_90": 4800, "gfx942": 5300},
        devices={"sm_90": "NVIDIA H200 SXM", "gfx942": "AMD MI300X"},
        **compiled,
    )
    tree.write_benchmarks()
    tree.write_machine("rig", gpu="NVIDIA H200")
    for commit in range(2):
        tree.write_result(
            commit,
            {
                "own.track_tensor_pipe": [47.0, 91.0],
                "peers.track_tensor_pipe": [76.0, 95.0],
                "compiled.track_bound_utilization": [98.0, 88.0],
                "compiled.track_bound_us": [10.0, 12.0],
            },
        )
    compared = words_of(index_of(tree, tmp_path / "html"))
    assert f"on 2 targets workload gfx942 sm_90 {ATTENTION} 88 % 98 %" in compared
    pages = [path.read_text() for path in (tmp_path / "html/m").iterdir()]
    page = next(page for page in pages if "<h1>rig: NVIDIA H200</h1>" in page)
    said = words_of(page)
    assert "tensor_pipe of 2 workloads" in said
    assert "bound on sm_90" in said
    # Half of what is possible comes before nine tenths.
    assert f"{ATTENTION} 47 % torch-cudnn 76 % 98 % {MATMUL} 91 % cublas 95 % not compiled" in said
    assert 'aria-label="this package 47 %, torch-cudnn 76 %, bound 98 %"' in page


def test_a_finding_has_an_owner_and_one_that_is_accepted_needs_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = trees.compiled_tree(tmp_path, {"launches": [1, 1, 2], "spilled_bytes": [0, 64, 64]})
    page = words_of(index_of(tree, tmp_path / "html"))
    assert "2 findings to look at" in page
    assert page.count("owner: Ada Lovelace") == 2
    newest = (
        "The newest regression: ▼ regressed +100 % launches of flash B1-H8-S512-D64 @ sm_90 , since"
    )
    assert f"{newest} {tree.commits[2][:10]} “Change number 2”" in page
    assert page.index("cause: kernel: more launches: 1 to 2") < page.index("Needs attention")
    assert "cause: kernel: registers spill" in page
    legend = "▼ regressed ✕ missing ▲ improved ✚ new ◇ other space ; a small dot is a commit"
    assert legend in page
    # No time follows from launches and bytes only.
    assert "a run of the suite" not in page
    findings = json.loads((tmp_path / "html/regressions.json").read_text())["findings"]
    file = tmp_path / "triage.toml"
    file.write_text("schema_version = 1\n")
    monkeypatch.setattr(triage, "default_file", lambda: file)
    today = datetime.date.today()
    for finding in findings:
        triage.accept(
            file,
            triage.Acceptance(
                finding["id"], "grace", "for <b>memory</b>", today, today + datetime.timedelta(3)
            ),
        )
    page = words_of(index_of(tree, tmp_path / "html"))
    assert "No open regression in 3 measured commits; 2 findings accepted" in page
    assert "Needs attention" not in page
    assert "The newest regression on record: ▼ regressed +100 % launches" in page
    assert "; accepted by grace: for &lt;b&gt;memory&lt;/b&gt;." in page
    assert "<b>memory" not in (tmp_path / "html/index.html").read_text()
    assert page.index("Accepted") < page.rindex("grace")
    findings = json.loads((tmp_path / "html/regressions.json").read_text())["findings"]
    assert {one["accepted"][:17] for one in findings} == {"accepted by grace"}


def test_what_is_missing_at_a_machine_is_named_in_red_until_it_works_again(tmp_path: Path) -> None:
    tree = trees.make_repository(tmp_path, 6)
    for name in ("steady", "broken", "gone"):
        tree.add_benchmark(f"bench.time_{name}")
    tree.write_benchmarks()
    for commit in range(5):
        values: dict[str, list[float | None]] = {"bench.time_steady": [1.0]}
        values["bench.time_broken"] = [1.0 if commit < 1 else None]
        if commit < 4:
            values["bench.time_gone"] = [1.0]
        tree.write_result(commit, values)
    page = index_of(tree, tmp_path / "html")
    state = page[page.index("State of the machines") : page.index("<h3>Workloads")]
    assert re.findall(r'class="v-missing"[^>]*>([^<]*)<', state) == [
        "bench.time_broken",
        "bench.time_gone",
    ]
    said = words_of(state)
    assert "rig env-py3.11" in said
    assert f"{tree.commits[4][:10]} 2023-11-14 2023-11-14 1 3 ✕ 2 :" in said


def test_a_machine_is_behind_by_the_commits_that_touch_what_it_measures(tmp_path: Path) -> None:
    tree = trees.compiled_tree(tmp_path, {"launches": [1, 1]}, sources="kernels")

    def commit(path: str) -> None:
        (tree.repo / path).parent.mkdir(exist_ok=True)
        (tree.repo / path).write_text("x")
        name = ["-c", "user.name=a", "-c", "user.email=a@example.invalid"]
        for command in (["add", path], [*name, "commit", "-qm", path]):
            subprocess.run(["git", "-C", str(tree.repo), *command], check=True, timeout=120)

    subprocess.run(["git", "-C", str(tree.repo), "reset", "-q", "--hard"], check=True, timeout=120)
    for path in ("docs/a", "kernels/a", "docs/b"):
        commit(path)
    page = index_of(tree, tmp_path / "html")
    state = words_of(page[page.index("State of the machines") : page.index("<h3>Workloads")])
    assert re.search(r"2023-11-14 2023-11-14 1 1 none", state), state


def test_the_number_of_a_dot_hides_neither_a_dot_nor_a_number() -> None:
    dots = [(300.0, 100.0), (317.0, 98.0), *((60.0, y) for y in (0.0, 12.0, 45.0)), (90.0, 12.0)]
    boxes = [(x - 5, y - 5, x + 5, y + 5) for x, y in dots]
    for number, text in enumerate(roofline.numbers(dots), 1):
        found = re.search(r'x="(\d+)" y="(\d+)"[^>]*>(\d+)<', text)
        assert found and int(found[3]) == number
        x, y = int(found[1]), int(found[2]) - 4
        boxes.append((x - 4.5, y - 5, x + 4.5, y + 5))
        assert abs(x - dots[number - 1][0]) + abs(y - dots[number - 1][1]) < 15
    for one, other in combinations(boxes, 2):
        apart = (other[0] - one[2], one[0] - other[2], other[1] - one[3], one[1] - other[3])
        # Two dots may lie where they like.
        assert max(apart) >= 0 or {one, other} <= set(boxes[: len(dots)])


def test_a_workload_that_memory_holds_is_judged_by_its_own_roof(tmp_path: Path) -> None:
    tree = trees.make_repository(tmp_path, 1)
    tree.add_benchmark(
        "own.track_latency_cold",
        [["skinny", "square"]],
        param_names=["workload"],
        unit="us",
        metric="latency_cold",
        flops=[1e9, 1e12],
        bytes_moved=[1e8, 1e8],
        peaks={"h200": [1000.0, 1000.0]},
        bandwidths={"h200": 5000},
        devices={"h200": "NVIDIA H200"},
    )
    tree.write_benchmarks()
    tree.write_machine("h200")
    tree.write_result(0, {"own.track_latency_cold": [25.0, 2000.0]}, machine="h200")
    index_of(tree, tmp_path / "html")
    (page,) = (tmp_path / "html/r").iterdir()
    said = words_of(page.read_text())
    # 40 TFLOP/s are 4 % of the peak, and 80 % of what 5 TB/s allow at ten operations a byte.
    # Those 40 are 4 TB/s.
    assert "1 square 10,000 500 50 % 50 compute 50 %" in said
    assert "2 skinny 10 40 4 % 4,000 memory 80 %" in said
    assert "then it is 5,000 GB/s" in said


CEILINGS = {
    "source": "measured",
    "card": "NVIDIA H200 NVL<b>",
    "peaks": {"bf16": {"tflops": 800.0, "clock_ghz": 1.9}, "fp32": {"tflops": 50.0}},
    "bandwidth_gbps": 4000,
}


def test_the_roofs_of_a_card_without_a_datasheet_are_those_measured_on_it(tmp_path: Path) -> None:
    tree = trees.make_repository(tmp_path, 1)
    tree.add_benchmark(
        "own.track_latency_cold",
        [["skinny", "square", "int"]],
        param_names=["workload"],
        unit="us",
        metric="latency_cold",
        instrument="latency",
        flops=[1e9, 1e12, 1e9],
        bytes_moved=[1e8, 1e8, 1e8],
        dtypes=["fp32", "bf16", "int8"],
        # The name of the card resembles this one's.
        peaks={"h200": [1000.0, 1000.0, 2000.0]},
        bandwidths={"h200": 5000},
    )
    tree.write_benchmarks()
    tree.write_machine("h200")
    tree.write_result(0, {"own.track_latency_cold": [25.0, 2500.0, 3.0]}, machine="h200")
    keeping.write_asked(tree.results, tree.commits[0], {}, ceilings=CEILINGS)
    site = trees.build_site(tree, tmp_path / "html")
    (page,) = (site / "r").iterdir()
    said = words_of(page.read_text())
    # Of what was measured in bf16 and fp32; no product of int8 was.
    assert "square 10,000 400 50 % 40 compute 50 %" in said
    assert "skinny 10 40 80 % 4,000 memory 100 %" in said
    assert " int " not in said
    assert "its roofs are ceilings measured on it (bf16 800 TFLOP/s, fp32 50 TFLOP/s, 4000" in said
    text = next((site / "m").iterdir()).read_text()
    assert "No datasheet of NVIDIA H200 NVL&lt;b&gt;: shares of peak, and the roofs, are of" in text


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"source": "datasheet"}, "ceilings.source: expected measured, got 'datasheet'"),
        ({"card": None}, "ceilings.card: is missing"),
        ({"peaks": {"bf16": {"tflops": -1}}}, "ceilings.peaks: expected an object of dtypes, each"),
        ({"peaks": {"<b>": {"tflops": 1}}}, "ceilings.peaks: expected an object of dtypes, each"),
        ({"bandwidth_gbps": "fast"}, "ceilings.bandwidth_gbps: expected a number above 0"),
    ],
)
def test_ceilings_that_are_none_are_refused(wrong: dict[str, object], why: str) -> None:
    with pytest.raises(RejectedError, match=why):
        ceilings_of(Path("gpu-1.json.gz"), {"ceilings": {**CEILINGS, **wrong}})


@pytest.mark.parametrize("skipped", [3, 25])
def test_a_range_too_wide_to_name_a_commit_is_named_by_its_ends(
    tmp_path: Path, skipped: int
) -> None:
    """No file tells its commits apart and none was measured: the newest of them is no suspect."""
    tree = trees.make_repository(tmp_path, skipped + 8)
    tree.add_benchmark("bench.track_bytes", unit="bytes", exact=True)
    tree.write_benchmarks()
    tree.write_machine("rig")
    measured = [0, 1, 2, 3, *range(skipped + 4, skipped + 8)]
    for commit in measured:
        tree.write_result(commit, {"bench.track_bytes": [100.0 if commit < 4 else 150.0]})
    text = words_of((trees.build_site(tree, tmp_path / "html") / "index.html").read_text())
    first, last = tree.commits[4][:10], tree.commits[skipped + 4][:10]
    if skipped < 20:
        assert f"since {last} “Change number {skipped + 4}”" in text
        return
    assert f"from {first} “Change number 4”" in text
    assert f"to {last} “Change number {skipped + 4}”" in text
    assert "since" not in text.split("Needs attention")[1].split("cause")[0]


def test_a_benchmark_that_got_slower_often_leads_one_row(tmp_path: Path) -> None:
    tree = trees.make_repository(tmp_path, 160)
    tree.add_benchmark("bench.time_often")
    tree.add_benchmark("bench.time_once")
    tree.write_benchmarks()
    tree.write_machine("rig")
    for commit in range(160):
        noise = 1 + 0.002 * (commit * 7 % 5)
        often = 1.5 ** (commit // 20)
        once = 0.1 if commit < 70 else 0.12
        tree.write_result(
            commit, {"bench.time_often": [often * noise], "bench.time_once": [once * noise]}
        )
    index = index_of(tree, tmp_path / "html")
    rows = re.findall(r'<li class="finding .*?</li>', index, re.DOTALL)
    assert len(rows) == 2, words_of(index)
    assert "8 findings to look at" in index
    assert "It changed for the worse 6 other times: +50 % since" in words_of(rows[0])
    assert '<a href="findings.html#open">1 more</a>' in rows[0]
    assert len(set(re.findall(r'href="(f/[^"]*)"', rows[0]))) == 6
    listed = (tmp_path / "html" / "findings.html").read_text()
    assert listed.count('<li class="finding') == 2
    pages = set(re.findall(r'href="(f/[^"]*)"', listed))
    assert len(pages) == 8 and all((tmp_path / "html" / page).is_file() for page in pages)
