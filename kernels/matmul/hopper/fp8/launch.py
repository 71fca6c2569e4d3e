"""Which fp8 matmuls Hopper's own kernel takes, how they are cut, and its launch."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
import triton

from kernels.device.configurations import constants
from kernels.matmul.common import combine_splits
from kernels.matmul.common.epilogue import Product
from kernels.matmul.common.fp8_scales import Scale
from kernels.matmul.common.tuning import MOST_PARTS, SPLIT_ROWS
from kernels.matmul.hopper.boxes import copyable, descriptor, parts_of
from kernels.matmul.hopper.choose import PART_COLUMNS, ROWS, programs_in_step, whole_columns
from kernels.runtime import targets
from kernels.runtime.launch import noted

from . import persistent as hopper_fp8_kernel
from .one_tile import matmul_hopper_fp8_once
from .persistent import matmul_hopper_fp8


@dataclass(frozen=True)
class Fp8HopperConfig:
    """A tile of 128 rows and ``block_n`` columns, 128 beside scales of blocks, and its ring: a
    stage holds ``block_k`` of K, whose products are added in the matrix unit: of 256 ones of the
    same sign, 14 bits of the sum are fewer than bf16's rounding asks for."""

    block_n: int = field(metadata={"values": (128, 256)})
    block_k: int = field(metadata={"values": (128,)})
    stages: int = field(metadata={"values": (3, 4, 5, 6)})
    group_m: int = field(default=8, metadata={"values": (4, 8, 16)})


WIDE = Fp8HopperConfig(256, 128, 4, group_m=16)
NARROW = Fp8HopperConfig(128, 128, 6)
CONSUMERS: int = hopper_fp8_kernel.CONSUMERS.value


@dataclass(frozen=True)
class Fp8OnceConfig:
    """A tile of ``64 * consumers`` rows and ``block_n`` columns, one a program, and its ring, whose
    stages hold ``blocks`` blocks of 128 of K."""

    block_n: int = field(metadata={"values": (32, 64, 128)})
    stages: int = field(metadata={"values": (2, 3, 4, 6, 8)})
    blocks: int = field(default=2, metadata={"values": (1, 2, 4)})
    consumers: int = field(default=1, metadata={"values": (1, 2)})


# Of up to 64 rows, by ``whole_columns``.
FEW = (Fp8OnceConfig(32, 4, blocks=4), Fp8OnceConfig(64, 6), Fp8OnceConfig(64, 3))
# Beside scales of blocks instead of 64 columns: two programs a multiprocessor.
FEW_TWICE = Fp8OnceConfig(32, 2, blocks=4)
SQUARE = Fp8OnceConfig(64, 6)
OBLONG = Fp8OnceConfig(128, 8, blocks=1)
# Beside scales of blocks, where the kernel of several tiles waits for each of them.
LARGE = Fp8OnceConfig(128, 6, blocks=1, consumers=2)
# Scales of blocks: of how many blocks of K shared memory holds them.
MOST_SCALES = 32
FEWEST_SCALES = 8


def choose(
    M: int,
    N: int,
    out: torch.dtype,
    activation: str | None,
    multiprocessors: int,
    *,
    blocks: bool,
    scaled: int = 2,
) -> Fp8HopperConfig | Fp8OnceConfig | None:
    """Of a product of which ``scaled`` operands have scales.

    Wide tiles where every multiprocessor has three, narrow ones where most have one (beside
    scales of blocks large ones of which no program has more than one, where those suffice), smaller
    ones of which no program has more than one where those do, else None: the portable kernel's;
    docs/log/kernels/hopper/matmul-fp8.md measures it."""
    rows = triton.cdiv(M, ROWS * CONSUMERS)
    # Registers that a wide tile lacks: a scale for each row; a long activation of fp32, or any of
    # sums that no scale multiplies; silu of sums that two scales do not.
    if out == torch.float32:
        long = activation in ("gelu", "silu") or (activation is not None and not scaled)
    else:
        long = activation == "silu" and scaled < 2
    crowded = blocks or long
    if rows * triton.cdiv(N, 256) >= 3 * multiprocessors and not crowded:
        return WIDE
    if 4 * rows * triton.cdiv(N, 128) >= 3 * multiprocessors and M > SPLIT_ROWS:
        if blocks and _tiles(LARGE, M, N) <= multiprocessors:
            return LARGE
        return NARROW
    if M > SPLIT_ROWS:
        return small(M, N, multiprocessors)
    columns = whole_columns(N, multiprocessors)
    if blocks and columns == 2:
        return None
    if blocks and columns == 1 and 3 * triton.cdiv(N, 32) >= 5 * multiprocessors:
        return FEW_TWICE
    return None if columns is None else FEW[columns]


def _tiles(config: Fp8OnceConfig, M: int, N: int) -> int:
    return triton.cdiv(M, ROWS * config.consumers) * triton.cdiv(N, config.block_n)


def small(M: int, N: int, multiprocessors: int) -> Fp8OnceConfig | None:
    """The smaller tile that every program has one of."""
    for config in (SQUARE, OBLONG):
        if _tiles(config, M, N) <= multiprocessors:
            return config
    return None


