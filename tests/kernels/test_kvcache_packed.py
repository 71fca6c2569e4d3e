"""Queries of their own number a sequence, packed, over a key-value cache."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.kernels.interpreted import Worker
from tests.kernels.kvcache_case import Case


def run_chunks(page: int) -> list[torch.Tensor]:
    """Chunks of prompts beside single tokens, in pages and packed: by their caches, and by
    flash_attention_varlen over the same keys one behind the other."""
    import kernels

    case = Case(keys=(90, 7, 40), queries=(20, 1, 40), S=0, H=4, G=2, D=32, page=page, causal=True)
    q, k, v = case.drawn()
    (k_cache, table), (v_cache, _) = (case.cache(one, seed) for seed, one in enumerate((k, v)))
    starts = case.cu_seqlens_q()
    lengths = torch.tensor(case.keys, dtype=torch.int32)

    def of_both(q: Any, k_cache: Any, v_cache: Any, lengths: Any, starts: Any) -> Any:
        return kernels.flash_attention_kvcache(
            q, k_cache, v_cache, cache_seqlens=lengths, block_table=table, causal=True,
            cu_seqlens_q=starts, max_seqlen_q=40, return_lse=True,
        )  # fmt: skip

    given = (q, k_cache, v_cache, lengths, starts)
    cached = of_both(*given)
    compiled = torch.compile(of_both, fullgraph=True, backend="aot_eager")(*given)
    packed = [torch.cat([one[b, :n] for b, n in enumerate(case.keys)]) for one in (k, v)]
    ends = torch.tensor([0, 90, 97, 137], dtype=torch.int32)
    whole = kernels.flash_attention_varlen(
        q, *packed, starts, ends, 40, 90, causal=True, return_lse=True
    )
    return [*cached, *compiled, *whole]


@pytest.mark.parametrize("page", [0, 16])
def test_packed_queries_of_a_cache_are_those_of_packed_keys(interpreter: Worker, page: int) -> None:
    out, lse, compiled, lse_compiled, whole, lse_whole = interpreter.run(run_chunks, page)
    assert torch.equal(out, compiled) and torch.equal(lse, lse_compiled)
    torch.testing.assert_close(out, whole, rtol=0.0, atol=2e-3)
    torch.testing.assert_close(lse, lse_whole, rtol=0.0, atol=1e-5)


def run_appended(bounds: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Caches of 8 rows whose sequences get packed keys, some of them more than there is room for,
    and the output; beside what they should be. So many bounds are read at a time."""
    import kernels
    from kernels.attention.decode import append as kvcache_append

    generator = torch.Generator().manual_seed(5)
    caches = list(torch.randn(2, 4, 8, 2, 16, generator=generator))
    new = torch.randn(2, 9, 2, 16, generator=generator)
    q = torch.randn(4, 1, 4, 16, generator=generator)
    wanted = [one.clone() for one in caches]
    for one, rows in zip(wanted, new, strict=True):
        one[0, 7], one[2, :2] = rows[1], rows[5:7]
    before = torch.tensor([7, 9, 0, 6], dtype=torch.int32)
    starts = torch.tensor([1, 4, 5, 7, 7], dtype=torch.int32)  # others before and behind
    kept, kvcache_append.BOUNDS = kvcache_append.BOUNDS, bounds
    try:
        out = kernels.flash_attention_kvcache(
            q, *caches, *new, cache_seqlens=before, cu_seqlens_k_new=starts
        )
    finally:
        kvcache_append.BOUNDS = kept
    held = torch.tensor([8, 8, 2, 6], dtype=torch.int32)
    plain = kernels.flash_attention_kvcache(q, *wanted, cache_seqlens=held)
    return list(zip([*caches, out], [*wanted, plain], strict=True))


@pytest.mark.parametrize("bounds", [1, 2, 64])
def test_packed_keys_find_their_sequence_and_no_more_than_its_room(
    interpreter: Worker, bounds: int
) -> None:
    for found, wanted in interpreter.run(run_appended, bounds):
        assert torch.equal(found, wanted)


def run_bounds() -> tuple[dict[str, tuple[torch.Tensor, torch.Tensor]], str]:
    """out and log-sum-exp of 8 and 2 packed queries by the longest sequence that was given, and the
    error of one that is too small."""
    import kernels

    generator = torch.Generator().manual_seed(5)
    q = torch.randn(10, 4, 16, generator=generator)
    k, v = torch.randn(2, 2, 40, 2, 16, generator=generator).unbind()
    slopes = torch.tensor([0.5, 0.25, 0.125, 0.0])
    options: dict[str, Any] = {
        "cu_seqlens_q": torch.tensor([0, 8, 10], dtype=torch.int32),
        "cache_seqlens": torch.tensor([40, 33], dtype=torch.int32),
        "return_lse": True,
    }
    kinds: dict[str, dict[str, Any]] = {
        "causal": {"causal": True},
        "window": {"causal": True, "window_size": (3, 0), "num_splits": 2},
        "alibi": {"alibi_slopes": slopes},
    }
    answers = {
        f"{kind} {most}": kernels.flash_attention_kvcache(
            q, k, v, max_seqlen_q=most, **options, **more
        )
        for kind, more in kinds.items()
        for most in (8, 4096)
    }
    try:
        kernels.flash_attention_kvcache(q, k, v, max_seqlen_q=5, **options)
    except ValueError as error:
        return answers, str(error)
    return answers, "none"


def test_a_longest_sequence_far_beyond_the_tokens_bounds_nothing(interpreter: Worker) -> None:
    found, error = interpreter.run(run_bounds)
    # On a card the lengths are not read, and rows beyond it are left unwritten.
    assert error.startswith("max_seqlen_q: expected the longest sequence, 8 rows, or more, got 5")
    for kind in ("causal", "window", "alibi"):
        (out, lse), (far, far_lse) = (found[f"{kind} {most}"] for most in (8, 4096))
        torch.testing.assert_close(far, out, rtol=0, atol=1e-6)
        torch.testing.assert_close(far_lse, lse, rtol=0, atol=1e-6)
