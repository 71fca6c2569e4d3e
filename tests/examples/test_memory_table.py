"""What attention allocates: outputs, and four bytes a row and pass; the page's table is printed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from triton.runtime.jit import JITFunction

import kernels
from benchmarks.workloads.attention import AttentionWorkload
from benchmarks.workloads.attention_backward import BackwardWorkload
from examples import memory_table
from kernels.attention.common.options import Options
from kernels.attention.common.problem import Given
from kernels.attention.dispatch import backward as gradients
from tests.problems import problem_of
from warpwatch.config import targets
from warpwatch.instruments.compiled.record.call import record

LENGTH, HEADS, HEAD_DIM = 256, 3, 64


@pytest.fixture(autouse=True)
def uncompiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the host allocates needs no code of a kernel."""
    monkeypatch.setattr(JITFunction, "run", lambda *_, **__: None)


def test_attention_takes_its_outputs_and_four_bytes_a_row() -> None:
    plain, own, plain_both, own_both = memory_table.measure(LENGTH, HEADS, HEAD_DIM)
    tensor, rows = LENGTH * HEADS * HEAD_DIM * 2, LENGTH * HEADS * 4
    assert own == tensor + rows  # the output and the log-sum-exp
    assert own_both == 4 * tensor + 2 * rows  # three gradients and delta as well
    scores = LENGTH * LENGTH * HEADS * 2
    # Of the formula: scores before and after scaling; by autograd, gradients of both and weights.
    assert plain >= 2 * scores and plain_both >= 3 * scores
    # What the suite holds peak memory against; weights and output are there before the gradients.
    shape: dict[str, Any] = {
        "group": "t",
        "dtype": "fp16",
        "B": 1,
        "S": LENGTH,
        "H": HEADS,
        "D": HEAD_DIM,
    }
    assert AttentionWorkload(**shape).formula_bytes == plain
    assert BackwardWorkload(**shape).formula_bytes == plain_both - scores - tensor


def test_rows_that_fill_no_blocks_take_two_numbers_each() -> None:
    """Exponents beside delta, in whole blocks of rows: 200 are four of 64."""
    *_, own_both = memory_table.measure(200, HEADS, HEAD_DIM)
    assert own_both == 200 * HEADS * (4 * HEAD_DIM * 2 + 4) + 2 * 256 * HEADS * 4


@pytest.mark.parametrize(
    ("target", "dtype", "length", "nbytes"),
    [
        ("sm_80", "fp32", LENGTH, 8 + 8 + 4),
        ("sm_90", "fp32", LENGTH, 8 + 8 + 4),
        ("gfx942", "fp32", LENGTH, 4 + 4 + 4),
        ("sm_90", "bf16", 24, 4 + 4 + 4),
        ("gfx942", "bf16", 24, 4 + 4 + 4),
    ],
)
def test_exact_gradients_take_three_numbers_a_row(
    target: str, dtype: str, length: int, nbytes: int
) -> None:
    """Delta and the sum of the weights, in fp64 where products are added up in it, and a shift."""
    *_, own_both = memory_table.measure(length, HEADS, HEAD_DIM, target, dtype)
    tensor = length * HEADS * HEAD_DIM * memory_table.DTYPES[dtype].itemsize
    assert own_both == 4 * tensor + length * HEADS * (4 + nbytes)


def test_hoppers_gradients_take_a_workspace_of_whole_blocks() -> None:
    *_, own_both = memory_table.measure(LENGTH, HEADS, HEAD_DIM, "sm_90")
    tensor, rows = LENGTH * HEADS * HEAD_DIM * 2, LENGTH * HEADS * 4
    blocks = 2  # of 128 rows
    # Of each row dq's sums and three numbers; of each block of keys two.
    workspace = blocks * HEADS * (128 * (4 * HEAD_DIM + 3 * 4) + 2 * 4)
    assert own_both == 4 * tensor + rows + workspace


def test_hoppers_gradients_of_wide_heads_take_two_numbers_a_row() -> None:
    *_, own_both = memory_table.measure(LENGTH, HEADS, 256, "sm_90")
    tensor, rows = LENGTH * HEADS * 256 * 2, LENGTH * HEADS * 4
    assert own_both == 4 * tensor + rows + 256 * HEADS * 2 * 4  # of blocks of 64 rows


def by_autograd(target: str, length: int, exact: bool) -> int:
    """The peak in bytes, of what the operators that autograd calls launch."""
    given = [torch.empty(1, length, HEADS, HEAD_DIM, dtype=torch.float16) for _ in range(4)]
    found: list[int] = []

    def call(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, dout: torch.Tensor) -> Any:
        out, lse = kernels.flash_attention(q, k, v, return_lse=True)
        problem = problem_of(q, k, v, scale=0.1, options=Options(exact_gradients=exact))
        return out, gradients.launch(problem, Given(dout, None, out, lse))

    recording = record(lambda: found.append(memory_table.peak(call, *given)), targets.get(target))
    assert not recording.failures
    return found[0]


@pytest.mark.parametrize(
    ("target", "length", "more"), [("sm_80", LENGTH, 0), ("sm_80", 200, 4), ("sm_90", LENGTH, 4)]
)
def test_by_autograd_no_rounding_of_the_output_takes_four_bytes_a_row_or_none(
    target: str, length: int, more: int
) -> None:
    *_, own_both = memory_table.measure(length, HEADS, HEAD_DIM, target)
    assert by_autograd(target, length, exact=False) == own_both
    assert by_autograd(target, length, exact=True) == own_both + more * length * HEADS


def test_the_table_of_the_page_has_the_commands_form_and_arithmetic() -> None:
    lines = Path("docs/kernels/memory.md").read_text(encoding="utf-8").splitlines()
    start = lines.index(f"| {memory_table.HEAD} |")
    table = [line.strip("| ").split(" | ") for line in lines[start + 2 : start + 7]]
    assert [int(row[0]) for row in table] == list(memory_table.LENGTHS)
    for length, row in zip(memory_table.LENGTHS, table, strict=True):
        tensor, rows = length * 4 * 64 * 2, length * 4 * 4
        assert row[2] == memory_table.size(tensor + rows)
        assert row[5] == memory_table.size(4 * tensor + 2 * rows)
