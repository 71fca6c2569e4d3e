"""Figures of the documents are those of the committed results, and blocks are filled as marked."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from benchmarks import workloads
from tools.docs.figures import blocks, standing
from tools.docs.figures.prediction import bound as prediction
from tools.docs.results import __main__ as results
from tools.docs.style import pages
from warpwatch.commands.gpu.bounds import Row, scatter


def test_no_page_is_stale() -> None:
    found = [pages.name(page) for page in results.stale(pages.all_pages())]
    assert found == [], "run: python -m tools.docs.results"


FIGURES = {"words": lambda: "16 of 16", "rows": lambda: "| a |\n| --- |\n"}


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("<!-- generated: rows -->\nold\n<!-- end -->", "\n\n| a |\n| --- |\n\n"),
        ("<!-- generated: words -->\n<!-- end -->", "\n\n16 of 16\n\n"),
        ("It found <!-- generated: words -->9 of 9<!-- end --> defects.", "16 of 16"),
    ],
)
def test_blocks_are_filled_once(text: str, filled: str) -> None:
    first = blocks.fill(text, FIGURES)
    assert f"-->{filled}<!-- end -->" in first
    assert blocks.fill(first, FIGURES) == first


def test_code_shows_marks_as_they_are() -> None:
    text = "```\n<!-- generated: none -->\n<!-- end -->\n```\n\nWrite `<!-- generated: X -->`.\n"
    assert blocks.fill(text, FIGURES) == text


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("a\n<!-- generated: none -->\n<!-- end -->", "line 2: no figure is called 'none'"),
        ("<!-- generated: words -->", "without its pair: <!-- generated: words -->"),
        ("<!-- end -->", "without its pair"),
        (
            "<!-- generated: words -->\n<!-- generated: rows -->\n<!-- end -->",
            "block 'words' has no <!-- end -->",
        ),
        ("so <!-- generated: rows --><!-- end -->", "several lines"),
    ],
)
def test_wrong_marks_are_errors(text: str, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        blocks.fill(text, FIGURES)


def test_the_command_checks_and_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.md"
    page.write_text("# P\n\n<!-- generated: count-targets -->5<!-- end --> targets\n")
    assert results.main(["--check", str(page)]) == 1
    assert "stale" in capsys.readouterr().out and ">5<" in page.read_text()
    assert results.main([str(page)]) == 0
    assert ">6<" in page.read_text()
    assert results.main(["--check", str(page)]) == 0
    page.write_text("<!-- generated: nothing --><!-- end -->")
    assert results.main([str(page)]) == 2
    assert "page.md: line 1: no figure is called 'nothing'" in capsys.readouterr().err


def test_every_workload_is_in_a_group() -> None:
    assert {standing.group_of(one.name) for one in workloads.select()} == set(standing.GROUPS)
    with pytest.raises(ValueError, match="add one"):
        standing.group_of("gelu-bf16")


def test_the_bound_of_the_plot_is_read_as_it_was_drawn() -> None:
    drawn = [Row("matmul-a", 81.234, 70.111), Row("attention-b", 100.0, 0.0)]
    plot = prediction.read(ElementTree.fromstring(scatter(drawn)))
    assert [row.workload for row in plot] == ["matmul-a", "attention-b"]
    for one, read in zip(drawn, plot, strict=True):
        assert read.slack == pytest.approx(one.slack, abs=0.04)
    assert len(prediction.rows()) > 1000
    assert "above the bound in 0 of them" in prediction.summary()


def peers(path: Path, *rows: tuple[str, str, float | None]) -> None:
    cells = [{"workload": name, "by": by, "us": us} for name, by, us in rows]
    path.write_text(json.dumps({"rows": cells}))


def test_standing_takes_medians_over_repetitions(tmp_path: Path) -> None:
    name, other = "matmul-fp16-1024x1024x1024", "attention-bf16-B2-S4096-H32-D128"
    for number, ours in enumerate((10.0, 8.0, 20.0)):
        peers(
            tmp_path / f"{number}.json",
            (name, "ours", ours),
            (name, "cublas", 12.0),
            (name, "slow", 30.0),
            (other, "ours", 5.0),
            (other, "torch-flash", None),
        )
    [race] = standing.races(tmp_path)
    assert (race.workload, race.best, race.runs) == (name, "cublas", 3)
    assert (race.ours_us, race.best_us, race.ratio) == (10.0, 12.0, 1.2)


def test_each_group_is_compared_or_named_as_not_compared() -> None:
    said = " ".join(standing.not_compared().split())
    left = set(said.removeprefix("Not compared: ").removesuffix(".").split("; ")) - {"none"}
    compared = {standing.group_of(race.workload) for race in standing.races()}
    assert left.isdisjoint(compared) and left | compared == set(standing.GROUPS)
    assert "| kernels | dtype | " in standing.by_group()


def test_counters_say_which_launch_and_leave_barriers_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = {"us": 1.0, "kiloclocks": 200.0, "most": 220.0, "tensor_percent": 50.0}
    counted |= {"instructions_m": 3.0, "special_m": 0.5, "memory_mb": 7.0}
    waits = {"wait": 30.0, "short_scoreboard": 12.0, "barrier": 500.0}
    ours = {"call": "attention-x", "kernel": "attention_forward_hopper", "waits": waits}
    peer = {"call": "attention-x @ fa", "kernel": "void k<1>", "waits": {}}
    (tmp_path / "counters.json").write_text(json.dumps([ours | counted, peer | counted]))
    monkeypatch.setattr(standing, "COUNTERS", tmp_path / "counters.json")
    first, second = standing.counters().splitlines()[2:]
    assert first.startswith("| `attention-x`, forward | ours | 1.0 | 200 | 1.10 | 50.0 |")
    assert first.endswith("| 42 | 7 |")
    assert second.startswith("| `attention-x` | fa |")
    assert second.endswith("| 0 | 7 |")


def test_power_is_energy_a_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row = {"call": "a @ b", "us": 2000.0, "spread": 0.01, "tflops": 500.0, "watts": 690.0}
    (tmp_path / "power.json").write_text(json.dumps([row | {"mhz": 1500.0, "capped": 1.0}]))
    monkeypatch.setattr(standing, "POWER", tmp_path / "power.json")
    (line,) = standing.power().splitlines()[2:]
    assert line == "| `a` | b | 2,000.0 | 1.0% | 500 | 690 | 1,500 | 1,380 | 100% |"


def test_standing_falls_back_on_the_published_suite(tmp_path: Path) -> None:
    found = {race.workload: race for race in standing.races(tmp_path)}
    assert set(found) >= {"matmul-fp16-4096x4096x4096", "attention-bf16-B2-S4096-H32-D128"}
    race = found["attention-bf16-B4-S4096-H16-D128-causal"]
    assert race.best == "flash_attn_3" and race.ratio == race.best_us / race.ours_us
