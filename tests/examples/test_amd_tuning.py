"""The command behind docs/results/amd.md, and that the page is of its making."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from examples import amd_tuning
from warpwatch.config import targets
from warpwatch.config.package import workloads as load_workloads

PAGE = Path("docs/results/amd.md").read_text(encoding="utf-8")


def test_the_command_compares_the_guides_tile_with_the_tables() -> None:
    done = subprocess.run(
        [
            sys.executable,
            "examples/amd_tuning.py",
            "--target",
            "gfx942",
            "matmul-fp16-1024x1024x1024",
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    head, _, plain, own = done.stdout.splitlines()
    assert head == f"| {amd_tuning.HEAD} |"
    assert "untuned 64x128x32 | 4, 2 |" in plain and "| tuned 64x64x64 | 4, 2 |" in own
    for line in (plain, own):
        multiplied, instructions = line.split(" | ")[7].split(" of ")
        assert 0 < int(multiplied) < int(instructions)


def test_a_tile_beyond_the_hardware_says_so_in_its_row() -> None:
    workload = load_workloads().get("attention-bf16-B8-S2048-H32-D128")
    plain, own = amd_tuning.rows(workload, targets.get("gfx90a"))
    assert plain.tile == "64x128" and "bytes of shared memory a block" in plain.failure
    assert own.values and not own.failure


def test_the_page_holds_two_rows_of_every_workload_and_target() -> None:
    table = [line for line in PAGE.splitlines() if line.startswith("| ")]
    assert table[0] == f"| {amd_tuning.HEAD} |"
    found = [tuple(line.strip("| ").split(" | ")[:3]) for line in table[1:]]
    wanted = []
    for name in amd_tuning.WORKLOADS:
        for target in amd_tuning.AMD:
            if "fp8" not in name or target != "gfx90a":  # which has none
                size = amd_tuning.size_of(load_workloads().get(name))
                tile = amd_tuning.guide(size)[: 3 if name.startswith("matmul") else 2]
                wanted.append((name, target, "untuned " + "x".join(map(str, tile))))
    assert [row for row in found if row[2].startswith("untuned")] == wanted
    assert [row[:2] for row in found if row[2].startswith("tuned")] == [row[:2] for row in wanted]
    alone = [row[:2] for row in found if row[0] in amd_tuning.TUNED_ALONE]
    assert set(alone) == {(name, on) for name in amd_tuning.TUNED_ALONE for on in amd_tuning.AMD}


def test_decoding_has_a_row_for_each_launch_that_counts() -> None:
    workload = load_workloads().get(amd_tuning.TUNED_ALONE[2])
    (row,) = amd_tuning.rows_of(workload, targets.get("gfx942"))  # its combining is a hundredth
    assert (row.kind, row.tile) == ("attention_kvcache", "16x32")
    assert f"| {row.workload} | gfx942 | {row.kind} {row.tile} |" in PAGE
