"""What six compilers make of the kernels: nothing spills, tensor cores are used.

The workloads of the fixed set are held to the same in ``tests/compiled/test_fixed_set.py``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

import kernels
from benchmarks.workloads.attention import AttentionWorkload
from benchmarks.workloads.attention_backward import BackwardWorkload
from benchmarks.workloads.attention_kvcache import KvcacheWorkload
from benchmarks.workloads.attention_varlen import VarlenWorkload
from benchmarks.workloads.matmul import MatmulWorkload
from tests.kernels.on_card import portable
from tests.meetings import on_targets
from warpwatch import devices
from warpwatch.config.targets import TARGETS, Target, get
from warpwatch.instruments.compiled.measure.workload import measure
from warpwatch.workload.base import Inputs, Workload

pytestmark = pytest.mark.sampled

# As warpwatch.config.metrics defines tensor_core_level: mma.sync and MFMA, wgmma, tcgen05.
LEVEL = {"sm_80": 1, "sm_90": 2, "sm_100": 3, "gfx90a": 1, "gfx942": 1, "gfx950": 1}


def attention(**options: object) -> Workload:
    shape = {"dtype": "bf16", "B": 4, "S": 1024, "H": 16, "D": 128} | options
    return AttentionWorkload(group="test", **shape)


def matmul(**options: object) -> Workload:
    shape = {"dtype": "bf16", "M": 4096, "N": 4096, "K": 1024} | options
    return MatmulWorkload(group="test", **shape)


VARLEN = VarlenWorkload(group="test", dtype="bf16", pack="mixed", H=16, G=16, D=128)
WORKLOADS = (
    attention(causal=True, bhsd=True),
    attention(causal=True, window=300),
    attention(D=128, DV=64, causal=True),
    VARLEN,
    attention(D=64, causal=True, window=300),
    matmul(layout="nt", bias=True, activation="gelu"),
    matmul(layout="tn", N=512, dtype="fp16", bias=True, activation="silu"),
    matmul(layout="nt", residual=True),
    matmul(M=16, N=65536, layout="nt"),
)


SHORT = BackwardWorkload(group="test", dtype="bf16", B=8, S=512, H=16, D=128)
WINDOW = replace(SHORT, causal=True, window=300)
BACKWARD: tuple[Workload, ...] = (
    SHORT,
    WINDOW,
    replace(VARLEN, backward=True),
    *(
        BackwardWorkload(
            group="test", dtype="bf16", B=4, S=1024, H=16, D=D, causal=causal, window=w, DV=v
        )
        for D, causal, w, v in (
            (64, True, 0, 0),
            (128, True, 0, 64),
        )
    ),
)
# A kernel of its own on Hopper alone, elsewhere that of the short one.
LONG = replace(SHORT, S=2048, B=2)
# Forms of what is held to on every target above: one for each kind of tensor core.
FORMS = (
    *((replace(VARLEN, backward=True, D=64), get(name)) for name in ("sm_80", "sm_90", "gfx942")),
    *((replace(VARLEN, backward=True, G=4), get(name)) for name in ("sm_90", "sm_100", "gfx950")),
)
EACH_VENDORS = (get("sm_90"), get("gfx942"))


@pytest.mark.parametrize(
    ("workload", "target"),
    [
        *on_targets(*BACKWARD),
        (LONG, get("sm_90")),
        *FORMS,
    ],
    ids=lambda one: one.name,
)
def test_backward_takes_few_launches_and_spills_nothing(workload: Workload, target: Target) -> None:
    measured = measure(workload, target)
    assert measured.status == "ok", measured.detail
    values = measured.values
    kernels = [launch["kernel"] for launch in measured.evidence["launches"]]
    # Hopper has two kernels for short sequences.
    short = "attention_backward_hopper_short_kv" in kernels
    assert short == (workload in (SHORT, WINDOW) and target.name == "sm_90")
    # Where head dims are alike the portable kernel of queries tells what a launch did before. Of
    # packed sequences those of few keys are done again, and what lies behind them is cleared, in
    # one launch; Hopper's kernel reads a list of their tiles.
    told = "attention_backward_q" in kernels and not getattr(workload, "DV", 0)
    packed = workload.name.startswith("attention-varlen")
    listed = packed and not told
    assert listed == ("list_tiles" in kernels) and listed <= (target.name == "sm_90")
    assert values["launches"] == 3 - (short or told) + packed + listed
    assert values["copied_bytes"] == 0
    assert values["spilled_bytes"] == 0
    assert values["advisories"] == 0
    assert values["tensor_core_level"] == LEVEL[target.name]


@pytest.mark.parametrize(
    ("workload", "target"),
    [
        *on_targets(*WORKLOADS),
        *((replace(VARLEN, D=64), target) for target in EACH_VENDORS),
    ],
    ids=lambda one: one.name,
)
def test_one_launch_no_spill_and_the_best_tensor_cores(workload: Workload, target: Target) -> None:
    measured = measure(workload, target)
    assert measured.status == "ok", measured.detail
    values = measured.values
    # What lies behind packed sequences is cleared before. Hopper's own kernel reads a list of their
    # tiles, which a launch of its own makes.
    packed = isinstance(workload, VarlenWorkload)
    assert values["launches"] == 1 + packed + (packed and target.name == "sm_90")
    assert values["copied_bytes"] == 0
    assert values["spilled_bytes"] == 0
    assert values["advisories"] == 0
    assert values["tensor_core_level"] == LEVEL[target.name]


@pytest.mark.parametrize(
    "workload",
    [
        BackwardWorkload(group="test", dtype="bf16", B=2, S=2048, H=16, G=4, D=128, causal=True),
        replace(VARLEN, backward=True, G=4),
    ],
    ids=lambda one: one.name,
)
def test_one_loop_over_heads_that_share_keys_spills_nothing_on_hopper(workload: Workload) -> None:
    with portable():
        measured = measure(workload, get("sm_90"))
    assert measured.status == "ok", measured.detail
    launches = {one["kernel"]: one for one in measured.evidence["launches"]}
    # The third is for packed sequences of few keys and what lies behind the last.
    assert list(launches)[:2] == ["attention_backward_q", "attention_backward_kv"]
    # Where rows need no masks, tiles of 64 queries fit.
    assert launches["attention_backward_kv"]["constants"]["BLOCK_M"] == 64
    assert measured.values["spilled_bytes"] == 0
    assert measured.values["advisories"] == 0


GQA = BackwardWorkload(group="test", dtype="bf16", B=2, S=1000, H=8, G=2, D=64, causal=True)


# What the tiles of plain attention spilled 4 to 20 bytes of: gradients of heads that share keys
# are walked in one loop, the last of keys that 16 does not divide by a branch.
@pytest.mark.parametrize(
    "workload",
    [
        GQA,
        replace(GQA, S=1024, causal=False),
        replace(GQA, S=1024, window=200),
        replace(GQA, D=128, window=200),
        replace(VARLEN, backward=True, G=4, D=64),
        attention(D=128, S=1000),
    ],
    ids=lambda workload: workload.name,
)
def test_shared_keys_and_uneven_lengths_spill_nothing_on_sm_80(workload: Workload) -> None:
    measured = measure(workload, get("sm_80"))
    assert measured.status == "ok", measured.detail
    assert measured.values["spilled_bytes"] == 0
    assert measured.values["advisories"] == 0
    assert measured.values["tensor_core_level"] == LEVEL["sm_80"]


SKINNY = [
    *on_targets(
        matmul(M=64, N=2048, K=4096, layout="nt", residual=True),
        matmul(M=16, N=2048, K=4096, layout="nt"),
    )
]


@pytest.mark.parametrize(("workload", "target"), SKINNY, ids=lambda one: one.name)
def test_few_rows_split_k_and_combine(workload: Workload, target: Target) -> None:
    measured = measure(workload, target)
    assert measured.status == "ok", measured.detail
    assert measured.values["launches"] == 2
    assert measured.values["copied_bytes"] == 0
    assert measured.values["spilled_bytes"] == 0
    assert measured.values["tensor_core_level"] == LEVEL[target.name]
    product, combined = measured.evidence["launches"]
    assert (product["kernel"], combined["kernel"]) == ("matmul_kernel", "combine_kernel")
    assert product["grid"][1] > 1


@pytest.mark.parametrize(("M", "N"), [(16, 4096), (64, 4096), (64, 6144), (64, 14336)])
def test_few_rows_of_many_columns_take_one_launch_on_hopper(M: int, N: int) -> None:
    measured = measure(matmul(M=M, N=N, K=4096, layout="nt", residual=True), get("sm_90"))
    assert measured.status == "ok", measured.detail
    assert measured.values["spilled_bytes"] == 0
    assert measured.values["advisories"] == 0
    assert measured.values["tensor_core_level"] == LEVEL["sm_90"]
    (product,) = measured.evidence["launches"]
    assert product["kernel"] == "matmul_kernel"


def test_one_row_is_read_in_long_runs_on_hopper() -> None:
    workload = matmul(M=1, N=4096, K=4096, layout="nt", bias=True, activation="gelu")
    measured = measure(workload, get("sm_90"))
    assert measured.status == "ok", measured.detail
    assert measured.values["spilled_bytes"] == 0
    (product,) = measured.evidence["launches"]
    assert product["kernel"] == "one_row_kernel"


@pytest.mark.parametrize("target", [get("sm_80"), get("gfx90a")], ids=lambda target: target.name)
def test_fp32_gradients_fit_the_smallest_of_each_vendor(target: Target) -> None:
    shape: dict[str, Any] = {"dtype": "fp32", "B": 4, "S": 1024, "H": 16, "D": 64, "causal": True}
    measured = measure(BackwardWorkload(group="test", **shape), target)
    assert measured.status == "ok", measured.detail
    assert measured.values["launches"] == 3
    assert measured.values["tensor_core_level"] == LEVEL[target.name]


@pytest.mark.parametrize("target", [get("sm_80"), get("sm_90")], ids=lambda target: target.name)
@pytest.mark.parametrize("D", [64, 128])
def test_fp32_is_added_up_by_the_matrix_unit_for_fp64(D: int, target: Target) -> None:
    measured = measure(attention(dtype="fp32", D=D), target)
    assert measured.status == "ok", measured.detail
    assert measured.values["tensor_core_level"] == 1
    assert measured.values["spilled_bytes"] == 0


DECODE: dict[str, Any] = {"group": "test", "dtype": "bf16", "B": 16, "KV": 4096, "H": 32, "G": 8}
LONG = {"B": 1, "KV": 65536}  # of dozens of parts


@pytest.mark.parametrize(
    ("workload", "target"),
    on_targets(
        KvcacheWorkload(**DECODE | LONG, D=64, S=2),
        KvcacheWorkload(**DECODE, D=128, page=64, append=True),
    ),
    ids=lambda one: one.name,
)
def test_decode_is_bound_by_the_memory_it_must_read(
    workload: KvcacheWorkload, target: Target
) -> None:
    measured = measure(workload, target)
    assert measured.status == "ok", measured.detail
    values = measured.values
    assert values["launches"] == 2 + workload.append  # the new keys, the parts, and their sum
    assert values["spilled_bytes"] == 0
    assert values["tensor_core_level"] == LEVEL[target.name]
    *_, parts, _combined = cast("list[dict[str, Any]]", measured.evidence["launches"])
    assert parts["bound"]["limited_by"] == "memory"
    read_us = workload.bytes_moved / devices.load(target.device).kernel_bandwidth_gbps / 1e3
    assert values["bound_us"] < 1.05 * read_us
    # The lengths stay on the device: host code never waits for one.
    assert measured.evidence["torch_ops"] == []


class Padded(KvcacheWorkload):
    """Of prompts that are padded on the left, to half of the keys."""

    def inputs(self, *given: Any, **named: Any) -> Inputs:
        made = super().inputs(*given, **named)
        return made | {"leftpad": made["seqlens"].new_full((self.B,), self.KV // 2)}

    def _options(self, inputs: Inputs) -> dict[str, Any]:
        return super()._options(inputs) | {"cache_leftpad": inputs["leftpad"]}


class Chunked(KvcacheWorkload):
    """Of queries that see the last half of the keys."""

    def _options(self, inputs: Inputs) -> dict[str, Any]:
        return super()._options(inputs) | {"attention_chunk": self.KV // 2}


@pytest.mark.parametrize(
    ("workload", "target"),
    [
        *((Padded(**DECODE, D=64, S=2, append=True), target) for target in EACH_VENDORS),
        *on_targets(Padded(**DECODE, D=128, page=16), Chunked(**DECODE, D=128, page=64)),
    ],
    ids=lambda one: one.name if isinstance(one, Target) else f"{type(one).__name__}-{one.name}",
)
def test_half_of_the_keys_are_not_read_and_nothing_spills(
    workload: KvcacheWorkload, target: Target
) -> None:
    measured = measure(workload, target)
    assert measured.status == "ok", measured.detail
    assert measured.values["spilled_bytes"] == 0
    assert measured.values["tensor_core_level"] == LEVEL[target.name]
    read_us = workload.bytes_moved / devices.load(target.device).kernel_bandwidth_gbps / 1e3
    # Parts are of whole blocks: the last of a sequence may be shorter.
    assert 0.5 * read_us < measured.values["bound_us"] < 0.65 * read_us
    assert measured.evidence["torch_ops"] == []


class PackedQueries(KvcacheWorkload):
    """The queries of a sequence as packed ones, whose numbers the host does not know."""

    def call(self, inputs: Inputs) -> Any:
        starts = inputs["seqlens"].new_empty(self.B + 1)
        packed = {"cu_seqlens_q": starts, "max_seqlen_q": self.S} | self._options(inputs)
        if self.append:
            packed |= {name: packed[name].flatten(0, 1) for name in "kv"}
            packed["cu_seqlens_k_new"] = starts
        return kernels.flash_attention_kvcache(
            inputs["q"].flatten(0, 1),
            inputs["k"],
            inputs["v"],
            cache_seqlens=inputs["seqlens"],
            block_table=inputs["table"],
            causal=True,
            **packed,
        )


@pytest.mark.parametrize(
    ("workload", "target"),
    on_targets(
        PackedQueries(**DECODE, D=128, page=16, S=512, append=True),
        PackedQueries(**DECODE, D=64, page=16, S=512, append=True),
        PackedQueries(**DECODE, D=128, page=16, S=512, append=False),
    ),
    ids=lambda one: one.name,
)
def test_packed_queries_of_a_paged_cache_spill_nothing(
    workload: PackedQueries, target: Target
) -> None:
    measured = measure(workload, target)
    assert measured.status == "ok", measured.detail
    assert measured.values["spilled_bytes"] == 0
    assert measured.values["advisories"] == 0
    assert measured.evidence["torch_ops"] == []
    assert [one["kernel"] for one in measured.evidence["launches"]] == [
        *["kvcache_append"] * workload.append,
        "clear_behind",
        "attention_kvcache",
    ]


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_decode_of_an_fp8_cache_takes_what_reading_bytes_takes(target: Target) -> None:
    workload = KvcacheWorkload(**DECODE, D=128, page=64, kv="fp8")
    measured = measure(workload, target)
    assert measured.status == "ok", measured.detail
    values = measured.values
    assert values["spilled_bytes"] == 0
    assert values["tensor_core_level"] == LEVEL[target.name]
    read_us = workload.bytes_moved / devices.load(target.device).kernel_bandwidth_gbps / 1e3
    # On sm_100 widened keys and values on their way through shared memory bind as long.
    assert values["bound_us"] < 1.1 * read_us
