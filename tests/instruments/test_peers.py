"""Peers: they compute what our kernels compute, stand beside them, and fail one at a time."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from benchmarks.peers import calls as peer_calls
from benchmarks.workloads import attention_varlen
from benchmarks.workloads.attention import (
    AttentionWorkload,
    SdpaWorkload,
)
from benchmarks.workloads.attention_backward import BackwardWorkload, TrainingWorkload
from benchmarks.workloads.attention_fp8 import Fp8AttentionWorkload
from benchmarks.workloads.attention_kvcache import KvcacheWorkload
from benchmarks.workloads.attention_varlen import VarlenWorkload
from benchmarks.workloads.matmul import MatmulWorkload
from benchmarks.workloads.matmul_fp8 import Fp8MatmulWorkload
from benchmarks.workloads.matmul_grouped import GroupedMatmulWorkload
from tests.root import ROOT
from warpwatch import project
from warpwatch.asv.suite import peers as canaries_of_asv
from warpwatch.config import package as configuration
from warpwatch.instruments.gpu import accuracy
from warpwatch.instruments.peers import registry as peers
from warpwatch.instruments.peers.registry import PeerWorkload
from warpwatch.session import commit
from warpwatch.workload.base import Workload

ATTENTION = AttentionWorkload(group="t", dtype="fp32", B=1, S=48, H=4, G=2, D=32, causal=True)
BACKWARD = BackwardWorkload(group="t", dtype="fp32", B=2, S=40, H=2, D=32, causal=True)
SDPA = SdpaWorkload(group="t", dtype="fp32", B=1, S=40, H=2, D=32)
CACHE = KvcacheWorkload(group="t", dtype="fp32", B=2, KV=40, H=4, G=2, D=32)
PRODUCT = MatmulWorkload(
    group="t", dtype="fp32", M=32, N=48, K=64, layout="nt", bias=True, activation="gelu"
)
RESIDUAL = replace(PRODUCT, bias=False, activation=None, residual=True)
LOW_PRODUCT = Fp8MatmulWorkload(group="t", M=32, N=48, K=64)
TRAINING = TrainingWorkload(group="t", dtype="bf16", B=1, S=40, H=2, D=32, causal=True)
PACKED = VarlenWorkload(group="t", dtype="fp32", pack="few", H=4, G=2, D=32)
GROUPED = GroupedMatmulWorkload(group="t", dtype="bf16", total=48, groups=4, N=32, K=64)


@pytest.mark.parametrize(
    ("workload", "name"),
    [
        (ATTENTION, "torch-flash"),
        (SDPA, "torch-flash"),
        (BACKWARD, "torch-flash"),
        (replace(ATTENTION, KV=80), "torch-flash"),
        (CACHE, "torch-flash"),
        (replace(CACHE, S=3, page=16), "torch-flash"),
        (replace(CACHE, S=3, page=16, causal=False), "torch-flash"),
        (PRODUCT, "cublas"),
        (RESIDUAL, "cublas"),
        (LOW_PRODUCT, "cublas-fp8"),
        (replace(LOW_PRODUCT, scales="rows", bias=True, activation="silu"), "cublas-fp8-fast"),
        (TRAINING, "torch-flash"),
        (GROUPED, "torch-grouped"),
        (replace(GROUPED, weights=True), "torch-grouped"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.name,
)
def test_a_peer_computes_the_workloads_formula(workload: Workload, name: str):
    (peer,) = (one for one in peers.known() if one.name == name)
    inputs = workload.inputs("cpu")
    accuracy.check(workload, inputs, peer.run(workload, inputs))


@pytest.mark.parametrize(
    "workload",
    [
        PACKED,
        replace(PACKED, backward=True),
        replace(ATTENTION, window=20),
        Fp8AttentionWorkload(group="t", B=2, S=40, H=4, G=2, D=32, causal=True),
    ],
    ids=lambda one: one.name,
)
def test_libraries_of_flash_attention_are_asked_for_the_workloads_formula(
    monkeypatch: pytest.MonkeyPatch, workload: Any
):
    """They need a GPU: in their place stands the formula, of the arguments they are given."""
    monkeypatch.setitem(attention_varlen.PACKS, "few", (20, 7, 1))
    inputs = workload.inputs("cpu")

    def plain(q: Any, k: Any, v: Any, **given: Any) -> Any:
        scales = {
            f"{one}_scale": given.pop(f"{one}_descale")[1, 0]
            for one in "qkv"
            if given.get(f"{one}_descale") is not None
        }
        window = given.pop("window_size", (0, 0))[0]
        assert given == {"causal": True}
        asked = replace(workload, window=window)
        return asked.reference({"q": q, "k": k, "v": v, **scales}), None

    def packed(q: Any, k: Any, v: Any, **given: Any) -> Any:
        assert given.pop("cu_seqlens_q").equal(inputs["cu"])
        assert given.pop("cu_seqlens_k").equal(inputs["cu"])
        assert given == {"max_seqlen_q": 20, "max_seqlen_k": 20, "causal": True}
        return replace(workload, backward=False).reference({"q": q, "k": k, "v": v})

    for name in ("flash_attn", "flash_attn_interface", "flash_attn.cute"):
        module = ModuleType(name)
        vars(module).update(flash_attn_func=plain, flash_attn_varlen_func=packed)
        monkeypatch.setitem(sys.modules, name, module)
    found = [one for one in peers.next_to(workload) if one.peer.name.startswith("flash_attn")]
    assert found
    for one in found:
        accuracy.check(workload, inputs, one.call(inputs))


def test_gradients_are_those_of_the_inputs_given_and_the_forward_pass_is_done_once():
    runs: list[Any] = []

    def forward(workload: Any, inputs: Any) -> Any:
        runs.append(inputs)
        return inputs["q"] * inputs["k"] + inputs["v"]

    run = peer_calls.with_gradients(forward)
    for seed in (0, 1):
        inputs = BACKWARD.inputs("cpu", seed)
        for _ in range(3):
            dq, dk, dv = run(BACKWARD, inputs)
        assert dq.equal(inputs["k"] * inputs["dout"]) and dk.equal(inputs["q"] * inputs["dout"])
        assert dv.equal(inputs["dout"])
    assert len(runs) == 2


@pytest.mark.filterwarnings("ignore:flex_attention called without")
@pytest.mark.parametrize(
    "workload",
    [SDPA, ATTENTION, replace(ATTENTION, KV=90), replace(ATTENTION, window=20)],
    ids=lambda one: one.name,
)
def test_flex_computes_the_workloads_formula_uncompiled(
    monkeypatch: pytest.MonkeyPatch, workload: AttentionWorkload
):
    from torch.nn.attention.flex_attention import flex_attention

    monkeypatch.setattr(peer_calls, "compiled_flex", lambda: flex_attention)
    (peer,) = (one for one in peers.known() if one.name == "flex")
    inputs = workload.inputs("cpu")
    accuracy.check(workload, inputs, peer.run(workload, inputs))


def test_a_workload_is_found_by_name_with_and_without_a_peer():
    found = peers.get("matmul-fp16-1024x1024x1024 @ cublas")
    assert isinstance(found, PeerWorkload)
    assert found.name == "matmul-fp16-1024x1024x1024 @ cublas"
    assert found.flops == 2 * 1024**3
    assert peers.get("matmul-fp16-1024x1024x1024 @ ours").name == "matmul-fp16-1024x1024x1024"
    with pytest.raises(ValueError, match="unknown peer 'cudnn': expected one of torch-flash"):
        peers.get("matmul-fp16-1024x1024x1024 @ cudnn")


def test_only_peers_with_the_same_mask_stand_beside():
    square = AttentionWorkload(group="t", dtype="bf16", B=1, S=64, H=1, D=64, causal=True)
    more_keys, fewer_keys = replace(square, KV=96), replace(square, KV=32)
    assert "torch-cudnn" in {one.peer.name for one in peers.next_to(square)}
    assert "torch-cudnn" in {one.peer.name for one in peers.next_to(more_keys)}
    assert peers.next_to(fewer_keys) == []
    assert [one.peer.name for one in peers.next_to(PRODUCT)] == ["cublas"]
    half = replace(PRODUCT, dtype="bf16")
    assert [one.peer.name for one in peers.next_to(half)] == ["cublas"]
    assert [one.peer.name for one in peers.next_to(replace(half, activation=None))] == [
        "cublas",
        "quack",
    ]


def test_an_absent_peer_is_named_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
):
    for module in ("flash_attn_interface", "flash_attn.cute", "quack", "cudnn"):
        monkeypatch.setitem(sys.modules, module, None)
    said = {peer.name: peer.refusal() for peer in peers.known()}
    assert "; try pip install --pre tokenspeed-fa3" in (said["flash_attn_3"] or "")
    assert "; try pip install --pre flash-attn-4" in (said["flash_attn.cute"] or "")
    assert "; try pip install quack-kernels" in (said["quack"] or "")
    assert "; try pip install nvidia-cudnn-frontend" in (said["cudnn-frontend"] or "")
    assert said["cublas"] is None


def test_flash_attention_4_is_not_taken_for_2(monkeypatch: pytest.MonkeyPatch):
    package = ModuleType("flash_attn")
    monkeypatch.setitem(sys.modules, "flash_attn", package)
    (known,) = (one for one in peers.known() if one.name == "flash_attn")
    workload = peers.of(replace(ATTENTION, dtype="bf16"), known)
    assert (workload.missing or "").startswith("flash_attn: flash_attn has no flash_attn_func")
    vars(package)["flash_attn_func"] = print
    assert workload.missing is None


@pytest.mark.parametrize(
    ("registered", "flags", "why"),
    [
        ((), {}, "flash_attn_3: this build has no backward pass"),
        (("bwd",), {"FLASHATTENTION_DISABLE_BACKWARD": True}, "flash_attn_3: this build has no"),
        (("bwd",), {}, None),
    ],
    ids=("none", "switched off", "built"),
)
def test_a_build_of_flash_attention_3_without_gradients_says_so(
    monkeypatch: pytest.MonkeyPatch,
    registered: tuple[str, ...],
    flags: dict[str, bool],
    why: str | None,
):
    import torch

    monkeypatch.setitem(sys.modules, "flash_attn_interface", ModuleType("flash_attn_interface"))
    config = ModuleType("flash_attn_config")
    vars(config)["CONFIG"] = {"build_flags": flags}
    monkeypatch.setitem(sys.modules, "flash_attn_config", config)
    operators = SimpleNamespace(**dict.fromkeys(registered))
    monkeypatch.setattr(torch.ops, "flash_attn_3", operators, raising=False)
    (known,) = (one for one in peers.known() if one.name == "flash_attn_3")
    said = peers.of(replace(BACKWARD, dtype="bf16"), known).missing
    assert said is None if why is None else (said or "").startswith(why)
    steps = (TRAINING, replace(PACKED, pack="even", dtype="bf16", backward=True))
    assert {peers.of(one, known).missing for one in steps} == {said}
    assert peers.of(replace(ATTENTION, dtype="bf16"), known).missing is None


def test_no_peer_stands_next_to_what_it_does_not_compute():
    """Caches that are written to or hold fp8 are another formula than that of q, k and v. With
    scales of blocks no sum is longer than they are."""
    flash = {"flash_attn", "flash_attn_3", "flash_attn.cute"}
    torch = {"torch-flash", "torch-cudnn"}
    for workload in configuration.workloads().select():
        found = peers.next_to(workload)
        names = {one.peer.name for one in found}
        if any(word in workload.name for word in ("fp8kv", "append")):
            assert found == [], workload.name
        elif "varlen" in workload.name:
            assert names == flash, workload.name
        elif "attention-fp8" in workload.name:
            assert names == {"flash_attn_3"}, workload.name
        elif "window" in workload.name:
            assert names == flash | {"flex", "cudnn-frontend"}, workload.name
        elif "training" in workload.name:
            assert names == flash | torch | {"cudnn-frontend"}, workload.name
        elif "kvcache" in workload.name:
            assert torch < names, workload.name
            assert "torch-efficient" not in names, workload.name
        elif workload.name.startswith("matmul-fp8"):
            low = ["cublas-fp8"] + ["cublas-fp8-fast"] * (not workload.name.endswith("blocks"))
            assert [one.peer.name for one in found] == low, workload.name
        elif workload.kernel == "grouped_matmul":
            assert names == {"torch-grouped"}, workload.name
        elif workload.kernel == "matmul":
            assert {"cublas"} <= names <= {"cublas", "quack"}, workload.name
    for heads, efficient in ((0, True), (ATTENTION.H, True), (1, False)):
        names = {one.peer.name for one in peers.next_to(replace(ATTENTION, dtype="bf16", G=heads))}
        assert ("torch-efficient" in names) is efficient
    assert peers.next_to(replace(PRODUCT, residual=True)) == []
    assert peers.next_to(replace(RESIDUAL, bias=True)) == []
    assert peers.next_to(replace(RESIDUAL, activation="relu")) == []
    assert peers.next_to(replace(LOW_PRODUCT, layout="nn")) == []


def test_scales_of_blocks_are_given_to_cublas_as_it_reads_them_and_turned_once(
    monkeypatch: pytest.MonkeyPatch,
):
    """The CPU's torch takes none: strides are those its check on a GPU asks for."""
    import torch

    workload = Fp8MatmulWorkload(group="t", M=40, N=200, K=512, scales="blocks")
    inputs = workload.inputs("cpu")
    given: list[Any] = []

    def scaled_mm(a: Any, b: Any, *, scale_a: Any, scale_b: Any, **_: Any) -> Any:
        given.append((scale_a, scale_b))
        return workload.reference({**inputs, "a_scale": scale_a, "b_scale": scale_b})

    monkeypatch.setattr(torch, "_scaled_mm", scaled_mm)
    (peer,) = (one for one in peers.known() if one.name == "cublas-fp8")
    for _ in range(2):
        accuracy.check(workload, inputs, peer.run(workload, inputs))
    a_scale, b_scale = given[0]
    assert (a_scale.shape, a_scale.stride()) == ((40, 4), (1, 40))
    assert (b_scale.shape, b_scale.stride()) == ((4, 2), (1, 4))
    assert given[1][0] is a_scale and given[1][1] is b_scale


