"""The page of a finding holds what a reader needs to believe it, from what was really kept."""

from __future__ import annotations

import json
import math
import re
import subprocess
from pathlib import Path

import html5lib
import pytest

from tests.reports import keeping, trees
from warpwatch.__main__ import main
from warpwatch.judge.model.core import Change, SeriesKey, Step, Verdict
from warpwatch.report import words

COUNT, BAD = 30, 14
WORKLOAD = "attention-fp16-B1"


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> trees.Tree:
    """Thirty commits on a card; the fifteenth loses wgmma. The first after it is a lucky spike."""
    tree = trees.make_repository(tmp_path_factory.mktemp("finding"), COUNT)
    origin = ["remote", "add", "origin", "git@example.invalid:ada/warp.git"]
    subprocess.run(["git", "-C", str(tree.repo), *origin], check=True, timeout=120)
    tree.add_benchmark(
        "attention.track_latency_cold",
        [[WORKLOAD]],
        param_names=["workload"],
        unit="us",
        instrument="latency",
        metric="latency_cold",
    )
    for metric, role in (("tensor_core_level", "verdict"), ("registers", "evidence")):
        tree.add_benchmark(
            f"compiled.track_{metric}",
            [[WORKLOAD], ["sm_90"]],
            param_names=["workload", "target"],
            unit="level",
            exact=True,
            instrument="compiled",
            metric=metric,
            role=role,
            better="higher",
        )
    tree.write_benchmarks()
    tree.write_machine("h200", gpu="H200")
    for commit in range(COUNT):
        bad = commit >= BAD
        us = (1 + 0.003 * math.sin(7.3 * commit)) * (130.0 if bad else 100.0)
        tree.write_result(
            commit,
            {
                "attention.track_latency_cold": [us],
                "compiled.track_tensor_core_level": [1.0 if bad else 2.0],
                "compiled.track_registers": [255.0 if bad else 168.0],
            },
            machine="h200",
            machine_fields={"ram": "128" if bad else "64", "triton": "3.7.1"},
            intervals=0.01,
        )
        code = "  HMMA R0\n  HMMA R2\n" if bad else "  HGMMA R0\n"
        code = f"L0:\n{code}  @P0 BRA L0\n  EXIT\n"
        keeping.write_compiled(
            tree.results,
            tree.commits[commit],
            "3.7.1",
            {(WORKLOAD, "sm_90"): [code]},
            assembler="ptxas 12.9" if bad else "ptxas 12.8",
        )
        keeping.write_card(tree.results, tree.commits[commit], WORKLOAD, 1500.0, 690.0 + bad)
    return tree


def page_of(tree: trees.Tree, out: Path) -> str:
    arguments = ["--results", str(tree.results), "--repo", str(tree.repo), "--out", str(out)]
    assert main(["report", *arguments]) == 0
    (finding,) = json.loads((out / "regressions.json").read_text())["findings"]
    assert finding["cause"] == "kernel"
    source = f"https://example.invalid/ada/warp/commit/{tree.commits[BAD]}"
    assert f'href="{source}"' in (out / finding["page"]).read_text()
    for page in (out / finding["page"], out / "index.html"):
        html5lib.HTMLParser(strict=True).parse(page.read_text())
    return re.sub(r"<[^>]*>", " ", (out / finding["page"]).read_text())


def section(text: str, name: str) -> str:
    """What stands below a heading, up to the next."""
    names = (
        *("Reproduce", "Series that changed", "Before and after", "Commits in range"),
        *("Machine code", "Evidence", "Environment", "Clocks and power", "What to do"),
    )
    place = names.index(name)
    start = text.index(f" {name} ")
    ends = [text.find(f" {later} ", start + 1) for later in names[place + 1 :]]
    return text[start : min((end for end in ends if end > 0), default=len(text))]


def test_a_finding_shows_all_that_was_kept_about_it(tree: trees.Tree, tmp_path: Path) -> None:
    text = page_of(tree, tmp_path / "html")
    assert "An exact metric changed with the measured code." in text
    assert "tensor-core flavour lost: wgmma to mma.sync or MFMA" in text
    commits = section(text, "Commits in range")
    assert f"Change number {BAD}" in commits
    assert "Ada Lovelace" in commits
    evidence = section(text, "Evidence")
    assert re.search(r"registers\s+attention-fp16-B1 @ sm_90\s.*168\s+255", evidence, re.DOTALL)
    code = section(text, "Machine code")
    assert "_attention  of attention-fp16-B1 on sm_90, Triton 3.7.1: 3 instructions" in code
    assert "removed or added, 3 of them in the hot loop" in code
    assert re.search(r"↻\s+-\s+HGMMA R0", code)
    assert re.search(r"tensor\s+1\s+2", code)
    # Before and after stand in two columns: one changed, and one that came.
    assert re.search(r"-\s+HGMMA R0\s+\+\s+HMMA R0\s+↻\s+\+\s+HMMA R2", code)
    card = section(text, "Clocks and power")
    assert re.search(r"SM clock\s+1504 MHz \(1500 to 1508\)\s+1504 MHz", card)
    assert re.search(r"power\s+690 W\s+691 W", card)
    assert re.search(r"throttled\s+power cap\s+power cap", card)
    environment = section(text, "Environment")
    assert re.search(r"ram\s+64\s+128", environment)
    assert "Every other field" in environment
    assert re.search(r"Triton\s+3\.7\.1, the same", environment)
    assert re.search(r"assembler\s+ptxas 12\.8\s+ptxas 12\.9", environment)
    reproduced, commands = section(text, "Reproduce"), section(text, "What to do")
    pair = f"{tree.commits[BAD - 1][:10]} {tree.commits[BAD][:10]}"
    assert f"warpwatch compare {pair} --workload {WORKLOAD}" in reproduced
    base, head = pair.split()
    assert f"warpwatch inspect {WORKLOAD} --diff {base} {head} --code" in reproduced
    assert f"warpwatch compare --recorded {pair}" in reproduced
    assert re.search(r"warpwatch bisect [0-9a-f]{12}\n", commands)
    assert "warpwatch accept" in commands


