"""What flash_attention in fp8 refuses: one sentence with its remedy, or the hardware's name."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from benchmarks.workloads.attention_fp8 import Fp8AttentionWorkload
from kernels.attention.portable.forward import fp8
from kernels.runtime import targets
from warpwatch.config.targets import get
from warpwatch.instruments.compiled.measure.workload import measure

Q = torch.zeros(1, 4, 4, 32, dtype=torch.float8_e4m3fn)
K = Q[:, :, :2]
MISTAKES: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "mixed": ({"v": K.bfloat16()}, ValueError, r"^v: expected dtype .*e4m3fn.*got .*bfloat16"),
    "scale-type": (
        {"q_scale": 2.0},
        TypeError,
        r"^q_scale: .*shape \(\), \(4,\) or \(1, 4\), one value a head of q, or \(1, 2\), one a "
        r"head of k, got float; torch.tensor\(q_scale, device",
    ),
    "scale-shape": (
        {"k_scale": torch.ones(4)},
        ValueError,
        r"^k_scale: .*shape \(\), \(2,\) or \(1, 2\), one value a head of k, got float32 of shape "
        r"\(4,\)",
    ),
    "scale-heads": (
        {"v_scale": torch.ones(1, 4)},
        ValueError,
        r"^v_scale: .*or \(1, 2\), one value a head of v, got float32 of shape \(1, 4\)",
    ),
    "scale-sequences": (
        {"q_scale": torch.ones(2, 4)},
        ValueError,
        r"^q_scale: .*\(1, 4\).*got float32 of shape \(2, 4\)",
    ),
    "scale-dtype": ({"q_scale": torch.ones(4).half()}, ValueError, r"^q_scale: .*got float16"),
    "scale-device": ({"q_scale": torch.ones(4, device="meta")}, ValueError, r"^q_scale: .*meta"),
    "out-dtype": (
        {"out_dtype": torch.float8_e4m3fn},
        ValueError,
        r"^out_dtype: expected bfloat16, float16, float32 or None",
    ),
    "not-fp8": (
        {"q": Q.half(), "k": K.half(), "v": K.half(), "k_scale": torch.ones(())},
        ValueError,
        r"^k_scale: expected None unless q, k and v are float8_e4m3fn.*q is float16; fold scales",
    ),
    "not-fp8-out-dtype": (
        {"q": Q.half(), "k": K.half(), "v": K.half(), "out_dtype": torch.float32},
        ValueError,
        r"^out_dtype: expected None unless q, k and v are .*q is float16; convert the result",
    ),
    "e5m2": (
        {name: K.to(torch.float8_e5m2) for name in "qkv"},
        ValueError,
        r"^q: expected dtype float16, .*float8_e4m3fn, .*got float8_e5m2; multiply it by its scale",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_one_error_with_its_remedy(
    mistake: tuple[dict[str, Any], type[Exception], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import kernels

    monkeypatch.setattr("kernels.runtime.targets.accepts_cpu_tensors", lambda: True)
    options, error, message = mistake
    with pytest.raises(error, match=message) as raised:
        kernels.flash_attention(**({"q": Q, "k": K, "v": K} | options))
    assert "\n" not in str(raised.value)


CU = torch.tensor([0, 1, 4, 4], dtype=torch.int32)
PACKED_MISTAKES: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    **{name: MISTAKES[name] for name in ("out-dtype", "scale-device")},
    "scale-type": (
        {"k_scale": 2.0},
        TypeError,
        r"^k_scale: .*shape \(\), \(2,\) or \(3, 2\), one value a head of k, got float; torch",
    ),
    "scale-sequences": (
        {"q_scale": torch.ones(1, 4)},
        ValueError,
        r"^q_scale: .*or \(3, 4\).*or \(3, 2\), one a head of k, got float32 of shape \(1, 4\)",
    ),
    "mixed": ({"v": K[0].half()}, ValueError, r"^v: expected dtype .*e4m3fn.*got .*float16"),
    "not-fp8": (
        {"q": Q[0].half(), "k": K[0].half(), "v": K[0].half(), "v_scale": torch.ones(())},
        ValueError,
        r"^v_scale: expected None unless q, k and v are float8_e4m3fn.*q is float16; fold scales",
    ),
    "not-fp8-out-dtype": (
        {"q": Q[0].half(), "k": K[0].half(), "v": K[0].half(), "out_dtype": torch.float32},
        ValueError,
        r"^out_dtype: expected None unless q, k and v are .*q is float16; convert the result",
    ),
    "e5m2": (
        {name: K[0].to(torch.float8_e5m2) for name in "qkv"},
        ValueError,
        r"^q: expected dtype float16, .*float8_e4m3fn, .*got float8_e5m2; multiply it by its scale",
    ),
}


@pytest.mark.parametrize("mistake", PACKED_MISTAKES.values(), ids=PACKED_MISTAKES)
def test_a_mistake_of_packed_sequences_is_one_too(
    mistake: tuple[dict[str, Any], type[Exception], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import kernels

    monkeypatch.setattr("kernels.runtime.targets.accepts_cpu_tensors", lambda: True)
    options, error, message = mistake
    given = {"q": Q[0], "k": K[0], "v": K[0], "cu_seqlens_q": CU, "cu_seqlens_k": CU}
    with pytest.raises(error, match=message) as raised:
        kernels.flash_attention_varlen(**(given | options), max_seqlen_q=3, max_seqlen_k=3)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("name", ["sm_80", "gfx90a"])
def test_targets_without_fp8_refuse_by_name(name: str) -> None:
    case = Fp8AttentionWorkload(group="test", B=1, S=128, H=1, D=64)
    found = measure(case, get(name))
    assert found.status == "not applicable"
    assert f"q: expected fp16, bf16 or fp32 on {name}, which has no fp8" in found.detail


@pytest.mark.parametrize(
    ("target", "flavour", "has"),
    [
        (targets.Target("gfx942", "hip"), torch.float8_e4m3fn, "float8_e4m3fnuz"),
        (targets.Target("gfx950", "hip"), torch.float8_e4m3fnuz, "float8_e4m3fn"),
        (targets.Target("sm_90", "cuda", 90), torch.float8_e4m3fnuz, "float8_e4m3fn"),
    ],
)
def test_the_other_flavour_is_refused(
    target: targets.Target, flavour: torch.dtype, has: str
) -> None:
    with pytest.raises(ValueError, match=rf"^q: expected dtype {has}, the fp8 that {target.name}"):
        fp8.refuse_other_flavours(Q.float().to(flavour), target)
    fp8.refuse_other_flavours(Q.float().to(getattr(torch, has)), target)
