"""``flash_attention`` of few queries over many keys packs heads and splits keys as decoding."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from kernels import flash_attention
from kernels.attention.decode import few_queries
from tests.kernels.interpreted import Worker
from tests.kernels.test_attention_forward import BASE, run_flash
from tests.problems import problem_of
from warpwatch.config import targets
from warpwatch.instruments.compiled.record.call import record

FEW = replace(BASE, B=1, S=4, KV=600, H=4, G=2, D=32)
CASES = [
    FEW,
    replace(FEW, S=16, causal=True, dtype="bfloat16"),
    replace(FEW, S=1, KV=513, B=2, view="transposed"),
    replace(FEW, window=(200, 3), D=40, DV=24),
    replace(FEW, window=(70, -1), causal=True, H=6, G=1, view="skipping"),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_few_queries_match_fp64(interpreter: Worker, case: object) -> None:
    interpreter.check(run_flash, case, names=("out", "lse"), draws=1)


def launches(
    name: str, seqlen_q: int, head_dim: int = 128, **options: object
) -> list[tuple[str, int]]:
    def call() -> None:
        q = torch.empty((1, seqlen_q, 32, head_dim), dtype=torch.bfloat16)
        k, v = (torch.empty((1, 65536, 8, head_dim), dtype=q.dtype) for _ in range(2))
        flash_attention(q, k, v, **options)

    recording = record(call, targets.get(name))
    assert recording.failures == ()
    return [(one.kernel.name, one.grid[0]) for one in recording.launches]


@pytest.mark.parametrize("name", ["sm_90", "gfx942"])
def test_few_queries_fill_the_device(name: str) -> None:
    (attend, programs), (combine, _) = launches(name, 4, causal=True)
    assert (attend, combine) == ("attention_kvcache", "attention_kvcache_combine")
    assert programs >= 132


@pytest.mark.parametrize(
    "options", [{"softcap": 10.0}, {"softmax_scale": -1.0}], ids=["scores", "negative-scale"]
)
def test_what_decoding_does_not_take_is_the_other_kernels(options: dict[str, float]) -> None:
    ((name, _),) = launches("sm_90", 4, **options)
    assert name.startswith("attention_forward")


@pytest.mark.parametrize(("seqlen_q", "head_dim"), [(128, 128), (64, 256)])
def test_some_queries_fill_a_hopper_device_too(seqlen_q: int, head_dim: int) -> None:
    """As tiles of the forward kernel they are 64 and 32 programs for 132 multiprocessors."""
    (attend, programs), (combine, _) = launches("sm_90", seqlen_q, head_dim, causal=True)
    assert (attend, combine) == ("attention_kvcache", "attention_kvcache_combine")
    assert programs >= 132


def test_more_queries_are_tiles_of_their_own() -> None:
    ((name, programs),) = launches("sm_90", 129)
    assert (name, programs) == ("attention_forward_hopper", 96)


@pytest.mark.parametrize(
    ("batch", "seqlen_q", "keys", "head_dim", "left", "wgmma", "taken"),
    [
        (1, 17, 1024, 72, None, True, True),
        (2, 128, 1024, 72, None, True, True),
        (2, 129, 1024, 72, None, True, False),
        (5, 64, 1024, 72, None, True, True),
        (6, 17, 1024, 72, None, True, False),
        (1, 256, 1024, 72, None, True, True),
        (1, 257, 1024, 72, None, True, False),
        (1, 17, 1023, 72, None, True, False),
        (1, 17, 1024, 72, -900, True, False),
        (1, 17, 1024, 72, None, False, False),
        (3, 16, 512, 72, -400, False, True),
        (1, 64, 2048, 144, None, True, True),
        (1, 64, 2047, 144, None, True, False),
        (1, 64, 2048, 130, None, True, False),
        (2, 64, 4096, 256, None, True, True),
        (2, 64, 4095, 256, None, True, False),
        (1, 129, 65536, 256, None, True, False),
    ],
    ids=str,
)
def test_where_some_queries_decode(
    batch: int,
    seqlen_q: int,
    keys: int,
    head_dim: int,
    left: int | None,
    wgmma: bool,
    taken: bool,
    monkeypatch,
) -> None:
    """Of 16 heads."""
    monkeypatch.setattr(few_queries.targets, "current", lambda: SimpleNamespace(has_wgmma=wgmma))
    monkeypatch.setattr(few_queries.targets, "multiprocessors", lambda: 132)
    q = torch.empty((batch, seqlen_q, 16, head_dim), dtype=torch.float16, device="meta")
    k = torch.empty((batch, keys, 16, head_dim), dtype=torch.float16, device="meta")
    assert few_queries.supported(problem_of(q, k, k, left_offset=left)) == taken
