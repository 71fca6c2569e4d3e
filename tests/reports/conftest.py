"""One browser and the sites it looks at, built once a session."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.containers.conftest import one_at_a_time, shared
from tests.reports import keeping, trees
from tests.reports.chromium import Browser
from warpwatch.__main__ import main


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with Browser() as browser:
        yield browser


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A history with every kind of page: exact and noisy, worse and better, lost and gained."""
    root = tmp_path_factory.mktemp("site")
    tree = trees.make_repository(root, 30)
    workloads, targets = ["matmul-fp16-64", "attention-fp16-64"], ["sm_90", "gfx942"]
    exact = {"instrument": "compiled", "exact": True}
    names = ("workload", "target")
    for metric, unit, better in (
        ("launches", "count", "lower"),
        ("spilled_bytes", "bytes", "lower"),
        ("bound_utilization", "%", "higher"),
    ):
        tree.add_benchmark(
            f"compiled.track_{metric}",
            [workloads, targets],
            param_names=names,
            unit=unit,
            better=better,
            metric=metric,
            **exact,
        )
    tree.add_benchmark(
        "compiled.track_bound_us",
        [workloads, targets],
        param_names=names,
        unit="us",
        better="lower",
        metric="bound_us",
        flops=[1e9, 2e9],
        bytes_moved=[1e7, 1e6],
        peaks={"sm_90": [989.4, 989.4], "gfx942": [1307.4, 653.7]},
        bandwidths={"sm_90": 4800, "gfx942": 5300},
        devices={"sm_90": "NVIDIA H200", "gfx942": "AMD MI300X"},
        **exact,
    )
    tree.add_benchmark("bench.time_it", [["1", "2"]])
    tree.write_benchmarks()
    tree.write_machine("rig", gpu="H200")
    rng = np.random.default_rng(3)
    for commit in range(30):
        worse = commit >= 12
        tree.write_result(
            commit,
            {
                "compiled.track_launches": [1, 1, 3 if commit >= 20 else 1, 1],
                "compiled.track_spilled_bytes": [128 * worse, 0, None if commit == 15 else 0, 0],
                "compiled.track_bound_utilization": [40.0 - 5 * worse, 55.5, 70.0, 99.0],
                "compiled.track_bound_us": [3.0 + worse, 2.5, 4.0, 5.0],
                "bench.time_it": [
                    float((1.3 if worse else 1.0) * np.exp(rng.normal(0, 0.01))),
                    float(np.exp(rng.normal(0, 0.01))),
                ],
            },
            environment="env-triton3.7.1",
            intervals=0.01,
            machine_fields={"triton": "3.7.1"},
            cells=lambda name, values: (
                {"samples": [v and [v, 1.01 * v] for v in values]}
                if name.startswith("bench")
                else {}
            ),
        )
    for commit in (11, 12):
        code = "  HGMMA R0\n" if commit < 12 else 300 * "  HMMA R0\n"
        place = ("matmul-fp16-64", "sm_90")
        keeping.write_compiled(tree.results, tree.commits[commit], "3.7.1", {place: [code]})
    return trees.build_site(tree, root / "html")


@pytest.fixture(scope="session")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of the results shipped with the project, built once a test run."""
    folder = shared(tmp_path_factory) / "published-report"
    site = folder / "html"
    with one_at_a_time(tmp_path_factory, "published-report"):
        if not (folder / "done").exists():
            assert main(["report", "--results", "reports/published", "--out", str(site)]) == 0
            (folder / "done").touch()
    return site
