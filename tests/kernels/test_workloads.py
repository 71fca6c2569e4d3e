"""The yardstick: stable names, honest arithmetic, references that mean what torch means."""

from __future__ import annotations

import itertools
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
import torch

from benchmarks import workloads
from benchmarks.workloads import attention_varlen
from benchmarks.workloads.attention import AttentionWorkload, SdpaWorkload
from benchmarks.workloads.attention_backward import BackwardWorkload
from benchmarks.workloads.attention_kvcache import KvcacheWorkload
from benchmarks.workloads.attention_varlen import VarlenWorkload
from benchmarks.workloads.matmul import MatmulWorkload
from warpwatch.config.targets import TARGETS

GROUPS = {"sdpa", "guide", "tensor-core", "amd", "fa3", "llm", "gemm"}


def test_every_named_group_has_workloads() -> None:
    assert {one.group for one in workloads.all_workloads()} >= GROUPS
    for group in GROUPS:
        assert all(one.group == group for one in workloads.select(group=group))
    assert {one.kernel for one in workloads.select(kernel="matmul")} == {"matmul"}


def test_what_only_who_asks_has_measured_is_no_part_of_every_commit() -> None:
    every = {one.name for one in workloads.all_workloads()}
    decoding = workloads.select(kernel="flash_attention_kvcache")
    queries = {one.S for one in decoding if isinstance(one, KvcacheWorkload)}
    assert queries == {1, 2, 4, 8, 16}
    asked = [one for one in decoding if not one.every_commit]
    assert asked and not every & {one.name for one in asked}
    assert workloads.get(asked[0].name) is asked[0]
    assert asked[0] in workloads.select(group="llm")


def test_fixed_set_covers_both_kernels_on_every_target() -> None:
    pairs = workloads.fixed_set()
    assert len(pairs) == len(set(pairs)) >= 80
    assert sum(workload.kernel == "matmul" for workload, _ in pairs) >= 40
    assert sum(workload.kernel != "matmul" for workload, _ in pairs) >= 40
    assert {target for _, target in pairs} == {target.name for target in TARGETS}


def test_listing_imports_neither_torch_nor_triton_nor_kernels() -> None:
    code = (
        "import sys, benchmarks.workloads as w; w.fixed_set(); "
        "print(sorted({'torch', 'triton', 'kernels'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=600
    )
    assert done.stdout.strip() == "[]"


def test_unknown_name_suggests_near_ones() -> None:
    with pytest.raises(ValueError, match=r"unknown workload 'matmul-fp16-4096'.*matmul-fp16-"):
        workloads.get("matmul-fp16-4096")


def test_causal_flops_count_visible_scores_only() -> None:
    case = AttentionWorkload(group="test", dtype="fp16", B=2, S=3, KV=5, H=4, G=2, D=8, causal=True)
    visible = 3 + 4 + 5  # bottom-right: the last query sees all five keys
    assert case.flops == 4 * 2 * 4 * 8 * visible
    assert case.bytes_moved == 2 * (2 * 3 * 4 + 2 * 5 * 2) * 8 * 2
    assert case.name == "attention-fp16-B2-S3-KV5-H4-G2-D8-causal"


def test_window_flops_count_the_keys_within() -> None:
    case = AttentionWorkload(group="test", dtype="fp16", B=1, S=6, H=1, D=8, causal=True, window=2)
    assert case.visible_scores == 1 + 2 + 4 * 3
    assert case.name == "attention-fp16-B1-S6-H1-D8-causal-window2"
    made = case.inputs("cpu", seed=3)
    rows, columns = torch.arange(6)[:, None], torch.arange(6)[None, :]
    seen = (columns <= rows) & (columns >= rows - 2)
    want = torch.nn.functional.scaled_dot_product_attention(
        *(made[name].double().transpose(1, 2) for name in "qkv"), attn_mask=seen
    )
    assert torch.allclose(case.reference(made, "float64"), want.transpose(1, 2), atol=1e-12)


