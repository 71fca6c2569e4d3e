"""The example runs as a user runs it: table on stdout, plot as a well-formed SVG."""

from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

EXAMPLE = Path("examples/block_size_experiment.py")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(EXAMPLE), *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


def test_the_experiment_prints_a_table_and_draws_every_configuration(tmp_path: Path):
    file = tmp_path / "plot.svg"
    done = run(
        "matmul-fp16-1024x1024x1024", "--target", "sm_80", "--limit", "3", "--plot", str(file)
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("MatmulConfig(") >= 3
    texts = [node.text or "" for node in ET.parse(file).getroot().iter() if "text" in node.tag]
    assert texts[0] == "matmul-fp16-1024x1024x1024 on sm_80"
    assert sum("m=" in text for text in texts) == 3
    assert sum("(chosen now)" in text for text in texts) == 1


def test_an_unknown_workload_is_one_line():
    done = run("matmul-fp16-1024")
    assert done.returncode == 2
    assert done.stderr.startswith("error: unknown workload 'matmul-fp16-1024': did you mean")
