"""What is read of compute-sanitizer's logs, whose hazards are whose, and what a run of paths tells.

The logs are an H200's; the code is cut from a kernel of gradients, whose places became those of
what is left.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from triton import knobs

from tools.kernels import each_path_once, sanitized_paths, sanitizer_log
from tools.kernels.sanitized_paths import Attempt, Row
from tools.kernels.sanitizer_log import Access, Hazard
from warpwatch.instruments.compiled.machine_code import sass

NAME, FILE = "attention_backward_hopper", "hopper_backward.py"
RACES = f"""\
========= COMPUTE-SANITIZER
========= Error: Race reported between Read access at {NAME}+0x10 in {FILE}:257
=========     and Write access at {NAME}+0xa0 in {FILE}:257 [51 hazards]
=========     and Write access at {NAME}+0x110 in {FILE}:334 [51 hazards]
=========
========= Error: Race reported between Read access at {NAME}+0x40 in {FILE}:257
=========     and Write access at {NAME}+0x90 in {FILE}:257 [32 hazards]
=========
========= RACECHECK SUMMARY: 3 hazards displayed (3 errors, 0 warnings)
"""
BROKEN = """\
========= COMPUTE-SANITIZER
========= Internal Sanitizer Error: The Sanitizer failed to handle a hardware exception.
=========
========= Error: process didn't terminate successfully
========= Target application returned an error
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""
ALONE = """\
========= COMPUTE-SANITIZER
========= Error: No attachable process found. compute-sanitizer timed-out.
========= Default timeout can be adjusted with --launch-timeout. Awaiting target completion.
"""
CLEAN = """\
========= COMPUTE-SANITIZER
========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)
"""
OUTSIDE = """\
========= COMPUTE-SANITIZER
========= Invalid __global__ read of size 4 bytes
=========     at matmul_kernel+0x1a0 in matmul.py:90
=========     by thread (0,0,0) in block (1,0,0)
=========
========= ERROR SUMMARY: 1 error
"""
# Waiting warps load their state and what is handed over; then a line of ours; the first warps store
# both, a line of ours again, and at the end the state once more.
CODE = """\
        /*0000*/                   BAR.SYNC.DEFER_BLOCKING 0x1 ;
        /*0010*/                   LDS.U8 R0, [R0+UR4+0x28d38] ;
        /*0020*/               @P0 BAR.SYNC.DEFER_BLOCKING 0x1 ;
        /*0030*/                   BRX R2 -0x180 ;
        /*0040*/                   LDS.128 R4, [UR8+0x28c00] ;
        /*0050*/                   BAR.SYNC.DEFER_BLOCKING 0x1 ;
        /*0060*/                   LDS.64 R10, [R5+UR36+0x28c00] ;
        /*0070*/                   BAR.SYNC.DEFER_BLOCKING 0x2, 0x80 ;
        /*0080*/                   BAR.SYNC.DEFER_BLOCKING 0x1 ;
        /*0090*/                   STS.64 [UR5+0x28c00], R10 ;
        /*00a0*/                   STS [UR5+0x28d40], R0 ;
        /*00b0*/                   BAR.SYNC.DEFER_BLOCKING 0x1 ;
        /*00c0*/                   BAR.SYNC.DEFER_BLOCKING 0x1 ;
        /*00d0*/                   BAR.SYNC.DEFER_BLOCKING 0x0, 0x80 ;
        /*00e0*/                   STS.64 [R5+UR36+0x28c00], R10 ;
        /*00f0*/                   BAR.SYNC.DEFER_BLOCKING 0x0, 0x80 ;
        /*0100*/                   BAR.SYNC.DEFER_BLOCKING 0x1 ;
        /*0110*/                   STS [UR4+0x28d40], R0 ;
        /*0120*/                   BAR.SYNC.DEFER_BLOCKING 0x1 ;
"""
PROGRAM = sass.read(CODE)


def made(log: str, printed: str = "  1.0 s  matmul: ok\n", **more) -> Attempt:
    return Attempt(log, printed, **{"loaded": "", "ended": True, **more})


