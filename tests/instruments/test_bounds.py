"""The bound against the counters: what is read, compared, drawn and refused."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from warpwatch.__main__ import main
from warpwatch.commands.gpu import bounds
from warpwatch.commands.gpu.bounds import Row

NAME = "matmul-fp16-1024x1024x1024"


def table(folder: Path, pipe: float | None = 40.0) -> Path:
    rows = [
        {"workload": NAME, "by": "ours", "tensor_pipe": pipe},
        {"workload": NAME, "by": "cublas", "tensor_pipe": 44.7},
    ]
    file = folder / "peers.json"
    file.write_text(json.dumps({"schema_version": 1, "rows": rows}), encoding="utf-8")
    return file


def test_our_kernels_are_read_from_a_table_of_peers(tmp_path: Path):
    assert bounds.read(table(tmp_path)) == {NAME: 40.0}
    assert bounds.read(table(tmp_path, None)) == {}


def test_a_bound_is_compared_and_drawn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    plot = tmp_path / "scatter.svg"
    assert main(["bounds", str(table(tmp_path)), "--plot", str(plot)]) == 0
    printed = capsys.readouterr().out.splitlines()
    bound, measured, slack = (float(cell) for cell in printed[1].split()[1:])
    assert measured == 40.0 and bound - measured == pytest.approx(slack, abs=0.11)
    assert 0 < bound <= 100
    assert any("circle" in node.tag for node in ET.parse(plot).getroot().iter())


def test_the_summary_names_what_beats_its_bound():
    rows = [Row("a", 50, 40), Row("b", 80, 60), Row("c", 90, 91)]
    text = bounds.lines(rows)
    assert text[1].startswith("b ")
    assert text[-1] == (
        "median slack 10.0 points, rank correlation 1.00, bound below the measured: c"
    )


def test_a_file_of_something_else_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file = tmp_path / "other.json"
    file.write_text("[]", encoding="utf-8")
    assert main(["bounds", str(file)]) == 2
    assert "expected a file of `peers --counters --json`" in capsys.readouterr().err
    assert main(["bounds", str(table(tmp_path, None))]) == 3
