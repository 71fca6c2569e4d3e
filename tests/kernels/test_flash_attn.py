"""FlashAttention's own functions by our kernels, in Triton's interpreter."""

from __future__ import annotations

import doctest
import importlib
import inspect
from dataclasses import replace
from typing import Any

import pytest
import torch

from tests.kernels.flash_attn_cases import Case, run, run_fa2_kvcache, run_fa3_kvcache
from tests.kernels.interpreted import Worker
from tests.kernels.kvcache_case import Case as Kvcache

FA3 = Case(suite="fa3")
VARLEN = Case(packed=True, q=(20, 1, 40), k=(33, 5, 20), D=16)
ONE_KEY = replace(
    VARLEN, causal=True, window=(0, 286), dropout=0.17, dtype="bfloat16", D=32, H=6, G=6
)
CASES = [
    Case(causal=True, form="qkvpacked", q=(40, 40), k=(40, 40), G=4, window=(9, 3), alibi=True),
    Case(form="kvpacked", q=(20,), k=(50,), softcap=5.0, dtype="bfloat16", causal=True),
    Case(dropout=0.17, q=(40,), k=(50,), alibi=True, causal=True, dtype="bfloat16"),
    replace(VARLEN, causal=True, dropout=0.17, dtype="float32"),
    # One key a row: gradients of q and k are 0, to the last place.
    replace(ONE_KEY, q=(60, 33), k=(63, 30)),
    replace(ONE_KEY, form="kvpacked", q=(260, 150), k=(260, 150), D=64),
    replace(VARLEN, form="kvpacked", window=(10, 4), alibi=True),
    replace(VARLEN, form="qkvpacked", k=VARLEN.q, G=4, causal=True),
    replace(VARLEN, page=16, causal=True, softcap=3.0, gradients=False),
    replace(VARLEN, page=7, window=(6, 0), alibi=True, gradients=False, dtype="bfloat16"),
    replace(FA3, causal=True, chunk=16, q=(40,), k=(50,), D=16),
    replace(FA3, DV=272, q=(20,), k=(40,), D=16, H=2, G=1, dtype="bfloat16"),
    replace(FA3, qv=True, DV=512, q=(9,), k=(40,), G=1, causal=True, gradients=False),
    replace(FA3, dtype="float8_e4m3fn", softcap=4.0, causal=True, gradients=False, D=16),
    replace(VARLEN, suite="fa3", chunk=16, causal=True, window=(12, 0)),
    replace(VARLEN, suite="fa3", chunk=9, used_q=(11, 0, 40), used_k=(33, 5, 18), dtype="float32"),
    replace(VARLEN, suite="fa3", chunk=9, dtype="float8_e4m3fn", softcap=9.0, gradients=False),
    replace(VARLEN, suite="fa3", qv=True, DV=40, causal=True, gradients=False),
    replace(VARLEN, suite="fa3", qv=True, DV=40, k=(0, 0, 0), gradients=False),
    replace(
        VARLEN,
        suite="fa3",
        qv=True,
        used_q=(9, 0, 40),
        used_k=(20, 5, 0),
        gradients=False,
        chunk=16,
    ),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_outputs_and_gradients_match_fp64(interpreter: Worker, case: Case) -> None:
    interpreter.check(run, case)


NEW = Kvcache(D=16, keys=(40, 9), new=2, rotary=16, S=2, causal=True, page=16)


@pytest.mark.parametrize("case", [NEW, Kvcache(D=16, alibi=True, leftpad=(33, 0, 0, 2))], ids=str)
def test_caches_of_fa2_match_fp64(interpreter: Worker, case: Kvcache) -> None:
    interpreter.check(run_fa2_kvcache, case, names=("out", "lse"))


@pytest.mark.parametrize(
    "case",
    [
        replace(NEW, rows_elsewhere=True, turned_from=(3, 60), queries=(2, 5), chunk=16),
        replace(NEW, all_fp8=True, fp8="float8_e4m3fn", scaled="sequence", S=3),
        replace(NEW, qv=True, DV=32, softcap=3.0),
    ],
    ids=str,
)
def test_caches_of_fa3_match_fp64(interpreter: Worker, case: Kvcache) -> None:
    interpreter.check(run_fa3_kvcache, case, names=("out", "lse"))


MODULES = ("fa2.dense", "fa2.varlen", "fa2.decoding", "fa3.attention", "fa3.decoding")


def run_examples() -> dict[str, tuple[int, int]]:
    found = {}
    for name in MODULES:
        module = importlib.import_module(f"kernels.flash_attn.{name}")
        found[name] = tuple(doctest.testmod(module))
    return found


def test_examples_run(interpreter: Worker) -> None:
    for name, (failed, attempted) in interpreter.run(run_examples).items():
        assert attempted > 3, name
        assert not failed, name


PACKED = "dropout_p softmax_scale causal window_size softcap alibi_slopes deterministic"
SEQUENCES = "cu_seqlens_q cu_seqlens_k max_seqlen_q max_seqlen_k"
OF_FA3 = "q_descale k_descale v_descale window_size attention_chunk softcap"
SIGNATURES = {
    ("", "func"): f"q k v {PACKED} return_attn_probs",
    ("", "qkvpacked_func"): f"qkv {PACKED} return_attn_probs",
    ("", "kvpacked_func"): f"q kv {PACKED} return_attn_probs",
    ("", "varlen_func"): f"q k v {SEQUENCES} {PACKED} return_attn_probs block_table",
    ("", "varlen_qkvpacked_func"): f"qkv cu_seqlens max_seqlen {PACKED} return_attn_probs",
    ("", "varlen_kvpacked_func"): f"q kv {SEQUENCES} {PACKED} return_attn_probs",
    (
        "",
        "with_kvcache",
    ): "q k_cache v_cache k v rotary_cos rotary_sin cache_seqlens cache_batch_idx"
    " cache_leftpad block_table softmax_scale causal window_size softcap rotary_interleaved"
    " alibi_slopes num_splits return_softmax_lse",
    (".fa3", "func"): f"q k v softmax_scale causal qv {OF_FA3} num_splits pack_gqa deterministic"
    " sm_margin return_attn_probs",
    (".fa3", "qkvpacked_func"): f"qkv softmax_scale causal {OF_FA3} deterministic num_heads_q"
    " sm_margin return_attn_probs",
    (".fa3", "varlen_func"): f"q k v {SEQUENCES} seqused_q seqused_k softmax_scale causal qv"
    f" {OF_FA3} num_splits pack_gqa deterministic sm_margin return_attn_probs",
    (".fa3", "with_kvcache"): "q k_cache v_cache k v qv rotary_cos rotary_sin cache_seqlens"
    " cache_batch_idx cache_leftpad page_table cu_seqlens_q cu_seqlens_k_new max_seqlen_q"
    " rotary_seqlens q_descale k_descale v_descale softmax_scale causal window_size attention_chunk"
    " softcap rotary_interleaved scheduler_metadata num_splits pack_gqa sm_margin"
    " return_softmax_lse",
    (".fa3", "combine"): "out_partial lse_partial out out_dtype",
}


@pytest.mark.parametrize("of", SIGNATURES, ids=lambda of: f"{of[0]}{of[1]}")
def test_arguments_have_the_names_and_the_order_of_flash_attention(of: tuple[str, str]) -> None:
    module = importlib.import_module(f"kernels.flash_attn{of[0]}")
    found = inspect.signature(getattr(module, f"flash_attn_{of[1]}")).parameters
    assert list(found) == SIGNATURES[of].split()


def run_combine() -> list[torch.Tensor]:
    import kernels
    from kernels.flash_attn import fa3

    q, k, v = torch.randn(3, 1, 20, 2, 16).unbind()
    whole = kernels.flash_attention(q, k, v, return_lse=True)
    pairs = [fa3.flash_attn_func(q, *some, return_attn_probs=True)
             for some in zip(k.split(11, 1), v.split(11, 1), strict=True)]  # fmt: skip
    outs, lses = (torch.stack(one) for one in zip(*pairs, strict=True))
    out, lse = fa3.flash_attn_combine(outs, lses.transpose(2, 3))
    nothing = fa3.flash_attn_combine(outs, torch.full_like(lses.transpose(2, 3), -torch.inf))[0]
    return [out - whole[0], lse.transpose(1, 2) - whole[1], nothing]


def test_parts_are_combined(interpreter: Worker) -> None:
    torch.testing.assert_close(interpreter.run(run_combine), [torch.zeros(1, 20, 2, 16),
                               torch.zeros(1, 2, 20), torch.zeros(1, 20, 2, 16)])  # fmt: skip


def run_mistakes() -> dict[str, str]:
    """What each says; of no error ''."""
    from kernels import flash_attn
    from kernels.flash_attn import fa3

    q, k = torch.randn(2, 3, 4, 16), torch.randn(2, 8, 2, 16)
    at, full = torch.tensor([0, 3], dtype=torch.int32), torch.tensor([8, 3], dtype=torch.int32)
    table = torch.arange(4, dtype=torch.int32).view(2, 2)
    new, wants = k[:, :1].clone(), q.clone().requires_grad_()
    low = [one.to(torch.float8_e4m3fn) for one in (q, k, k)]
    decode, decode_3 = flash_attn.flash_attn_with_kvcache, fa3.flash_attn_with_kvcache
    pages = k.repeat(2, 1, 1, 1)
    calls: dict[str, Any] = {
        "window": lambda: flash_attn.flash_attn_func(q, k, k, window_size=torch.ones(2)),
        "window-short": lambda: fa3.flash_attn_func(q, k, k, window_size=3),
        "packed": lambda: flash_attn.flash_attn_kvpacked_func(q, torch.stack((k, k, k), 2)),
        "heads": lambda: fa3.flash_attn_qkvpacked_func(q, num_heads_q=3),
        "descale": lambda: fa3.flash_attn_func(q, k, k, q_descale=torch.ones(2, 2)),
        "descale-shape": lambda: fa3.flash_attn_func(*low, k_descale=torch.ones(2, 3)),
        "full": lambda: decode(q, k.clone(), k.clone(), new, new, cache_seqlens=full),
        "full-int": lambda: decode(q, k.clone(), k.clone(), new, new, cache_seqlens=8),
        "full-pages": lambda: decode(
            q, pages, pages.clone(), new, new, cache_seqlens=2 * full, block_table=table
        ),
        "too-long": lambda: decode_3(q, pages, pages, cache_seqlens=17, page_table=table),
        "full-packed": lambda: decode_3(
            q, k.clone(), k.clone(), new[:, 0], new[:, 0], cache_seqlens=full,
            cu_seqlens_k_new=torch.arange(3, dtype=torch.int32),
        ),
        "fits": lambda: decode(q, k, k, cache_seqlens=full),
        "pages-dropped": lambda: flash_attn.flash_attn_varlen_func(
            q[0], pages, pages, at, at, 3, 3, 0.1, block_table=table[:1]
        ),
        "too-short": lambda: flash_attn.flash_attn_varlen_func(q[0], q[0], q[0], at, at, 2, 3),
        "gradient": lambda: decode(wants, k, k).sum().backward(),
        "gradient-qv": lambda: fa3.flash_attn_func(wants, k, k, qv=q).sum().backward(),
        "gradient-fp8": lambda: fa3.flash_attn_func(
            low[0].requires_grad_(), *low[1:]
        ).sum().backward(),
        "combine": lambda: fa3.flash_attn_combine(
            torch.ones(2, 1, 3, 4, 8), torch.ones(2, 1, 3, 8)
        ),
    }  # fmt: skip
    found = {}
    for name, call in calls.items():
        try:
            call()
            found[name] = ""
        except Exception as error:
            found[name] = f"{type(error).__name__}: {error}"
    return found


SAID = {
    "window": "ValueError: window_size: expected (left, right), each a number of keys, or -1 for ",
    "window-short": "ValueError: window_size: expected (left, right), each a number of keys, or -1",
    "packed": "ValueError: kv: expected 2 at axis 2, got shape (2, 8, 3, 2, 16); torch.stack(",
    "heads": "ValueError: num_heads_q: expected how many heads of a qkv of four axes are queries'",
    "descale": "ValueError: q_descale: expected None unless q, k and v are float8_e4m3fn",
    "descale-shape": "ValueError: k_descale: expected a float32 tensor of shape (), (2,) or (2, 2)",
    "full": "RuntimeError: k_cache: expected room for 9 keys, as cache_seqlens and new keys ask",
    "full-int": "RuntimeError: k_cache: expected room for 9 keys",
    "full-pages": "RuntimeError: block_table: expected room for 17 keys, as cache_seqlens and new "
    "keys ask for, got 16; give each sequence more pages",
    "too-long": "RuntimeError: page_table: expected room for 17 keys",
    "full-packed": "RuntimeError: k_cache: expected room for 9 keys",
    "fits": "",
    "pages-dropped": "NotImplementedError: dropout_p: expected 0 with block_table, got 0.1; gather",
    "too-short": "ValueError: max_seqlen_q: expected the longest sequence, 3 rows, or more, got 2",
    "gradient": "NotImplementedError: q: expected no gradient of attention over a cache, which has",
    "gradient-qv": "NotImplementedError: q: expected no gradient of attention with qv, which has",
    "gradient-fp8": "NotImplementedError: q: expected no gradient where q is fp8, which has only",
    "combine": "ValueError: lse_partial: expected shape (2, 1, 3, 4) as out_partial has, got (2, 1",
}


def test_a_mistake_is_one_error_with_its_remedy(interpreter: Worker) -> None:
    found = interpreter.run(run_mistakes)
    assert set(found) == set(SAID)
    for name, said in SAID.items():
        assert found[name].startswith(said) and bool(found[name]) == bool(said), found[name]
        assert "\n" not in found[name]
