"""Cubins that are disassembled together are read as each is by itself."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from kernels import matmul
from tests.hopper.recorded import backward
from tests.kernels.test_attention_scores_compiled import Everything
from warpwatch.config.package import CACHE_VARIABLE
from warpwatch.config.targets import get
from warpwatch.instruments.compiled.formats import elf
from warpwatch.instruments.compiled.machine_code import cubins, identity, sass, unwritten_registers
from warpwatch.instruments.compiled.record.call import record


def gradients(target: str) -> list[bytes]:
    """Kernels with constants and divisions, some of one name: those another test compiles too."""
    asked = Everything(
        group="test",
        dtype="bf16",
        B=2,
        S=512,
        H=8,
        D=128,
        causal=True,
        window=300,
        backward=True,
    )
    inputs = partial(asked.inputs, "cpu", values="none")
    launches = record(asked.call, get(target), inputs=inputs).launches
    return list(dict.fromkeys(one.kernel.binary for one in launches))


def product(target: str) -> bytes:
    """A kernel that compiles within a second."""

    def call() -> None:
        matmul(*(torch.empty((64, 64), dtype=torch.float16) for _ in "ab"))

    (one,) = record(call, get(target)).launches
    return one.kernel.binary


def started(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What the disassembler is given from now on; nothing is kept."""
    given: list[bytes] = []
    start = sass._disassembled

    def watched(cubin: bytes) -> str:
        given.append(cubin)
        return start(cubin)

    monkeypatch.delenv(CACHE_VARIABLE, raising=False)
    monkeypatch.setattr(sass, "_disassembled", watched)
    return given


@pytest.mark.sampled
@pytest.mark.parametrize("target", ["sm_90", "sm_80", "sm_100"])
def test_together_they_are_read_as_each_alone(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    binaries = gradients(target)
    assert len(binaries) > 4
    names = [name for binary in binaries for name, _ in elf.read(binary).sections]
    assert len(set(names)) < len(names), "some have one name"
    given = started(monkeypatch)
    together = sass.disassemble_all(binaries)
    assert len(given) == len(set(map(cubins.jumps_by_a_table, binaries)))
    for binary, text in zip(binaries, together, strict=True):
        ours, alone = sass.read(text), sass.read(sass.disassemble(binary))
        assert 16 * len(ours.instructions) == elf.read(binary).code_bytes
        assert identity.listing(ours) == identity.listing(alone)
        assert ours.loops == alone.loops
        assert unwritten_registers.advisories(ours) == unwritten_registers.advisories(alone)
        assert sass.spilled_bytes(ours) == sass.spilled_bytes(alone)


def test_what_cannot_be_one_file_is_read_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    old = gradients("sm_90")
    new = [product("sm_100")]
    assert cubins.groups([old[0], new[0], old[1]]) == [[0, 2], [1]]
    # Its warps jump by a table to what each is to do.
    launches = backward(64).launches
    names = [one.kernel.name for one in launches]
    place = names.index("attention_backward_hopper")
    alone, *others = cubins.groups([launches[place].kernel.binary, *(old[:2])])
    assert (alone, others) == ([0], [[1, 2]])
    # Nor what the disassembler does not take, or leaves something out of.
    given = started(monkeypatch)
    texts = [sass.disassemble(one) for one in old[:2]]
    whole = cubins.merged
    for broken in (lambda _: b"", lambda binaries: whole(binaries[:1])):
        given.clear()
        monkeypatch.setattr(cubins, "merged", broken)
        assert sass.disassemble_all(old[:2]) == texts
        assert given[1:] == old[:2]