def test_a_log_has_each_pair_and_where_it_is() -> None:
    log = sanitizer_log.read(RACES)
    assert [one.count for one in log.hazards] == [51, 51, 32]
    assert str(log.hazards[1].first) == f"Read {NAME}+0x10 hopper_backward.py:257"
    assert log.hazards[1].second == Access("Write", NAME, 0x110, "hopper_backward.py:334")
    assert (log.summary, log.broken, log.errors) == (3, False, ())
    assert sanitizer_log.read(BROKEN).broken
    assert sanitizer_log.read(OUTSIDE).errors == ("Invalid __global__ read of size 4 bytes",)
    assert sanitizer_log.read(RACES.rpartition("========= RACE")[0]).summary is None


def test_names_with_templates_are_read() -> None:
    (hazard,) = sanitizer_log.read(
        "========= Warning: Race reported between Write access at void cub::scan<int, (int)2>(T1 *)"
        "+0x1c0\n=========     and Read access at void cub::scan<int, (int)2>(T1 *)+0xa40\n"
    ).hazards
    assert hazard.first == Access("Write", "void cub::scan<int, (int)2>(T1 *)", 0x1C0)
    assert (hazard.second.kind, hazard.count) == ("Read", 1)


@pytest.mark.parametrize(
    ("read", "write", "whose"),
    [
        pytest.param(0x10, 0xA0, "hand-over", id="state"),
        pytest.param(0x10, 0x110, "hand-over", id="state-at-the-end"),
        pytest.param(0x40, 0x90, "hand-over", id="what-is-handed-over"),
        pytest.param(0x10, 0x90, "ours", id="elsewhere"),
        pytest.param(0x60, 0x90, "ours", id="loaded-by-our-line"),
        pytest.param(0x40, 0xE0, "ours", id="stored-before-our-barrier"),
        pytest.param(0x50, 0x90, "ours", id="no-load"),
        pytest.param(0x40, 0x1000, "ours", id="outside-of-the-code"),
    ],
)
def test_whose_hazard_it_is(read: int, write: int, whose: str) -> None:
    pair = Hazard(Access("Read", NAME, read), Access("Write", NAME, write))
    turned = Hazard(pair.second, pair.first)
    for one in (pair, turned):
        assert sanitizer_log.owner(one, lambda name: [PROGRAM]) == whose
    assert sanitizer_log.owner(pair, lambda name: []) == "library"


def test_two_stores_are_ours() -> None:
    pair = Hazard(Access("Write", NAME, 0xA0), Access("Write", NAME, 0x110))
    assert sanitizer_log.owner(pair, lambda name: [PROGRAM]) == "ours"


@pytest.fixture
def loaded(monkeypatch, tmp_path: Path) -> str:
    monkeypatch.setattr(sanitized_paths, "program", lambda cubin: PROGRAM)
    cubin = tmp_path / "one.cubin"
    cubin.touch()
    return f"{NAME}\t{cubin}\n{NAME}\t{tmp_path}/cut-o"


@pytest.mark.parametrize(
    ("attempt", "verdict"),
    [
        pytest.param(made(CLEAN), "clean", id="clean"),
        pytest.param(made(RACES), "library", id="library"),
        pytest.param(made(OUTSIDE), "FOUND", id="outside"),
        pytest.param(made(BROKEN, "terminate called"), "tool failed", id="broken"),
        pytest.param(made(ALONE), "tool failed", id="ran-without-the-tool"),
        pytest.param(made(CLEAN, "  1.0 s  matmul: FAILED out: 3.1\n"), "WRONG", id="wrong"),
        pytest.param(made(CLEAN, "ImportError"), "WRONG", id="no-answer"),
        pytest.param(made("", "", ended=False), "cut off", id="cut-off"),
    ],
)
def test_verdict_of_a_path(attempt: Attempt, verdict: str) -> None:
    assert sanitized_paths.judge(1, attempt, "named", 1.0).verdict == verdict


def test_what_is_wrong_with_a_path_is_told_as_it_ends() -> None:
    wrong = made(CLEAN, "  1.0 s  matmul: FAILED out: 3.1\n")
    row = sanitized_paths.judge(7, wrong, "all", 48.0)
    assert sanitized_paths.progress(row) == "7 WRONG all 48 s; out: 3.1"
    assert sanitized_paths.progress(Row(7, "library", "all", 48.0, ("a hazard",))).endswith("48 s")


