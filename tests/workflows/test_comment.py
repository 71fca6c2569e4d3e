"""The comment on a pull request: what it costs, the worst three, a chart that GitHub draws."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.reports import trees
from warpwatch.__main__ import main
from warpwatch.ci import message
from warpwatch.ci.pull_request import Judgement
from warpwatch.judge.model.core import SeriesKey, Verdict
from warpwatch.judge.model.directions import Meaning
from warpwatch.judge.pairs.commits import Comparison
from warpwatch.judge.results.history import SeriesInfo
from warpwatch.report.charts import mermaid

BASE, HEAD = "b" * 40, "a" * 40


def compared(
    workload: str,
    before: float | None,
    after: float | None,
    verdict: Verdict = "regressed",
    metric: str = "bound_us",
    target: str = "sm_90",
) -> Comparison:
    unit = {"bound_us": "us", "launches": "count", "latency_cold": "us"}[metric]
    instrument = "latency" if metric == "latency_cold" else "compiled"
    meaning = Meaning(unit, "lower", "verdict", instrument == "compiled", instrument, metric)
    machine = "h200" if instrument == "latency" else ""
    key = SeriesKey(machine, "triton 3.6.0", f"suite.track_{metric}", (workload,))
    return Comparison(SeriesInfo(key, meaning, workload, target), verdict, before, after)


def comment(*comparisons: Comparison) -> str:
    return message.comment(Judgement("failure", BASE, HEAD, comparisons))


def test_the_predicted_cost_of_a_call_of_each_workload_is_said_for_its_target() -> None:
    text = comment(
        compared("a", 100.0, 130.0),
        compared("b", 100.0, 100.0, "unchanged"),
        compared("c", 50.0, 40.0, "improved"),
    )
    said = (
        "Predicted on `sm_90`: **20 µs more** for one call of each of 3 workloads, which took 250"
    )
    assert said in text
    assert "(**+8 %**, `bound_us`)" in text


def test_a_peer_that_got_slower_is_no_cost_of_ours() -> None:
    peer = compared("a", 100.0, 130.0, metric="latency_cold", target="cudnn")
    own = compared("a", 100.0, 101.0, metric="latency_cold", target="")
    text = comment(own, peer)
    assert "Measured on `h200`: **1 µs more** for one call of each of 1 workload," in text
    assert "30 µs" not in text.partition("Worst of")[0]


def test_the_worst_three_are_named_times_first() -> None:
    text = comment(
        compared("jumped", 1.0, 9.0, metric="launches"),
        *(compared(f"w{i}", 100.0, 190.0 - 10 * i) for i in range(5)),
    )
    worst = text[text.index("Worst of 6") : text.index("See it locally")]
    assert re.findall(r"of `(.+?) @ sm_90`", worst) == ["w0", "w1", "w2"]
    assert "100 µs to 190 µs, **+90 %**" in worst


def test_the_chart_has_numbers_in_place_of_names() -> None:
    evil = "x`]\n```\n<img src=x>"
    text = comment(compared(evil, 100.0, 150.0), compared("b", 100.0, 80.0, "improved"))
    chart = text[text.index("```mermaid") :]
    chart = chart[: chart.index("```", 3)]
    assert 'x-axis ["1", "2"]' in chart and "bar [150, 80]" in chart
    assert "img" not in chart
    assert "\n1. `x'] ''' <img src=x> @ sm_90`: +50 %\n2. `b @ sm_90`: −20 %" in text


def test_what_cannot_be_told_says_how_much_more_would_tell_it_and_of_which_metric() -> None:
    quiet = compared("w", 10.0, 10.1, "inconclusive", "latency_cold", "")
    noisy = replace(compared("v|x", 10.0, 10.4, "inconclusive", "latency_cold", ""), more=14)
    text = message.comment(Judgement("neutral", BASE, HEAD, (quiet, noisy)))
    assert "\n\n*inconclusive: the measurements cannot rule out a change that matters*\n" in text
    assert "`latency_cold` of `v¦x` is the noisiest: about 14 more measurements" in text
    text = message.comment(Judgement("neutral", BASE, HEAD, (quiet, replace(noisy, more_s=64.2))))
    assert "noisiest: about 64 s of measuring, 14 more measurements like these, would" in text
    assert "more measurement" not in message.comment(Judgement("neutral", BASE, HEAD, (quiet,)))


def test_evidence_is_no_regression_in_any_table() -> None:
    metric = compared("a", 1.0, 2.0, metric="launches")
    meaning = replace(metric.series.meaning, role="evidence", metric="registers")
    evidence = replace(metric, series=replace(metric.series, meaning=meaning))
    for text in (
        comment(metric, evidence),
        message.summary(Judgement("failure", BASE, HEAD, (metric, evidence))),
    ):
        assert text.count("▼ regressed") == 1
        assert "| · evidence: worse | 1 | 2 | `registers` | `a @ sm_90` |" in text
        assert "noisy" not in text


@pytest.mark.parametrize(
    ("unit", "said"),
    [
        ("TFLOP/s", "2 TFLOP/s"),
        ("% of peak", "2 % of peak"),
        ("[x](http://e) | <img src=x> `", "`2 [x](http://e) ¦ <img src=x> '`"),
        ("www.example.org", "`2 www.example.org`"),
        ("@ada", "`2 @ada`"),
        ("x\n\n# A title", "`2 x  # A title`"),
    ],
)
def test_a_unit_of_a_stranger_is_no_markup(unit: str, said: str) -> None:
    """The file that describes the benchmarks may come from the job that measured them."""
    many = [compared(name, 1.0, 2.0, metric="launches") for name in "abcd"]
    strange = [
        replace(one, series=replace(one.series, meaning=replace(one.series.meaning, unit=unit)))
        for one in many
    ]
    text = comment(*strange)
    assert text.count(f" to {said}") == 3, "the worst"
    rows = [f"| ▼ regressed | {said.replace('2', '1')} | {said} | `launches` |"] * 4
    for page in (text, message.summary(Judgement("failure", BASE, HEAD, tuple(strange)))):
        found = [line for line in page.splitlines() if line.startswith("| ▼")]
        assert [line.rpartition("|")[0].rpartition("|")[0] + "|" for line in found] == rows


def test_the_summary_explains_its_verdicts_below_the_table() -> None:
    rows = (compared("a", 1.0, None, "not applicable"), compared("b", 1.0, 2.0))
    text = message.summary(Judgement("failure", BASE, HEAD, rows))
    (line,) = (one for one in text.splitlines() if one.startswith("*"))
    assert line.startswith("*not applicable: nothing to compare, as a value is new")
    assert text.endswith(f"|\n\n{line}\n")


def test_what_was_accepted_is_no_regression_in_the_title() -> None:
    one = replace(compared("a", 1.0, 2.0, metric="launches"), accepted="accepted by ada")
    judgement = Judgement("success", BASE, HEAD, (one, compared("b", 1.0, 1.0, "unchanged")))
    assert message.title(judgement) == "no regression: 1 accepted, 1 unchanged"


def test_a_pull_request_is_advised_what_can_be_done_about_it() -> None:
    """No finding exists before the merge, and nobody but the job has its results."""
    one = compared("a", 1.0, 2.0, metric="launches")
    text = comment(one)
    assert f"`warpwatch compare --compiled-only {BASE[:10]} {HEAD[:10]}`" in text
    assert "merge it over this check" in text and "warpwatch accept" not in text
    timed = comment(one, compared("a", 1.0, 2.0, metric="latency_cold", target=""))
    assert f"`warpwatch compare {BASE[:10]} {HEAD[:10]}`" in timed
    known = comment(replace(one, findings=("1f2e3d4c5b6a",)))
    assert f"`warpwatch compare --recorded {BASE[:10]} {HEAD[:10]}`" in known
    assert "`warpwatch accept 1f2e3d4c5b6a --owner NAME --reason WHY`" in known


def test_a_call_that_is_gone_is_one_row_and_says_why() -> None:
    """Each of its values is missing, and each of its evidence has nothing left to explain."""
    gone = [
        replace(
            compared("a", 1.0, None, "missing"),
            series=replace(one.series, meaning=replace(one.series.meaning, role=role)),
        )
        for role in ("verdict", "verdict", "verdict", "verdict", "evidence")
        for one in [compared("a", 1.0, None, "missing")]
    ]
    why = "4 compile failed: k: error at `x` |(such as a)"
    judgement = Judgement("failure", BASE, HEAD, tuple(gone), lost=(why, *map(str, range(9))))
    text = message.comment(judgement)
    assert text.count("✕ missing") == 1 and "Worst of" not in text
    assert "| ✕ missing | 4 values | — | several | `a @ sm_90` |" in text
    assert "- at head: `4 compile failed: k: error at 'x' ¦(such as a)`" in text
    assert "- and 2 more reasons" in text
    assert "- at head: `4 compile" in message.summary(judgement)
    still = compared("a", 1.0, 2.0, metric="launches")
    text = comment(*gone, still)
    assert "| 4 values | — | several |" in text and "| 1 | 2 | `launches` |" in text
    assert "all of them" not in text, "one is still there"


def test_a_change_without_a_time_has_neither_cost_nor_chart() -> None:
    text = comment(compared("a", 1.0, 2.0, metric="launches"))
    assert "mermaid" not in text and "Predicted" not in text
    assert "| ▼ regressed | 1 | 2 | `launches` | `a @ sm_90` |" in text


@pytest.mark.parametrize("after", [1e308, 1e-300])
def test_values_no_chart_can_hold_make_one_all_the_same(after: float) -> None:
    text = comment(compared("a", 1e-3, after), compared("b", 1e308, 1e307, "improved"))
    bars = re.search(r"bar \[(.+)\]", text)
    assert bars and all(0 <= float(one) <= 1000 for one in bars[1].split(","))


def test_many_changes_leave_the_comment_within_what_github_takes() -> None:
    many = [compared(f"{i}" + "ß" * 300, 100.0, 130.0) for i in range(500)]
    text = comment(*many)
    assert len(text.encode()) <= message.MAX_COMMENT_BYTES
    assert text.count("<details>") == text.count("</details>")
    assert "488 more moved by less." in text


def test_a_bar_above_the_chart_is_cut_and_none_makes_no_chart() -> None:
    assert "bar [1000, 100]" in mermaid.shares([50.0, 1.0])
    assert mermaid.shares([]) == [] == mermaid.shares([float("nan")])


def test_a_comment_says_how_long_it_would_take_to_tell_two_commits_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tree = trees.make_repository(tmp_path, 2)
    tree.add_benchmark("bench.time_it", [["'a'", "'b'", "'c'"]])
    tree.write_benchmarks()
    tree.write_machine("rig")
    for commit, value in enumerate((1.0, 1.04)):
        tree.write_result(commit, {"bench.time_it": [1.0, value, 1.0]}, intervals=0.05)
    given = ("--results", str(tree.results), "--repo", str(tree.repo))
    assert main(["ci", "comment", *given, *tree.commits]) == 3
    found = re.search(r"about ([\d,]+) s of measuring, ([\d,]+) more", capsys.readouterr().out)
    assert found is not None
    seconds, times = (int(one.replace(",", "")) for one in found.groups())
    # A row of three values took 1.5 s at each of both commits.
    assert seconds == times > 1