def test_samples_are_those_asv_kept_else_those_of_the_instruments_else_the_interval(
    tree: trees.Tree, tmp_path: Path
) -> None:
    kept = section(page_of(tree, tmp_path / "kept"), "Before and after")
    assert "9 and 9 samples" in kept
    for path in (tree.results / "evidence").glob("gpu-*"):
        path.write_bytes(b"damaged")
    text = page_of(tree, tmp_path / "interval")
    assert "The bar is the 99 % interval of the median" in section(text, "Before and after")
    assert "Not kept with these results" in section(text, "Clocks and power")
    assert "Not taken:" in text
    assert "is not gzip" in text


def test_after_is_a_commit_at_the_new_level_not_a_spike(tmp_path: Path) -> None:
    tree = trees.make_repository(tmp_path, 24)
    tree.add_benchmark("bench.time_it")
    tree.write_benchmarks()
    for commit in range(24):
        level = (1 + 0.002 * math.sin(7.3 * commit)) * (1.3 if commit >= 12 else 1.0)
        value = 0.8 if commit == 12 else level
        tree.write_result(
            commit,
            {"bench.time_it": [value]},
            cells=lambda _, values: {"samples": [[v, v * 1.001, v * 1.002] for v in values if v]},
        )
    out = tmp_path / "html"
    arguments = ["--results", str(tree.results), "--repo", str(tree.repo), "--out", str(out)]
    assert main(["report", *arguments]) == 0
    findings = json.loads((out / "regressions.json").read_text())["findings"]
    worse = next(f for f in findings if f["verdict"] == "regressed")
    page = (out / worse["page"]).read_text()
    said = re.search(r'class="strips".*?aria-label="before, \w+: ([\d.]+) (m?s); '
                     r'after, \w+: ([\d.]+) (m?s)"', page)  # fmt: skip
    assert said, page
    before, after = (float(said[i]) * {"s": 1, "ms": 1e-3}[said[i + 1]] for i in (1, 3))
    assert after == pytest.approx(1.3 * before, rel=0.01)


@pytest.mark.parametrize(
    ("after", "status", "said"),
    [
        (2.0, "open", "+100 % at most; still there"),
        (2.0, "recovered", "+100 % at most; recovered since"),
        (0.5, "improved", "-50 % at most; an improvement"),
        (math.nan, "open", "no value any more"),
        (math.inf, "open", "from 0 to 64 MiB at most; still there"),
        (math.nan, "recovered", "no value for a while, recovered since"),
    ],
)
def test_the_first_line_says_how_much_and_whether_it_stays(
    after: float, status: str, said: str
) -> None:
    from_zero = math.isinf(after)
    step = Step(1, *((0.0, 64.0 * 2**20) if from_zero else (1.0, after)), (1, 1), 1.0)
    verdict: Verdict = "missing" if math.isnan(after) else "regressed"
    change = Change(SeriesKey("m", "e", "b", ()), verdict, step, "a", "b", after)
    assert words.headed(change, "bytes" if from_zero else "s", status) == said


def test_commands_of_asv_say_where_its_configuration_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Below ``.asv`` asv finds it only where it is told."""
    tree = trees.make_repository(tmp_path, COUNT)
    tree.add_benchmark("bench.time_it")
    tree.write_benchmarks()
    tree.write_machine("rig")
    for commit in range(COUNT):
        us = (1 + 0.003 * math.sin(7.3 * commit)) * (130.0 if commit >= BAD else 100.0)
        tree.write_result(commit, {"bench.time_it": [us]})
    (tmp_path / "warpwatch.toml").write_text("")
    (tmp_path / ".asv").mkdir()
    (tmp_path / ".asv" / "results").symlink_to(tree.results)
    monkeypatch.delenv("WARPWATCH_CONFIG", raising=False)
    monkeypatch.chdir(tmp_path)
    config = tmp_path / "asv.conf.json"
    for plugin, told in (("", " --config .asv/asv.conf.json"), (".warpwatch.asv.environment", "")):
        config.write_text(json.dumps({"plugins": [plugin]}))
        trees.build_site(tree, tmp_path / "html")
        (page,) = (tmp_path / "html" / "f").iterdir()
        for command in ("continuous", "find", "run"):
            assert re.findall(rf"asv {command}( --config \S+)?", page.read_text()) == [told]