def split(config: Fp8OnceConfig, M: int, N: int, K: int, multiprocessors: int) -> int:
    """As ``hopper.split``: into how many parts K is cut, of at least four steps, where that spares
    the time of the launch that adds them."""
    if N % PART_COLUMNS:
        return 1
    steps = triton.cdiv(K, config.blocks * 128)
    parts = min(multiprocessors // _tiles(config, M, N), steps // 4, MOST_PARTS)
    if parts < 2 or steps - steps // parts <= 8:
        return 1
    return triton.cdiv(steps, triton.cdiv(steps, parts))  # no part is empty


def scales_held(blocks: int) -> int:
    """Of how many blocks of K shared memory holds the scales where a program has ``blocks``: one
    size for many K, since each is a kernel of its own."""
    return min(MOST_SCALES, max(FEWEST_SCALES, triton.next_power_of_2(blocks)))


def _config(
    out: torch.Tensor, a_scale: Scale, b_scale: Scale, activation: str | None
) -> Fp8HopperConfig | Fp8OnceConfig | None:
    blocks = a_scale.blocks or b_scale.blocks
    scaled = sum(one.kind != "none" for one in (a_scale, b_scale))
    processors = targets.multiprocessors()
    M, N = out.shape
    return choose(M, N, out.dtype, activation, processors, blocks=blocks, scaled=scaled)


def supported(
    a: torch.Tensor,
    b: torch.Tensor,
    out: torch.Tensor,
    a_scale: Scale,
    b_scale: Scale,
    activation: str | None,
) -> bool:
    """Whether this kernel takes the problem: on Hopper, tiles for most multiprocessors, both
    operands along K, strides the copy engine takes."""
    return (
        targets.current().has_wgmma
        and a.dtype == torch.float8_e4m3fn
        and a.shape[1] > 0
        and copyable(a)
        and copyable(b.t())
        and copyable(out)
        and _config(out, a_scale, b_scale, activation) is not None
    )


def _kind(scale: Scale, *, once: bool = True, ahead: bool = True) -> str:
    """How a kernel reads ``scale``. If ``once``, one that a whole operand has is loaded once a
    program, at its start: "tensor". If ``ahead``, those of rows or columns are copied to shared
    memory while a tile is multiplied, not loaded by each thread for each of its columns at its end.
    """
    if scale.kind != "outer":
        return scale.kind
    if once and not any(scale.strides):
        return "tensor"
    return "ahead" if ahead else "outer"


def launch(
    a: torch.Tensor,
    b: torch.Tensor,
    out: torch.Tensor,
    a_scale: Scale,
    b_scale: Scale,
    bias: torch.Tensor | None,
    activation: str | None,
    config: Fp8HopperConfig | Fp8OnceConfig | None = None,
) -> None:
    """``out = activation((a * a_scale) @ (b * b_scale) + bias)`` for arguments that ``supported``
    accepts, or of any size with a ``config``."""
    M, K = a.shape
    N = b.shape[1]
    with targets.on_device_of(a):
        config = config or _config(out, a_scale, b_scale, activation)
        assert config is not None, "supported() was not asked"
        if isinstance(config, Fp8OnceConfig):
            product = Product(a, b, out, bias, activation)
            return _launch_once(product, a_scale, b_scale, config)
        blocks = a_scale.blocks or b_scale.blocks
        if blocks and config.block_n != 128:
            raise ValueError(
                "block_n: expected 128 beside scales of blocks, which has registers for two "
                f"products, got {config.block_n}"
            )
        tiles = triton.cdiv(M, ROWS * CONSUMERS) * triton.cdiv(N, config.block_n)
        # The widest tile would spill 136 bytes with silu.
        once = not (config.block_n == 256 and activation == "silu")
        noted(matmul_hopper_fp8, (programs_in_step(tiles, targets.multiprocessors()),))(
            descriptor(a, ROWS, config.block_k),
            descriptor(b.t(), config.block_n, config.block_k),
            descriptor(out, ROWS, 128 // out.element_size()),
            a_scale.values,
            b_scale.values,
            bias,
            M,
            N,
            K,
            *a_scale.strides,
            *b_scale.strides,
            **constants(config, "block_n", "block_k", "stages", "group_m"),
            A_SCALE=_kind(a_scale, once=once, ahead=not blocks),
            B_SCALE=_kind(b_scale, once=once, ahead=not blocks),
            ACTIVATION=activation or "none",
            num_warps=4,
        )


def _launch_once(product: Product, a_scale: Scale, b_scale: Scale, config: Fp8OnceConfig) -> None:
    (a, b, out, bias, activation, _), (M, N, K) = product, product.sizes
    parts = 1
    if M > SPLIT_ROWS:
        parts = split(config, M, N, K, targets.multiprocessors())
    rows_of_tile = ROWS * config.consumers
    if parts > 1:
        c = torch.empty((parts, M, N), dtype=torch.float32, device=a.device)
        c_boxes = parts_of(c, rows_of_tile, 32)
    else:
        c_boxes = descriptor(out, rows_of_tile, min(128 // out.element_size(), config.block_n))
    rows = min(rows_of_tile, max(8, triton.next_power_of_2(M)))
    by_blocks = a_scale.blocks or b_scale.blocks
    steps = triton.cdiv(triton.cdiv(K, config.blocks * 128), parts)
    blocks = steps * config.blocks  # of K that a program has at most
    chunk = scales_held(blocks) if by_blocks else 0
    noted(
        matmul_hopper_fp8_once,
        (triton.cdiv(M, rows_of_tile), triton.cdiv(N, config.block_n) * parts),
    )(
        descriptor(a, rows, 128),
        descriptor(b.t(), config.block_n, 128),
        c_boxes,
        a_scale.values,
        b_scale.values,
        None if parts > 1 else bias,
        M,
        N,
        K,
        *a_scale.strides,
        *b_scale.strides,
        BLOCK_M=rows_of_tile,
        **constants(config, "block_n", "blocks", "stages"),
        SPLITS=parts,
        CHUNK=chunk,
        MORE=by_blocks and blocks > chunk,
        A_SCALE=_kind(a_scale),
        B_SCALE=_kind(b_scale),
        ACTIVATION=activation or "none" if parts == 1 else "none",
        num_warps=4 * config.consumers,
    )
    if parts > 1:
        combine_splits.launch(c, product)
