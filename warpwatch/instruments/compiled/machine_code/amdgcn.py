"""AMD machine code (CDNA 2 to 5, RDNA 4) from assembly text: instructions, registers, scratch."""

from __future__ import annotations

import re
from dataclasses import dataclass

from warpwatch.instruments.compiled.formats.code import Class, Flow, Instruction, Program

_LANES = 64  # of a wave, where the metadata does not state it

# Families, by whole words of a mnemonic: v_add_u32 is one of "add", v_addfoo_u32 is unknown.
_END = r"(?=_|$)"
_SPECIAL = re.compile(
    r"v_(s_)?(exp|log|rcp|rsq|sqrt|sin|cos|tanh|rcp_iflag)(_legacy)?_(f16|f32|f64|bf16)" + _END
)
_TENSOR = re.compile(r"v_(mfma|smfmac|wmma|swmmac)_")
_FMA = re.compile(
    r"v_(pk_|dot2c?_|dual_)?(fma|fmac|fmaak|fmamk|mad_mix|fma_mix|fma_mixlo|fma_mixhi|mac|mul|add"
    r"|sub|subrev|mad|madmk|madak|mul_legacy|fma_legacy|ldexp|div_fmas|div_fixup|div_scale|trig_preop)"
    r"_(f16|f32|f64|bf16)" + _END + r"|v_(dual_)?dot2(c|acc)?_f32_|v_(fma_mix|mad_mix)" + _END
)
_CONVERT = re.compile(r"v_(cvt|rndne|trunc|floor|ceil|fract|frexp|sat_pk|prng)_")
_MOVE = re.compile(
    r"v_(dual_)?(mov|swap|swaprel|accvgpr|readlane|writelane|readfirstlane|permlane(16|32|64|x16)"
    r"|movrel(s|d|sd)|nop|pk_mov)" + _END
)
_INTEGER = re.compile(
    r"v_(pk_|dual_)?(add|addc|sub|subb|subrev|subbrev|mul_lo|mul_hi|mul_[ui](32|64)|mad|lshl|lshr|ashr"
    r"|lshlrev|lshrrev|ashrrev|and|or|or3|xor|xor3|xad|xnor|not|bfe|bfi|bfm|bfrev|bcnt|ffbh|ffbl|clz"
    r"|cmp|cmpx|cndmask|min|max|min3|max3|med3|maximum3|minimum3|maximum|minimum|perm|alignbit"
    r"|alignbyte|add3|add_lshl|lshl_add|lshl_or|and_or|bitop2|bitop3|minmax|maxmin|mbcnt|sad|msad|qsad|mqsad|lerp"
    r"|cube(id|ma|sc|tc)|dot4|dot8|ashr_pk|mul24|pack|interp|sat)" + _END
)
_SCALAR = re.compile(
    r"s_(add|addc|addk|sub|subb|mul|mulk|mul_hi|mov|movk|cmov|cmovk|and|or|xor|not|nand|nor|xnor"
    r"|andn1|andn2|orn1|orn2|lshl|lshr|ashr|lshl1|lshl2|lshl3|lshl4|bfe|bfm|brev|bcnt|bcnt0|bcnt1"
    r"|ff0|ff1|flbit|bitset0|bitset1|bitcmp0|bitcmp1|bitreplicate|cmp|cmpk|cselect|cselectk|min"
    r"|max|abs|absdiff|sext|pack|quadmask|wqm|getreg|setreg|movrels|movreld|rfe|andn2_wrexec"
    r"|andn1_wrexec|getpc|mov_fed|memtime|memrealtime|abs_i32|nor|fma|fmac|fmaak|fmamk|cvt|ceil|floor"
    r"|trunc|rndne|minimum|maximum|ctz|clz|cls|and_not0|and_not1|or_not0|or_not1|bcnt)" + _END
)
_BARRIER = re.compile(
    r"s_(wait|waitcnt|clause|set_vgpr|code_end|monitor|barrier|nop|sleep|setprio|sethalt|wakeup|sendmsg|ttracedata|icache|dcache"
    r"|sched_barrier|set_gpr|inst_prefetch|delay|decperflevel|incperflevel)"
    + _END
    + r"|buffer_(wbl2|inv|gl0_inv|gl1_inv)"
    + _END
    + r"|global_(inv|wb|wbinv)"
    + _END
)
_CONTROL = re.compile(r"s_(branch|cbranch|endpgm|setpc|swappc|call|trap|setkill)" + _END)
_BYTES = {
    "byte": 1,
    "ubyte": 1,
    "sbyte": 1,
    "short": 2,
    "ushort": 2,
    "sshort": 2,
    "b8": 1,
    "u8": 1,
    "i8": 1,
    "b16": 2,
    "u16": 2,
    "i16": 2,
    "dword": 4,
    "b32": 4,
    "dwordx2": 8,
    "b64": 8,
    "dwordx3": 12,
    "b96": 12,
    "dwordx4": 16,
    "b128": 16,
}
_MFMA_SHAPE = re.compile(r"_(\d+)x(\d+)x(\d+)")
_MFMA_BLOCKS = re.compile(r"_(\d+)b_")
# CDNA 1 and 2 leave the number of blocks out of the name: several small products at once.
_MFMA_OLD_BLOCKS = {
    **dict.fromkeys(("32x32x1f32", "32x32x4f16", "32x32x2bf16", "32x32x4bf16_1k", "32x32x4i8"), 2),
    **dict.fromkeys(("16x16x1f32", "16x16x4f16", "16x16x2bf16", "16x16x4bf16_1k", "16x16x4i8"), 4),
    **dict.fromkeys(("4x4x1f32", "4x4x4f16", "4x4x2bf16", "4x4x4bf16_1k", "4x4x4i8"), 16),
    "4x4x4f64": 4,
}

