"""What the compiler makes of Hopper's matmul: wgmma, TMA, nothing spilled or serialised."""

from __future__ import annotations

import pytest
import torch

from tests.hopper.recorded import check_specialised, in_tf32, only_kernel, product
from warpwatch.instruments.compiled.measure.reading import read_code

pytestmark = pytest.mark.sampled


@pytest.mark.parametrize(
    "recorded",
    [
        pytest.param(lambda: product(4096, 4096, 512), id="matmul-wide"),
        pytest.param(
            lambda: product(4096, 4096, 512, layout="tt", activation="silu"),
            id="matmul-wide-transposed-silu",
        ),
        pytest.param(lambda: product(4096, 4096, 512, activation="gelu"), id="matmul-wide-gelu"),
        pytest.param(lambda: product(704, 3072, 512, layout="nt"), id="matmul-small"),
        pytest.param(
            lambda: product(3264, 5376, 512, layout="tn", activation="gelu"), id="matmul-quarters"
        ),
        pytest.param(lambda: product(2304, 2304, 512, layout="nt"), id="matmul-medium-halves"),
    ],
)
def test_warp_specialised_code_without_spills_or_advisories(recorded) -> None:
    check_specialised(only_kernel(recorded()), "matmul_hopper")


@pytest.mark.parametrize(
    ("shape", "options"),
    [
        pytest.param((2040, 2056, 136), {"layout": "nt", "activation": "gelu"}, id="tall-nt-gelu"),
        pytest.param((3048, 1032, 136), {}, id="broad"),
    ],
)
def test_rows_of_several_tiles_go_by_class_without_spills_or_advisories(shape, options) -> None:
    check_specialised(only_kernel(product(*shape, **options)), "matmul_hopper")


@pytest.mark.parametrize("activation", [None, "gelu"])
def test_a_residual_is_added_without_spills_or_advisories(activation: str | None) -> None:
    bias, residual = (torch.empty(shape).bfloat16() for shape in ((4096,), (4096, 4096)))
    options = {"layout": "nt", "bias": bias, "residual": residual, "activation": activation}
    check_specialised(only_kernel(product(4096, 4096, 512, **options)), "matmul_hopper")


@pytest.mark.parametrize(
    ("shape", "view"),
    [
        pytest.param((1024, 1024), slice(None), id="tiles-of-one-wave"),
        pytest.param((4096, 4096), slice(1, None), id="rows-not-16-bytes-apart"),
    ],
)
def test_the_portable_kernel_adds_the_other_residuals(shape, view) -> None:
    M, N = shape
    residual = torch.empty((M, N + 1)).bfloat16()[:, view][:, :N]
    recording = product(M, N, 512, layout="nt", residual=residual)
    assert only_kernel(recording).name == "matmul_kernel"


@pytest.mark.parametrize(
    ("shape", "options"),
    [
        pytest.param((1024, 1024, 1024), {}, id="nn"),
        pytest.param((1000, 1000, 1000), {"layout": "nt", "activation": "silu"}, id="nt-silu"),
        pytest.param((1024, 1024, 512), {"layout": "tt", "activation": "gelu"}, id="tt-gelu"),
        pytest.param((72, 512, 512), {"layout": "tn", "activation": "relu"}, id="tn-relu-tiny"),
        pytest.param((1280, 1280, 512), {"activation": "gelu"}, id="gelu-medium"),
        pytest.param((2048, 2048, 2048), {}, id="nn-wide"),
        pytest.param((1792, 2304, 512), {"layout": "tt", "activation": "gelu"}, id="tt-gelu-wide"),
        pytest.param((16, 4096, 4096), {"layout": "nt"}, id="nt-few-rows"),
        pytest.param(
            (64, 6144, 512), {"layout": "nt", "activation": "gelu"}, id="nt-gelu-few-rows"
        ),
        pytest.param((33, 14336, 512), {"activation": "silu"}, id="silu-few-rows-two-programs"),
        pytest.param((2048, 2048, 2048), {"bias": torch.empty(2048).bfloat16()}, id="widest"),
        pytest.param(
            (2048, 2048, 2048), {"layout": "nt", "activation": "gelu"}, id="widest-nt-gelu"
        ),
        pytest.param(
            (2048, 2048, 2048), {"layout": "tt", "activation": "relu"}, id="widest-tt-relu"
        ),
    ],
)
def test_one_tile_a_program_takes_little_code_and_no_partitions(shape, options) -> None:
    kernel = only_kernel(product(*shape, **options))
    code = read_code(kernel)
    assert kernel.name == "matmul_hopper_once"
    assert code.tensor_level == 2  # wgmma
    assert code.spilled_bytes == 0
    assert code.advisories == ()
    assert "cp.async.bulk.tensor" in kernel.texts["ptx"]
    assert "setmaxnreg" not in kernel.texts["ptx"]


