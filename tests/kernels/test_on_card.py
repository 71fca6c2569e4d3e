"""What runs the kernels' tests on a GPU: which kernels serve, and every cut of Hopper's."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from kernels.attention.common.numerics import exactness
from kernels.runtime import backends
from tests.kernels import test_matmul, test_matmul_fp8
from tests.kernels.on_card import portable
from tests.problems import problem_of
from tools.kernels import each_path_once
from warpwatch.config import targets
from warpwatch.instruments.compiled.record import driver


def test_portable_means_no_kernel_of_one_architecture() -> None:
    kept = backends.load
    with portable():
        for name in (
            "attention.hopper.forward.launch",
            "attention.hopper.backward.heavy_rows.launch",
            "attention.hopper.backward.launch",
            "attention.hopper.fp8.launch",
            "matmul.hopper.launch",
            "matmul.hopper.tf32.launch",
            "matmul.hopper.fp8.launch",
        ):
            assert backends.load(name) is None
    assert backends.load is kept


def test_a_kernel_that_is_given_up_is_told() -> None:
    before = set(backends._given_up)
    told = pytest.raises(RuntimeError, match=r"kernels\.matmul\.hopper")
    with pytest.warns(RuntimeWarning), told, portable(False):
        backends.give_up("matmul.hopper.launch", ValueError("no registers"))
    assert backends._given_up == before


def test_every_cut_of_hoppers_attention_is_taken_once() -> None:
    from kernels.attention.common.shapes import limits
    from kernels.attention.hopper.backward import launch as hopper_backward_launch
    from kernels.attention.hopper.forward import launch as hopper

    taken, masked, gradients = set(), set(), set()
    with driver.active(targets.get("sm_90")):
        for case in each_path_once.HOPPER:
            q, k, v = case.tensors()
            mask, last, first = limits(case.KV - case.S, case.causal, case.window)
            limited = {"causal": mask, "causal_offset": last, "left_offset": first}
            problem = problem_of(q, k, v, scale=q.shape[3] ** -0.5, **limited)
            windowed = first is not None
            if q.shape[3] != v.shape[3]:
                continue
            if hopper.supported(problem):
                window = last - first if windowed else None
                given = {"seqlen_k": case.KV, "n_heads": case.B * case.H, "window": window}
                cut = hopper.choose(case.D, case.S, mask, multiprocessors=132, **given)
                taken.add(cut)
                if not (mask or windowed):
                    masked.add(case.KV % cut.block_n > 0)
            dout = q.new_empty(q.shape)
            if hopper_backward_launch.supported(problem, dout):
                full = case.KV % hopper_backward_launch.BLOCK_N == 0
                seen = exactness.keys_seen(case.KV, mask, last, first, case.S)
                cut = hopper_backward_launch.choose(case.D, seen, windowed=windowed)
                gradients |= {("causal", mask), ("whole blocks", full), (windowed, cut)}
                gradients.add((cut.columns, case.dtype))
    cuts = {
        hopper.choose(
            D, S, causal, seqlen_k=KV, n_heads=n_heads, multiprocessors=132, window=window
        )
        for D in (64, 128, 256)
        for S, KV in ((150, 256), (150, 300), (1030, 1024), (4096, 4096))
        for n_heads in ((1, 66, 132) if D == 64 else (1, 132))
        for causal, window in ((False, None), (True, None), (True, 256), (True, 300), (True, 5000))
        if D > 64 or window is None
    }
    assert taken == cuts
    assert masked == {False, True}
    assert len(gradients) == 18


def test_every_cut_of_hoppers_attention_in_fp8_is_taken_once() -> None:
    from kernels.attention.hopper.fp8 import launch as hopper_fp8

    taken = set()
    with driver.active(targets.get("sm_90")):
        for case in each_path_once.HOPPER_LOW_ATTENTION:
            q, k, v = (case.arguments()[name] for name in "qkv")
            assert hopper_fp8.supported(problem_of(q, k, v)), case
            taken.add(hopper_fp8.choose(case.D, case.S, case.causal))
    cuts = {
        hopper_fp8.choose(D, S, causal)
        for D in (64, 128, 256)
        for S in (64, 4096)
        for causal in (False, True)
    }
    assert taken == cuts


def test_every_cut_of_hoppers_attention_in_fp8_is_taken_by_packed_sequences_too() -> None:
    from kernels.attention.common.packed.sequences import Packed
    from kernels.attention.hopper.fp8 import launch as hopper_fp8

    taken = set()
    with driver.active(targets.get("sm_90")):
        for case in each_path_once.HOPPER_LOW_PACKED:
            made = case.arguments()
            packed = Packed(*case.ends(), max(case.q), max(case.k))
            q, k, v = (packed.spread(made[name]) for name in "qkv")
            assert hopper_fp8.supported(problem_of(q, k, v, packed=packed)), case
            mean = q.shape[1] // len(q)
            taken.add(hopper_fp8.choose(case.D, max(case.q), case.causal, mean))
    cuts = {
        hopper_fp8.choose(D, S, causal, S)
        for D in (64, 128, 256)
        for S in (64, 1024, 4096)
        for causal in (False, True)
    }
    assert taken == cuts


def test_hoppers_packed_sequences_run_hoppers_kernel() -> None:
    from kernels.attention.common.shapes import limits
    from kernels.attention.hopper.forward import launch as hopper

    with driver.active(targets.get("sm_90")):
        for case in each_path_once.HOPPER_PACKED:
            q, k, v = (x[None] for x in case.tensors())
            causal, offset, left = limits(0, case.causal, case.window)
            mask = {"causal": causal, "causal_offset": offset, "left_offset": left}
            packed = SimpleNamespace(max_q=max(case.q), max_k=max(case.k))
            assert hopper.supported(problem_of(q, k, v, packed=packed, **mask)), case


def test_hoppers_products_run_hoppers_kernels() -> None:
    """By strides, too: a case that the copy engine does not take runs the portable kernel."""
    from kernels.matmul.common.product import Product, Scale
    from kernels.matmul.hopper import launch as hopper
    from kernels.matmul.hopper.fp8 import launch as hopper_fp8
    from kernels.matmul.hopper.tf32 import launch as hopper_tf32

    with driver.active(targets.get("sm_90")):
        for one in each_path_once.HOPPER_PRODUCTS:
            a, b = test_matmul.operands(one)
            tile = hopper_tf32 if one.tf32 else hopper
            assert tile.supported(Product(a, b, a.new_empty((one.M, one.N)))), one
        for low in each_path_once.HOPPER_LOW_PRODUCTS:
            a, b = test_matmul_fp8.operands(low)
            scales = [Scale(blocks=kind == "blocks") for kind in (low.a_scale, low.b_scale)]
            out = a.new_empty((low.M, low.N), dtype=getattr(torch, low.out))
            product = Product(a, b, out, None, low.activation, None, *scales)
            assert hopper_fp8.supported(product), low


def test_every_tile_of_hoppers_matmul_is_taken_once() -> None:
    from kernels.matmul.hopper import choose as hopper_choice
    from kernels.matmul.hopper import launch as hopper
    from kernels.matmul.hopper import unaligned
    from kernels.matmul.hopper.tf32 import launch as hopper_tf32

    cases = each_path_once.HOPPER_PRODUCTS
    found = {hopper_choice.choose(one.M, one.N, one.K, 132) for one in cases if not one.tf32}
    persistent = {hopper_choice.WIDE, hopper_choice.TRIPLE, hopper_choice.MEDIUM}
    others = {hopper_choice.WIDE_ONCE, hopper_choice.SMALL, hopper_choice.TINY}
    assert found == {*persistent, *others, *hopper_choice.FEW}
    waves = {
        hopper_choice.tiles(cut, one.M, one.N) <= 132
        for one in cases
        if not one.tf32 and (cut := hopper_choice.choose(one.M, one.N, one.K, 132)).block_n <= 128
    }
    assert waves == {True, False}  # with a kernel for one tile a program, and the other
    parts = set()
    cuts = set()
    classes = set()
    by_lines = set()
    for one in cases:
        if not one.tf32:
            cut = hopper_choice.choose(one.M, one.N, one.K, 132)
            parts.add((cut, hopper_choice.split(cut, one.M, one.N, one.K, 132) > 1))
            cuts.add((cut, hopper_choice.parts_of_the_rest(cut, one.M, one.N, 132)))
            a = torch.empty((one.M, one.K), dtype=torch.float16)
            b = torch.empty((one.K, one.N), dtype=torch.float16)
            classes.add(hopper.lines(a, b, cut, 132))
            by_lines.add(unaligned.choose(a, b, 132))
    assert {(hopper_choice.TINY, True), (hopper_choice.SMALL, True)} <= parts
    assert {(hopper_choice.WIDE, 4), (hopper_choice.WIDE, 2), (hopper_choice.MEDIUM, 2)} <= cuts
    assert classes == {0, 8}
    assert by_lines == {None, unaligned.TALL, unaligned.BROAD}
    in_tf32 = [one for one in cases if one.tf32 and one.M >= hopper_tf32.FEWEST_ROWS]
    found = {hopper_tf32.choose(one.M, one.N, 132) for one in in_tf32}
    assert found == {hopper_tf32.WIDE, hopper_tf32.SMALL, hopper_tf32.TINY}


def test_every_tile_of_hoppers_fp8_matmul_is_taken_once() -> None:
    from kernels.matmul.hopper.fp8 import launch as hopper_fp8

    cases = each_path_once.HOPPER_LOW_PRODUCTS
    by_blocks = ["blocks" in (one.a_scale, one.b_scale) for one in cases]
    found = [
        hopper_fp8.choose(one.M, one.N, getattr(torch, one.out), one.activation, 132, blocks=blocks)
        for one, blocks in zip(cases, by_blocks, strict=True)
    ]
    once = {hopper_fp8.SQUARE, hopper_fp8.OBLONG, *hopper_fp8.FEW[:2]}
    assert set(found) == once | {
        hopper_fp8.WIDE,
        hopper_fp8.NARROW,
        hopper_fp8.LARGE,
        hopper_fp8.FEW[2],
        hopper_fp8.FEW_TWICE,
    }
    assert once <= {cut for cut, blocks in zip(found, by_blocks, strict=True) if blocks}
    assert {
        (hopper_fp8.split(cut, one.M, one.N, one.K, 132) > 1, blocks)
        for cut, one, blocks in zip(found, cases, by_blocks, strict=True)
        if cut == hopper_fp8.SQUARE
    } == {(True, True), (True, False), (False, True), (False, False)}