def test_visible_scores_are_those_that_counting_finds() -> None:
    shapes = itertools.product((1, 4, 9), (1, 3, 9, 14), (False, True), (0, 1, 5, 30))
    for S, KV, causal, window in shapes:
        case = AttentionWorkload(
            **{"group": "test", "dtype": "fp16", "B": 1, "H": 1, "D": 8},
            **{"S": S, "KV": KV, "causal": causal, "window": window},
        )
        seen = [
            (i, j)
            for i in range(S)
            for j in range(KV)
            if (not causal or j <= i + KV - S) and (not window or j >= i + KV - S - window)
        ]
        assert case.visible_scores == len(seen), case.name


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32"])
def test_sdpa_reference_is_torch(dtype: str, causal: bool) -> None:
    case = SdpaWorkload(group="test", dtype=dtype, B=2, S=7, KV=9, H=4, G=2, D=8, causal=causal)
    made = case.inputs("cpu", seed=3)
    want = torch.nn.functional.scaled_dot_product_attention(
        *(made[name].double() for name in "qkv"), is_causal=causal, enable_gqa=True
    )
    assert torch.allclose(case.reference(made, "float64"), want, atol=1e-12)
    own = case.reference(made)
    assert own.dtype == made["q"].dtype
    assert torch.allclose(own.double(), want, atol=3e-2)


def test_matmul_inputs_follow_layout_and_seed() -> None:
    case = MatmulWorkload(
        group="test", dtype="bf16", M=4, N=6, K=8, layout="tn", bias=True, activation="silu"
    )
    made = case.inputs("cpu", seed=5)
    assert made["a"].shape == (4, 8) and made["a"].stride() == (1, 4)
    assert made["b"].is_contiguous()
    again = case.inputs("cpu", seed=5)
    assert torch.equal(made["a"], again["a"]) and not torch.equal(made["a"][:, :6], made["b"][:4])
    want = torch.nn.functional.silu(made["a"].double() @ made["b"].double() + made["bias"].double())
    assert torch.allclose(case.reference(made, "float64"), want)
    assert case.inputs("cpu", values="none")["a"].shape == (4, 8)
    more = replace(case, residual=True)
    given = more.inputs("cpu", seed=5)
    assert torch.allclose(more.reference(given, "float64"), want + given["residual"].double())
    assert more.name == case.name + "-residual" and more.needs == ("residual",)
    assert more.bytes_moved == case.bytes_moved + 2 * 4 * 6


@pytest.mark.parametrize("causal", [False, True])
def test_backward_reference_is_autograd_through_torch(causal: bool) -> None:
    case = BackwardWorkload(group="test", dtype="fp32", B=2, S=7, H=4, G=2, D=8, causal=causal)
    made = case.inputs("cpu", seed=3)
    leaves = [made[name].double().transpose(1, 2).requires_grad_() for name in "qkv"]
    out = torch.nn.functional.scaled_dot_product_attention(
        *leaves, is_causal=causal, enable_gqa=True
    )
    assert torch.allclose(made["out"].double(), out.transpose(1, 2), atol=1e-5)
    want = torch.autograd.grad(out, leaves, made["dout"].double().transpose(1, 2))
    for got, expected in zip(case.reference(made, "float64"), want, strict=True):
        assert torch.allclose(got, expected.transpose(1, 2), atol=1e-10)


def test_a_value_dim_of_its_own_counts_in_flops_and_bytes() -> None:
    shape: dict[str, Any] = {"dtype": "fp16", "B": 1, "S": 3, "H": 2, "G": 1, "D": 8, "DV": 4}
    case = AttentionWorkload(group="test", **shape)
    assert case.flops == 2 * (8 + 4) * 2 * 3 * 3
    assert case.bytes_moved == 2 * (3 * 2 + 3) * (8 + 4)
    backward = BackwardWorkload(group="test", **shape)
    assert backward.flops == 2 * (3 * 8 + 2 * 4) * 2 * 3 * 3
    made = backward.inputs("cpu", seed=1)
    assert made["dout"].shape == made["out"].shape == (1, 3, 2, 4)
    assert [one.shape[3] for one in backward.reference(made, "float64")] == [8, 8, 4]


def test_packed_reference_is_torch_of_each_sequence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(attention_varlen.PACKS, "few", (5, 1, 3))
    shape: dict[str, Any] = {"dtype": "fp32", "pack": "few", "H": 4, "G": 2, "D": 8}
    case = VarlenWorkload(group="test", **shape)
    assert case.flops == 4 * 4 * 8 * (15 + 1 + 6)
    made = case.inputs("cpu", seed=3)
    assert made["cu"].tolist() == [0, 5, 6, 9]
    want = torch.nn.functional.scaled_dot_product_attention(
        *(made[name][6:].double().transpose(0, 1) for name in "qkv"),
        is_causal=True,
        enable_gqa=True,
    )
    got = case.reference(made, "float64")
    assert torch.allclose(got[6:], want.transpose(0, 1), atol=1e-12)
    backward = VarlenWorkload(group="test", backward=True, **shape)
    given = backward.inputs("cpu", seed=3)
    assert torch.allclose(given["out"].double(), got, atol=1e-5)
    gradients = backward.reference(given, "float64")
    assert [one.shape for one in gradients] == [given[name].shape for name in "qkv"]