def test_verdict_of_hazards(loaded: str) -> None:
    row = sanitized_paths.judge(1, made(RACES, loaded=loaded), "named", 1.0)
    assert (row.verdict, row.owners) == ("hand-over", (("hand-over", 134),))
    ours = RACES.replace("+0xa0 ", "+0xe0 ")
    row = sanitized_paths.judge(1, made(ours, loaded=loaded, ended=False), "named", 1.0)
    assert row.verdict == "FOUND"  # also of a run that was cut off
    assert dict(row.owners) == {"hand-over": 83, "ours": 51}
    assert row.details == (
        f"ours: Read {NAME}+0x10 {FILE}:257 and Write {NAME}+0xe0 {FILE}:257",
        f"hand-over: {NAME}: Read {FILE}:257 and Write {FILE}:334",
        f"hand-over: {NAME}: Read {FILE}:257 and Write {FILE}:257",
    )


def test_what_triton_loads_is_named_with_its_cubin(tmp_path: Path) -> None:
    hooks = knobs.runtime.kernel_load_end_hook
    before = list(hooks.calls)
    each_path_once.keep_loaded(tmp_path / "loaded")
    try:
        hooks(None, None, NAME, {f"{NAME}.ptx": "/kept/one.ptx", f"{NAME}.cubin": "/kept/one"}, "k")
    finally:
        hooks.calls[:] = before
    assert (tmp_path / "loaded").read_text() == f"{NAME}\t/kept/one\n"


@pytest.mark.parametrize(
    ("verdicts", "code"),
    [
        (("clean", "hand-over", "library"), 0),
        (("clean", "FOUND", "not run"), 1),
        (("WRONG",), 1),
        (("clean", "not run"), 3),
        (("tool failed",), 3),
        ((), 3),
    ],
)
def test_exit_code(verdicts: tuple[str, ...], code: int) -> None:
    assert sanitized_paths.exit_code([Row(1, one) for one in verdicts]) == code


def test_hoppers_paths_come_first_and_operators_in_turn() -> None:
    paths = each_path_once.paths()
    order = sanitized_paths.in_order(paths, True, True)
    assert sorted(order) == list(range(1, len(paths) + 1))
    portable = [paths[i - 1].portable for i in order]
    assert portable == sorted(portable)
    operators = [paths[i - 1].operator for i in order[:4]]
    assert len(set(operators)) == 4
    assert sanitized_paths.in_order(paths, False, True) == order[portable.index(True) :]


TOOL = """#!{python}
import os, sys
asked = dict(zip(sys.argv[1:], sys.argv[2:]))
path, named = int(asked["--only"]), any("kns=nvjet" in one for one in sys.argv)
log = {broken!r} if path == 2 and named else {clean!r}
open(asked["--log-file"], "w").write(log)
print("  1.0 s  it: ok on", os.environ["CUDA_VISIBLE_DEVICES"])
sys.exit(9 if log == {broken!r} else 0)
"""


def test_paths_run_on_every_device_and_again_where_the_tool_failed(
    monkeypatch, tmp_path: Path, capsys
) -> None:
    tool = tmp_path / "compute-sanitizer"
    tool.write_text(TOOL.format(python=sys.executable, broken=BROKEN, clean=CLEAN))
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sanitized_paths, "find_devices", lambda: ["0", "1"])
    three = each_path_once.paths()[:3]
    monkeypatch.setattr(each_path_once, "paths", lambda: three)
    logs = tmp_path / "logs"
    asked = ["--tool", "racecheck", "--jobs", "2", "--logs", str(logs)]
    assert sanitized_paths.main(asked) == 0
    told = capsys.readouterr().out.splitlines()
    assert [line.split()[:3] for line in told[:3]] == [
        ["1", "clean", "named"],
        ["2", "clean", "all"],
        ["3", "clean", "named"],
    ]
    assert told[-1] == "3 paths: 3 clean"
    on = {(logs / f"{i}-named" / "printed").read_text().split()[-1] for i in (1, 2, 3)}
    assert on == {"0", "1"}
    assert sanitized_paths.main([*asked, "--seconds", "0"]) == 3
    assert capsys.readouterr().out.splitlines()[-1] == "3 paths: 3 not run"


def test_without_the_tool_or_a_gpu_it_says_so(monkeypatch, tmp_path: Path, capsys) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sanitized_paths, "PLACES", ())
    assert sanitized_paths.main(["--tool", "memcheck"]) == 2
    assert "expected compute-sanitizer on PATH" in capsys.readouterr().err
    monkeypatch.setattr(sanitized_paths, "find_tool", lambda: "compute-sanitizer")
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    assert sanitized_paths.main(["--tool", "memcheck"]) == 2
    assert "expected an NVIDIA GPU, found none" in capsys.readouterr().err