@pytest.mark.parametrize(
    ("cuda", "major", "K", "why"),
    [
        (None, 9, 512, "scales of blocks need a torch of CUDA 12.9 or later, got none"),
        ("12.8", 9, 512, "scales of blocks need a torch of CUDA 12.9 or later, got 12.8"),
        ("13.0", 10, 512, "scales of blocks need a Hopper GPU, got a card"),
        ("13.0", 9, 640, "scales of blocks need a K of whole 512, got 640"),
        ("12.9", 9, 512, None),
    ],
    ids=str,
)
def test_scales_of_blocks_are_refused_with_what_they_need(
    monkeypatch: pytest.MonkeyPatch, cuda: str | None, major: int, K: int, why: str | None
):
    import torch

    monkeypatch.setattr(torch.version, "cuda", cuda)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (major, 0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a card")
    (low,) = peers.next_to(replace(LOW_PRODUCT, scales="blocks", K=K))
    assert low.missing == (why and f"cublas-fp8: {why}")
    (other, _) = peers.next_to(LOW_PRODUCT)
    assert other.missing is None


def test_flex_is_compiled_for_every_shape_of_the_yardstick():
    """Beyond its limit torch goes on uncompiled, and says so once among its warnings."""
    import torch._dynamo.config as dynamo

    peer_calls.compiled_flex()
    shapes = [
        one
        for workload in configuration.workloads().select()
        for one in peers.next_to(workload)
        if one.peer.name == "flex"
    ]
    assert 8 < len(shapes) < dynamo.recompile_limit
    assert len(shapes) < dynamo.accumulated_recompile_limit


def test_the_reference_of_a_configured_call_is_a_canary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No module of peers is needed; a reference inside the package changes with its commits."""
    call = 'call = "tests.compiled.foreign_kernels:copied"\nargs = "fp32[4,8]"\n'
    own = call.partition('"')[2].partition('"')[0]
    file = tmp_path / "warpwatch.toml"
    file.write_text(
        f'[package]\nname = "tests.compiled"\npath = "tests/compiled"\nrepository = "{ROOT}"\n'
        f'[[workload]]\nname = "foreign"\n{call}reference = "torch:clone"\n'
        f'[[workload]]\nname = "own"\n{call}reference = "{own}"\n'
        f'[[workload]]\nname = "absent"\n{call}reference = "nowhere.ops:clone"\n'
        '[sets]\ncanaries = ["foreign", "own"]\ncanary_peers = ["reference"]\n'
    )
    monkeypatch.setenv(project.FILE_VARIABLE, str(file))
    (canary,) = commit.canaries()
    assert (canary.name, canary.missing) == ("foreign @ reference", None)
    inputs = canary.inputs("cpu")
    assert canary.call(inputs).equal(inputs["positional"][0])
    absent = peers.get("absent @ reference")
    assert isinstance(absent, PeerWorkload)
    assert str(absent.missing).startswith("reference: import nowhere.ops: ModuleNotFoundError")
    (suite,) = canaries_of_asv.classes("here").values()
    assert suite.params == [["foreign @ reference"]]  # type: ignore[attr-defined]
    assert suite.track_latency_cold.role == "evidence"  # type: ignore[attr-defined]
