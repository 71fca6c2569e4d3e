"""Results of one value a commit are held against how far their own history wanders."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.reports import trees
from warpwatch.__main__ import main


@pytest.mark.parametrize(
    ("noise", "after", "code", "verdict"),
    [
        (0.001, 390e6, 1, "regressed"),
        (0.0, 390e6, 1, "regressed"),  # as equal as memory often is
        (0.0, 300e6, 0, "unchanged"),
        (0.2, 390e6, 3, "inconclusive"),
    ],
)
def test_peak_memory_of_two_commits_is_judged(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    noise: float,
    after: float,
    code: int,
    verdict: str,
) -> None:
    random = np.random.default_rng(5)
    tree = trees.make_repository(tmp_path, 36)
    tree.add_benchmark("bench.peakmem_it", unit="bytes")
    tree.write_benchmarks()
    for commit in range(36):
        level = (300e6 if commit < 30 else after) * float(np.exp(random.normal(0.0, noise)))
        tree.write_result(commit, {"bench.peakmem_it": [level]})
    given = ["--results", str(tree.results), "--repo", str(tree.repo), "--json"]
    assert main(["compare", "--recorded", *given, tree.commits[29], tree.commits[30]]) == code
    document = json.loads(capsys.readouterr().out)
    assert [one["verdict"] for one in document["series"]] == [verdict]
    assert document["coverage"] == {"judged": int(code != 3), "measured_at_base": 1}


def test_two_single_values_without_a_history_cannot_be_judged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tree = trees.make_repository(tmp_path, 2)
    tree.add_benchmark("bench.peakmem_it", unit="bytes")
    tree.write_benchmarks()
    for commit, level in enumerate((300e6, 390e6)):
        tree.write_result(commit, {"bench.peakmem_it": [level]})
    given = ["--results", str(tree.results), "--repo", str(tree.repo)]
    assert main(["compare", "--recorded", *given, *tree.commits]) == 3
    said = capsys.readouterr().out
    assert "too few values to say how far they wander" in said
    assert "0 series judged, of 1 with a value at base" in said