@pytest.mark.parametrize("page", [0, 16])
def test_decode_reference_is_torch_of_the_cached_keys(page: int) -> None:
    shape: dict[str, Any] = {"dtype": "fp32", "B": 2, "KV": 40, "S": 2, "H": 4, "G": 2, "D": 8}
    case = KvcacheWorkload(group="test", page=page, **shape)
    assert case.name == f"attention-kvcache-fp32-B2-S2-KV40-H4-G2-D8{'-page16' * (page > 0)}-causal"
    assert case.flops == 4 * 2 * 4 * 8 * (39 + 40)
    assert case.bytes_moved == 2 * 2 * (40 * 2 + 2 * 4) * 8 * 4
    made = case.inputs("cpu", seed=3)
    keys, values = made["k"], made["v"]
    if page:
        assert sorted(made["table"].flatten().tolist()) == list(range(6))
        keys, values = (one[made["table"]].reshape(2, 48, 2, 8)[:, :40] for one in (keys, values))
    want = torch.nn.functional.scaled_dot_product_attention(
        *(one.double().transpose(1, 2) for one in (made["q"], keys, values)),
        attn_mask=torch.ones(2, 40, dtype=torch.bool).tril(38),
        enable_gqa=True,
    )
    assert torch.allclose(case.reference(made, "float64"), want.transpose(1, 2), atol=1e-12)


def test_decode_reference_reads_an_fp8_cache_with_its_scales() -> None:
    shape: dict[str, Any] = {"dtype": "bf16", "B": 2, "KV": 20, "H": 2, "G": 1, "D": 8, "page": 16}
    case = KvcacheWorkload(group="test", kv="fp8", **shape)
    assert case.name == "attention-kvcache-bf16-B2-S1-KV20-H2-G1-D8-page16-fp8kv-causal"
    assert case.bytes_moved == 2 * 2 * 8 * (20 + 2 * 2)
    made = dict(case.inputs("cpu", seed=3))
    drawn = KvcacheWorkload(group="test", **shape).inputs("cpu", seed=3)
    assert made["k"].dtype == made["v"].dtype == torch.float8_e4m3fn
    widened = {name: made[name].double() * made[f"{name}_scale"].double() for name in "kv"}
    assert torch.allclose(widened["k"], drawn["k"].double().clamp(-4, 4), rtol=0.07, atol=2e-5)
    want = KvcacheWorkload(group="test", **shape).reference(made | widened, "float64")
    assert torch.allclose(case.reference(made, "float64"), want, atol=1e-12)


def test_decode_reference_turns_and_appends_the_newest_tokens() -> None:
    shape: dict[str, Any] = {"dtype": "fp32", "B": 2, "KV": 20, "S": 2, "H": 2, "G": 1, "D": 8}
    case = KvcacheWorkload(group="test", append=True, **shape)
    assert case.bytes_moved == 2 * 2 * (20 + 2 * 2 + 2) * 8 * 4
    made = dict(case.inputs("cpu", seed=3))
    assert made["seqlens"].tolist() == [18, 18]
    got = case.reference(made, "float64")
    angles = torch.arange(20)[:, None] * 5e5 ** -(torch.arange(4) / 4)
    late = torch.polar(torch.ones_like(angles), angles).to(torch.complex128)
    assert torch.allclose(made["cos"].double(), late.real, atol=1e-5)
    q, new = (
        torch.view_as_real(torch.complex(*made[name].double().chunk(2, -1)) * late[18:, None])
        .transpose(-1, -2)
        .flatten(-2)
        for name in ("q", "k_new")
    )
    keys = torch.cat((made["k"][:, :18].double(), new), 1)
    values = torch.cat((made["v"][:, :18], made["v_new"]), 1)
    want = torch.nn.functional.scaled_dot_product_attention(
        *(one.double().transpose(1, 2) for one in (q, keys, values)),
        attn_mask=torch.ones(2, 20, dtype=torch.bool).tril(18),
        enable_gqa=True,
    )
    assert torch.allclose(got, want.transpose(1, 2), atol=1e-5)
