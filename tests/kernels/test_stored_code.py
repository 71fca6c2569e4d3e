"""What the first call of a form leaves on disk: the code, and no text unless somebody reads it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Over a driver that launches nothing; Triton compiles and loads as it is.
CALL = """
import torch
from triton import knobs
from tools.kernels.without_gpu import driver

listened = []
{before}
with driver.active():
    import kernels

    rows = torch.zeros(256, 256, dtype=torch.float16)
    kernels.matmul(rows, rows)
    assert "store_binary_only" not in vars(knobs.compilation)
    print(knobs.compilation.store_binary_only, len(listened))
"""
LISTENING = "knobs.compilation.listener = lambda **given: listened.append(given)"


def call(cache: Path, before: str = "", **more: str) -> str:
    environment = {**os.environ, "TRITON_CACHE_DIR": str(cache), **more}
    done = subprocess.run(
        [sys.executable, "-c", CALL.format(before=before)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def stored(cache: Path) -> set[str]:
    return {path.suffix for path in cache.rglob("matmul_*")}


def test_only_code_is_kept_and_a_later_process_finds_it(tmp_path: Path) -> None:
    assert call(tmp_path) == "False 0"
    found = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.cubin")}
    assert found
    assert not {".llir", ".ttgir", ".ptx"} & stored(tmp_path)
    assert call(tmp_path) == "False 0"
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.cubin")} == found


@pytest.mark.parametrize(
    ("before", "more", "said"),
    [
        ("", {"TRITON_STORE_BINARY_ONLY": "0"}, "False 0"),
        (LISTENING, {}, "False 1"),
    ],
    ids=["a user who wants them", "a listener"],
)
def test_texts_are_kept_for_who_reads_them(
    tmp_path: Path, before: str, more: dict[str, str], said: str
) -> None:
    assert call(tmp_path, before, **more) == said
    assert {".llir", ".ttgir", ".ptx", ".cubin"} <= stored(tmp_path)
