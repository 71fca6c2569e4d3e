"""Recording the noise of one commit: what is written is what the scorecard reads."""

from __future__ import annotations

import json
from pathlib import Path

from tools.harness import record_noise
from warpwatch.judge.statistics.recorded import recordings


def test_what_is_recorded_can_be_read_back(tmp_path: Path) -> None:
    names = ["quiet", "broken"]
    scripts = {"quiet": {"us": 100.0}, "broken": {"us": 50.0, "fails_at": 0}}
    request = {"mode": "latency", "scripts": scripts}
    rows, card = record_noise.record(names, 1, 60.0, request)
    (value, _) = rows[0]["quiet"]
    assert abs(value - 100.0) < 2.0
    assert rows[0]["broken"] == (None, None)
    many = [{**rows[0], "started_s": float(i), "quiet": (value + i, 1980.0)} for i in range(12)]
    document = record_noise.document("abc", ["quiet"], many, card)
    (tmp_path / "runs.json").write_text(json.dumps(document))
    (found,) = recordings(tmp_path)
    assert len(found.latency_us) == 12
    assert "commit abc" in found.source
    assert "12 runs" in record_noise.lines(["quiet"], many)[1]