_LABEL = re.compile(r"^(?P<label>[.$\w]+):")
_LINE = re.compile(
    r"^\t(?P<opcode>[a-z][a-z0-9_]+)(?:[ \t]+(?P<operands>[^;]*))?(?P<comment>;.*)?$"
)


@dataclass(frozen=True)
class Resources:
    """What the assembler's metadata states about a kernel. Registers are per lane."""

    vector_registers: int
    accumulation_registers: int
    scalar_registers: int
    spilled_vector_registers: int
    spilled_scalar_registers: int
    scratch_bytes: int


def resources(text: str) -> Resources:
    """Read the metadata; ``ValueError`` names what is missing."""

    def number(pattern: str) -> int:
        match = re.search(pattern + r"\s*(\d+)", text)
        if match is None:
            raise ValueError(f"assembly without {pattern!r}: expected AMD metadata at its end")
        return int(match.group(1))

    return Resources(
        vector_registers=number(r"\.vgpr_count:"),
        # Only CDNA has them.
        accumulation_registers=number(r"\.agpr_count:") if ".agpr_count:" in text else 0,
        scalar_registers=number(r"\.sgpr_count:"),
        spilled_vector_registers=number(r"\.vgpr_spill_count:"),
        spilled_scalar_registers=number(r"\.sgpr_spill_count:"),
        scratch_bytes=number(r"\.private_segment_fixed_size:"),
    )


def read(text: str) -> Program:
    """The instructions of an assembly listing (the kernel and functions it calls)."""
    stated = re.search(r"\.wavefront_size:\s*(\d+)", text)
    lanes = int(stated[1]) if stated else _LANES
    found: list[Instruction] = []
    labels: list[str] = []
    for line in text.splitlines():
        named = _LABEL.match(line)
        if named:
            labels.append(named["label"])
            continue
        match = _LINE.match(line)
        if match is None or line.startswith("\t."):
            continue
        found.append(
            _instruction(
                match["opcode"],
                (match["operands"] or "").strip(),
                match["comment"] or "",
                tuple(labels),
                lanes,
            )
        )
        labels.clear()
    return Program(tuple(found))


_SECOND = re.compile(r"::\s*(?P<opcode>v_dual_\w+)")
_SPILL = re.compile(
    r"^\t(?:buffer|scratch)_store\w+[^;\n]*?(?:offset:(?P<offset>\d+))?\s*"
    r"; (?P<size>\d+)-byte Folded Spill",
    re.MULTILINE,
)


def spilled_bytes(text: str) -> int:
    """Bytes of scratch a lane's spilled registers are kept in. The metadata's spill count is
    larger: it counts every time a register is spilled, and scratch also holds local arrays."""
    slots: set[int] = set()
    for match in _SPILL.finditer(text):
        start = int(match["offset"] or 0)
        slots.update(range(start, start + int(match["size"])))
    return len(slots)


