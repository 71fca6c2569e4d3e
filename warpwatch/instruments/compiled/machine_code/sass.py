"""NVIDIA machine code (sm_80 to sm_120) from cubins: instructions by class, spill slots.

The tables hold the base mnemonics of the instruction sets; modifiers after the dot refine them. A
mnemonic that stands in no table is class ``unknown``, never silently left out.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from warpwatch.config.package import CACHE_VARIABLE
from warpwatch.instruments.compiled.formats.code import Class, Flow, Instruction, Program
from warpwatch.instruments.compiled.record.compiler_cache import write_at_once

from . import cubins

_MNEMONICS: dict[Class, str] = {
    "tensor": """HMMA IMMA DMMA BMMA QMMA OMMA HGMMA IGMMA QGMMA BGMMA UTCHMMA UTCIMMA UTCQMMA
        UTCOMMA UTCMXQMMA""",
    "special": "MUFU",
    "fma": """FFMA FMUL FADD FFMA2 FMUL2 FADD2 FFMA32I FMUL32I FADD32I FSWZADD HFMA2 HMUL2 HADD2
        FHFMA FHADD HFMA2_MMA HADD2_32I HMUL2_32I HFMA2_32I DFMA DMUL DADD""",
    "convert": "F2F F2I F2FP F2IP I2F I2FP I2I I2IP FRND",
    "integer": """IADD IADD3 IADD32I IMAD IMAD32I IMUL IMUL32I IDP IDP4A IABS IMNMX LEA LOP LOP3
        LOP32I SHF SHL SHR BMSK SGXT SEL FSEL PRMT POPC FLO BREV VABSDIFF VABSDIFF4 ISETP FSETP
        DSETP HSETP2 ISET FSET HSET2 FMNMX FMNMX3 DMNMX HMNMX2 VIADD VIADDMNMX VIMNMX VIMNMX3
        VHMNMX PLOP3 PSETP FCHK ISCADD XMAD LEPC VOTE VOTEU SHFL MATCH REDUX CREDUX R2P P2R""",
    "move": "MOV MOV32I MOVM CS2R S2R S2UR R2UR B2R R2B GETLMEMBASE SETLMEMBASE",
    "scalar": """UIADD3 UIMAD UISETP ULEA ULOP ULOP3 ULOP32I UMOV UP2UR UPLOP3 UPOPC UPRMT UPSETP
        UR2UP USEL USETMAXREG USGXT USHF USHL USHR UBMSK UBREV UFLO UVIADD UVIMNMX UI2F UF2F UF2FP
        UF2I UFADD UFFMA UFMUL UFMNMX UFRND UFSEL UFSET UFSETP UI2FP UI2I UI2IP UIABS UIMNMX UVOTE
        UVIRTCOUNT UGETNEXTWORKID UCREDUX UREDGR ELECT""",
    "shared": """LDS STS LDSM STSM STAS ATOMS LDGSTS LDTM STTM LDT LDTT STT STTT UTCCP UTCSHIFT""",
    "global": """LDG STG ATOM ATOMG RED REDG LD ST LDGMC UTMALDG UTMASTG UTMAREDG UTMAPF
        UTMACMDFLUSH UTMACCTL UBLKCP UBLKPF UBLKRED CCTL CCTLL CCTLT LDGDEPBAR QSPC SUATOM SULD
        SURED SUST TEX TLD TLD4 TMML TXD TXQ""",
    "local": "LDL STL",
    "constant": "LDC LDCU ULDC",
    "barrier": """BAR MEMBAR ERRBAR FENCE DEPBAR SYNCS SYNCSU WARPGROUP WARPGROUPSET WARPSYNC
        ARRIVES CGAERRBAR UCGABAR_ARV UCGABAR_WAIT ACQBULK ACQSHMINIT ENDCOLLECTIVE PREEXIT BMOV
        BREAK BSSY BSYNC UTCBAR UTCATOMSWS NANOSLEEP""",
    "control": """BRA BRX BRXU JMP JMX JMXU CALL RET EXIT KILL BPT RTT YIELD NOP RPCMOV PMTRIG
        CSMTEST SETCTAID IDE""",
}
_KIND: dict[str, Class] = {
    mnemonic: kind for kind, mnemonics in _MNEMONICS.items() for mnemonic in mnemonics.split()
}

_LINE = re.compile(
    r"/\*(?P<address>[0-9a-f]{4,})\*/\s+(?P<guard>@!?U?P\w+\s+)?"
    r"(?P<opcode>[A-Z][A-Z0-9_]*[\w.]*)\s*(?P<operands>[^;]*);"
)
_LABEL = re.compile(r"^(?P<label>[.$\w]+):\s*$")
_TARGET = re.compile(r"`\((?P<label>[^)]+)\)")
_BRANCH_TARGET = re.compile(r"\.L_x_\d+")
_SHAPE = re.compile(r"\.(\d+)x(\d+)x(\d+)\b")
# mma.sync shapes are written without separators.
_SHORT_SHAPES = {
    "16816": (16, 8, 16),
    "1688": (16, 8, 8),
    "1684": (16, 8, 4),
    "16832": (16, 8, 32),
    "16864": (16, 8, 64),
    "168128": (16, 8, 128),
    "168256": (16, 8, 256),
    "884": (8, 8, 4),
    "8816": (8, 8, 16),
    "8832": (8, 8, 32),
}
_WIDTHS = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16, "256": 32}
_LANES = 32
# The largest kernel of ours takes it 2 s.
_MOST_SECONDS = 600


def disassemble(cubin: bytes) -> str:
    """The text of ``nvdisasm``, which comes with Triton."""
    return disassemble_all([cubin])[0]


def disassemble_all(binaries: Sequence[bytes]) -> list[str]:
    """The text of each; labels are numbered however many are read at once. ``nvdisasm`` takes a
    fifth of a second to start and a tenth of that for a kernel, so it is started once for all that
    can be one file. Where compiled kernels are kept, the texts are kept beside them."""
    import triton

    kept = os.environ.get(CACHE_VARIABLE)
    places: dict[bytes, Path] = {}
    for one in binaries if kept else ():
        digest = hashlib.sha256(triton.__version__.encode() + one).hexdigest()
        places[one] = Path(str(kept), "sass", f"{digest}.sass")
    found = {
        one: place.read_text(encoding="utf-8") for one, place in places.items() if place.is_file()
    }
    lacking = [one for one in dict.fromkeys(binaries) if one not in found]
    for group in cubins.groups(lacking):
        together = [lacking[place] for place in group]
        for one, text in zip(together, _texts(together), strict=True):
            found[one] = text
            if kept:
                write_at_once(places[one], text)
    return [found[one] for one in binaries]


def _texts(together: Sequence[bytes]) -> list[str]:
    if len(together) > 1:
        try:
            texts = cubins.split(_disassembled(cubins.merged(together)), together)
        except ValueError:
            texts = None
        if texts is not None:
            return texts
    return [_disassembled(one) for one in together]


def _disassembled(cubin: bytes) -> str:
    from triton import knobs

    with tempfile.TemporaryDirectory(prefix="sass-") as folder:
        path = Path(folder, "kernel.cubin")
        path.write_bytes(cubin)
        # Where a table says what is jumped to, its analysis of what flows where names the labels.
        # Elsewhere it changes nothing, for a fifth of the time.
        short = [] if cubins.jumps_by_a_table(cubin) else ["-ndf"]
        command = [knobs.nvidia.nvdisasm.path, "-c", *short, str(path)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_MOST_SECONDS)
        except subprocess.TimeoutExpired:
            raise ValueError(f"nvdisasm has not ended after {_MOST_SECONDS} s") from None
    if done.returncode:
        raise ValueError(f"nvdisasm cannot read the cubin: {done.stderr.strip()[-300:]}")
    return done.stdout


def read(text: str) -> Program:
    """The instructions of ``nvdisasm -c`` output."""
    found: list[Instruction] = []
    labels: list[str] = []
    places: dict[str, int] = {}
    reconvergence: dict[str, list[str]] = {}
    for line in text.splitlines():
        named = _LABEL.match(line.strip())
        if named:
            labels.append(named["label"])
            places[named["label"]] = len(found)
            continue
        match = _LINE.search(line)
        if not match:
            continue
        opcode, operands = match["opcode"], match["operands"].strip()
        if opcode.startswith("BSSY"):
            barrier = operands.split(",")[0].strip()
            reconvergence.setdefault(barrier, []).extend(_TARGET.findall(operands))
        found.append(_instruction(opcode, operands, (match["guard"] or "").strip(), tuple(labels)))
        labels.clear()
    for i, one in enumerate(found):
        if one.opcode.startswith("BSYNC"):
            # It goes on where the BSSY of its barrier said. Barriers are used again and again:
            # the nearest such place behind it is meant.
            barrier = one.operands.split(",")[-1].strip()
            ahead = [label for label in reconvergence.get(barrier, ()) if places.get(label, -1) > i]
            if ahead:
                target = min(ahead, key=places.__getitem__)
                found[i] = replace(one, flow="jump", targets=(target,))
    return Program(tuple(found))


def _instruction(opcode: str, operands: str, guard: str, labels: tuple[str, ...]) -> Instruction:
    base = opcode.split(".")[0]
    kind = _KIND.get(base, "unknown")
    flow: Flow = "next"
    targets: tuple[str, ...] = ()
    if base in ("BRA", "JMP", "BRX", "BRXU", "JMX", "JMXU"):
        targets = tuple(_TARGET.findall(operands) or _BRANCH_TARGET.findall(operands))
        # BRA.U UP0 and BRA P0 carry their condition as an operand.
        conditional = guard or bool(re.match(r"!?U?P\d", operands))
        flow = "branch" if conditional else "jump"
    elif base in ("EXIT", "RET", "KILL", "BPT"):
        flow = "next" if guard or base == "BPT" else "end"
    return Instruction(
        opcode=opcode,
        operands=operands,
        kind=kind,
        flow=flow,
        targets=targets,
        labels=labels,
        work=_work(base, opcode, kind),
        tensor_level=_tensor_level(base) if kind == "tensor" else 0,
        dtype=_dtype(base, opcode) if kind == "tensor" else "",
        fetched_bytes=_fetched_bytes(base, opcode, operands),
        guard=guard,
    )


def called(instruction: Instruction) -> list[str]:
    """The functions that a call names; none where it goes through a pointer."""
    return _TARGET.findall(instruction.operands)


def _fetched_bytes(base: str, opcode: str, operands: str) -> int:
    """What wgmma reads from shared memory, as the share of one of its four warps. B always lies
    there, A where there are two descriptors."""
    shape = _SHAPE.search(opcode)
    if not base.endswith("GMMA") or shape is None:
        return 0
    m, n, k = map(int, shape.groups())
    size = 4 if ".TF32" in opcode else 1 if base[0] in "QI" else 2
    return (n * k + (m * k if operands.count("gdesc") > 1 else 0)) * size // 4


def _dtype(base: str, opcode: str) -> str:
    """What a tensor instruction multiplies; ``""`` where a descriptor says (tcgen05)."""
    if base.startswith("UTC"):
        return ""
    for letter, dtype in (("Q", "fp8"), ("I", "int8"), ("D", "fp64")):
        if base.startswith(letter):
            return dtype
    for spelling, dtype in ((".TF32", "tf32"), (".BF16", "bf16")):
        if spelling in opcode:
            return dtype
    return "fp16"


def _tensor_level(base: str) -> int:
    if base.startswith("UTC"):
        return 3
    return 2 if base.endswith("GMMA") else 1


def _work(base: str, opcode: str, kind: Class) -> int:
    modifiers = opcode.split(".")[1:]
    if kind == "tensor":
        return _tensor_flops(base, opcode, modifiers)
    if kind == "special":
        return _LANES
    if kind == "fma":
        return 2 * _LANES if base.endswith("2") and base[0] in "FH" else _LANES
    if kind in ("shared", "global", "local"):
        if base in ("LDSM", "STSM"):
            return 128 * max([int(one) for one in modifiers if one in ("2", "4")], default=1)
        if base in ("LDTM", "STTM", "LDGDEPBAR") or base.startswith(("UT", "UB", "CC")):
            return 0  # tensor memory, or asynchronous copies whose size stands in a descriptor
        width = next((_WIDTHS[one] for one in modifiers if one in _WIDTHS), 4)
        # A bank of shared memory hands out four bytes, wanted or not.
        return _LANES * (max(4, width) if kind == "shared" else width)
    return 0


def _tensor_flops(base: str, opcode: str, modifiers: list[str]) -> int:
    """Of one warp. Zero where the shape stands in a descriptor (tcgen05)."""
    shape = _SHAPE.search(opcode)
    if shape:
        m, n, k = map(int, shape.groups())
        return 2 * m * n * k // (4 if base.endswith("GMMA") else 1)  # a warpgroup is four warps
    for one in modifiers:
        if one in _SHORT_SHAPES:
            m, n, k = _SHORT_SHAPES[one]
            return 2 * m * n * k
    return 0


_SLOT = re.compile(r"\[R1(?:\.64)?(?:\+(?P<offset>-?0x[0-9a-f]+))?\]")


def spilled_bytes(program: Program) -> int:
    """Bytes of the stack that are written at fixed places and read back: registers that ran out.

    The stack frame itself also holds local arrays, which are indexed and no spill.
    """
    written: set[int] = set()
    read_back: set[int] = set()
    for one in program.instructions:
        if one.kind != "local":
            continue
        slot = _SLOT.search(one.operands)
        if slot:
            start = int(slot["offset"] or "0", 16)
            touched = range(start, start + one.work // _LANES)
            (written if one.opcode.startswith("STL") else read_back).update(touched)
    return len(written & read_back)