@pytest.mark.parametrize(
    ("shape", "options"),
    [
        pytest.param((128, 1024, 8192), {"layout": "nt", "activation": "gelu"}, id="nt-gelu"),
        pytest.param((72, 264, 8200), {"layout": "tt"}, id="tt-tiny"),
    ],
)
def test_k_is_split_where_tiles_leave_processors_idle(shape, options) -> None:
    recording = product(*shape, **options)
    assert recording.failures == ()
    names = [launch.kernel.name for launch in recording.launches]
    assert names == ["matmul_hopper_once", "combine_kernel"]
    code = read_code(recording.launches[0].kernel)
    assert code.tensor_level == 2  # wgmma
    assert code.spilled_bytes == 0
    assert code.advisories == ()


@pytest.mark.parametrize(
    ("shape", "options"),
    [
        pytest.param((2048, 2048, 2048), {}, id="wide"),
        pytest.param((2048, 2048, 512), {"layout": "tn", "activation": "gelu"}, id="wide-tn-gelu"),
        pytest.param((1024, 1024, 512), {"layout": "nt", "activation": "silu"}, id="small-nt-silu"),
        pytest.param((1024, 1000, 1000), {"layout": "tt"}, id="small-tt"),
        pytest.param((512, 512, 512), {"activation": "gelu"}, id="tiny-gelu"),
    ],
)
def test_tf32_is_multiplied_beside_a_rounded_copy_of_b(
    shape: tuple[int, int, int], options: dict[str, str]
) -> None:
    recording = in_tf32(*shape, **options)
    assert recording.failures == ()
    names = [launch.kernel.name for launch in recording.launches]
    assert names == ["tf32_copy", "matmul_hopper"]
    for launch in recording.launches:
        code = read_code(launch.kernel)
        assert code.spilled_bytes == 0
        assert code.advisories == ()
    kernel = recording.launches[1].kernel
    assert read_code(kernel).tensor_level == 2  # wgmma
    for feature in ("setmaxnreg", "cp.async.bulk.tensor", "f32.tf32.tf32"):
        assert feature in kernel.texts["ptx"]


@pytest.mark.parametrize("activation", ["gelu", "silu"])
def test_an_activation_adds_little_code_to_the_widest_tile(activation: str) -> None:
    """Once a tile every instruction of the epilogue waits to be fetched: unrolled over 128 values a
    thread, and for both consumers, gelu by the error function made 163 KiB of them."""
    plain, active = (
        len(read_code(only_kernel(product(2048, 2048, 2048, **options))).program.instructions)
        for options in ({}, {"activation": activation})
    )
    assert active < plain + 1000, (plain, active)


@pytest.mark.parametrize("M", [30, 64, 200])
def test_a_bias_lies_beside_the_ring_that_the_last_product_reads(M: int) -> None:
    bias = torch.empty(4104).bfloat16()
    (launch,) = product(M, 4104, 72, layout="nt", bias=bias).launches
    given = launch.arguments
    ring = given["STAGES"] * ((given["BLOCK_M"] + given["BLOCK_N"]) * given["BLOCK_K"] * 2 + 8)
    assert launch.kernel.name == "matmul_hopper_once"
    assert launch.kernel.shared_bytes >= ring + 4 * given["BLOCK_N"]