def _instruction(
    opcode: str, operands: str, comment: str, labels: tuple[str, ...], lanes: int
) -> Instruction:
    kind = classify(opcode)
    if (second := _SECOND.search(operands)) and kind != "fma":
        # Two at once: the work of the pair is that of its arithmetic.
        other = classify(second["opcode"])
        kind = other if other in ("fma", "unknown") else kind
    if kind == "global" and ("Folded Spill" in comment or "Folded Reload" in comment):
        kind = "local"
    flow: Flow = "next"
    targets: tuple[str, ...] = ()
    if opcode.startswith("s_cbranch"):
        flow, targets = "branch", (operands.split(",")[-1].strip(),)
    elif opcode == "s_branch":
        flow, targets = "jump", (operands,)
    elif opcode in ("s_endpgm", "s_setpc_b64"):
        flow = "end"
    return Instruction(
        opcode=opcode,
        operands=operands,
        kind=kind,
        flow=flow,
        targets=targets,
        labels=labels,
        work=_work(opcode, kind, lanes),
        tensor_level=1 if kind == "tensor" else 0,
        dtype=_dtype(opcode) if kind == "tensor" else "",
    )


def _dtype(opcode: str) -> str:
    """What a matrix instruction multiplies: the name ends in it, bar a count of repeats."""
    ending = re.split(r"\d+x\d+x\d+", opcode)[-1]
    for spelling, dtype in (
        ("xf32", "tf32"),
        ("bf16", "bf16"),
        ("f16", "fp16"),
        ("fp8", "fp8"),  # CDNA3: _fp8_fp8, _bf8_fp8
        ("f8", "fp8"),  # CDNA3: _bf8_bf8; CDNA4: _f8f6f4
        ("f64", "fp64"),
        ("i8", "int8"),
        ("iu8", "int8"),
        ("f32", "fp32"),
    ):
        if spelling in ending:
            return dtype
    return "fp16"


def classify(opcode: str) -> Class:
    """The class of a mnemonic; ``unknown`` where no table has it."""
    if opcode.startswith("ds_"):
        return "shared"
    if opcode.startswith("scratch_"):
        return "local"
    if _BARRIER.match(opcode):
        return "barrier"
    if opcode.startswith(("buffer_", "global_", "flat_", "tbuffer_", "image_", "tensor_")):
        return "global"
    if opcode.startswith(
        ("s_load", "s_buffer_load", "s_scratch_load", "s_store", "s_atomic", "s_prefetch")
    ):
        return "constant"
    if _CONTROL.match(opcode):
        return "control"
    families: tuple[tuple[re.Pattern[str], Class], ...] = (
        (_TENSOR, "tensor"),
        (_SPECIAL, "special"),
        (_FMA, "fma"),
        (_CONVERT, "convert"),
        (_MOVE, "move"),
        (_INTEGER, "integer"),
        (_SCALAR, "scalar"),
    )
    return next((kind for pattern, kind in families if pattern.match(opcode)), "unknown")


def _work(opcode: str, kind: Class, lanes: int) -> int:
    if kind == "tensor":
        shape = _MFMA_SHAPE.search(opcode)
        if shape is None:
            return 0
        m, n, k = map(int, shape.groups())
        named = _MFMA_BLOCKS.search(opcode)
        blocks = int(named.group(1)) if named else _MFMA_OLD_BLOCKS.get(opcode[shape.start() + 1 :])
        # Of a sparse one half of the products are left out.
        return 2 * m * n * k * (blocks or 1) // (2 if "swmmac" in opcode else 1)
    if kind == "special":
        return lanes
    if kind == "fma":
        # The datasheets' rate is that of packed or paired ones; a plain one takes as long.
        return 2 * lanes
    if kind in ("shared", "global", "local"):
        parts = opcode.split("_")
        size = next((_BYTES[part] for part in reversed(parts) if part in _BYTES), 0)
        twice = kind == "shared" and any(part.endswith("2") for part in parts[1:2])
        twice = twice or any(one in opcode for one in ("read2st64", "write2st64", "_2addr_"))
        # A bank of shared memory hands out four bytes, wanted or not.
        return lanes * (max(4, size) if kind == "shared" else size) * (2 if twice else 1)
    return 0
