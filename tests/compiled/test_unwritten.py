"""Registers that machine code reads though nothing wrote them: found, and nothing else."""

from __future__ import annotations

import lzma
from pathlib import Path

import pytest

from warpwatch.instruments.compiled.machine_code import sass, unwritten_registers

SAMPLES = Path(__file__).parent / "samples"

# As ptxas 12.8 compiled attention of 128 columns of keys and 32 of values for sm_90: of the second
# product's descriptors the first half of UR40 to UR43 is written, the rest starts from itself.
BROKEN = """
        /*2b10*/                   USHF.R.U32.HI UR48, URZ, 0x4, UR53 ;
        /*2b50*/                   UIADD3 UR42, UP0, UR42, 0x40, URZ ;
        /*2bc0*/                   UIADD3.X UR43, UR43, -0x7fffffe0, URZ, UP0, !UPT ;
        /*4b40*/                   HGMMA.64x32x16.F32 R56, R28, gdesc[UR40].tnspB, R56 ;
"""
LOOP = """
.L_x_0:
        /*0020*/                   UIADD3 UR6, UR4, 0x1, URZ ;
        /*0030*/                   UMOV UR4, 0x2 ;
        /*0040*/               @P0 BRA `(.L_x_0) ;
        /*0050*/                   EXIT ;
"""


def code(text: str, *before: str) -> str:
    """With UR53 written, and ``before`` ahead."""
    first = ("S2UR UR53, SR_CgaCtaId", *before)
    return "".join(f"        /*{i:04x}*/ {one} ;\n" for i, one in enumerate(first)) + text


@pytest.mark.parametrize(
    ("text", "found"),
    [
        pytest.param(code(BROKEN), ["UR42", "UR43"], id="as-ptxas-did"),
        pytest.param(code(BROKEN, "ULDC.64 UR42, c[0x0][0x210]"), [], id="a-pair-at-once"),
        pytest.param(code(BROKEN, "UMOV UR42, UR53"), ["UR43"], id="half-a-pair"),
        pytest.param(code(BROKEN, "@UP0 UMOV UR42, URZ", "R2UR UR43, R3"), [], id="conditional"),
        pytest.param(code(BROKEN, "CALL.REL.NOINC `(f)"), [], id="a-call-writes-anything"),
        pytest.param(
            code(BROKEN, "MOV.SPILL R7, UR42", "R2UR.FILL UR42, R7"), ["UR43"], id="put-aside"
        ),
        pytest.param(code(LOOP), ["UR4"], id="written-behind-its-first-read"),
        pytest.param(code(LOOP, "UMOV UR4, URZ"), [], id="written-ahead-of-the-loop"),
        pytest.param(
            code("  /*0010*/  HGMMA.64x64x16.F32 R24, gdesc[UR8], R24 ;\n", "UMOV UR8, URZ"),
            ["UR9", "UR10", "UR11"],
            id="both-descriptors-of-a-product",
        ),
        pytest.param(
            code(
                "  /*0010*/  BRA `(.L_x_1) ;\n  /*0020*/  UMOV UR4, URZ ;\n.L_x_1:\n"
                "  /*0030*/  STG.E desc[UR4][R2.64], R5 ;\n",
                "UMOV UR5, URZ",
            ),
            ["UR4"],
            id="what-is-jumped-over-writes-nothing",
        ),
    ],
)
def test_reads_of_what_nothing_wrote(text: str, found: list[str]) -> None:
    program = sass.read(text)
    assert [one.split(" in ")[0] for one in unwritten_registers.uniform_registers(program)] == found
    told = unwritten_registers.advisories(program)
    assert len(told) == bool(found)
    for sentence in told:
        assert f"reads {found[0]} in " in sentence and "results are wrong" in sentence


def test_samples_of_right_kernels_have_none() -> None:
    paths = sorted(SAMPLES.glob("*.sass.xz"))
    assert len(paths) >= 4
    for path in paths:
        text = lzma.decompress(path.read_bytes()).decode()
        assert unwritten_registers.advisories(sass.read(text)) == (), path.name
