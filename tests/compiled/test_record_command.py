"""``warpwatch record``: an existing benchmark, unmodified, becomes workloads."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.root import ROOT
from warpwatch.config.arguments import TensorSpec, parse_arguments, written
from warpwatch.config.calls import calls_of

LIBRARY = """
import torch, triton
import triton.language as tl

@triton.jit
def scale(x, y, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + at, 2 * tl.load(x + at, mask=at < n), mask=at < n)

def launched(x):
    y = torch.empty_like(x)
    scale[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), B=256)
    return y

class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, eps=1e-6, offsets=None):
        return launched(x)

    @staticmethod
    def backward(ctx, gradient):
        return launched(gradient), None, None

class Layer(torch.nn.Module):
    def forward(self, x):
        return Doubled.apply(x, 1e-5)

@torch.compile(dynamic=False)
def gated(x, factor=2.0):
    return x * torch.sigmoid(x) * factor

class Gate(torch.nn.Module):
    def forward(self, x):
        return x * 2

def by_module(x):
    return torch.compile(Gate())(x)

def untouched(x):
    return x + 1

def summed(xs, offsets, mode="mean"):
    return launched(torch.cat(xs))
"""
BENCH = """
import sys
import torch, triton
from torch.utils.checkpoint import checkpoint
from benchedops import Layer, summed

def main():
    for size in (1024, 2048):
        x = torch.randn(size, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        assert x.device.type == "cuda" and torch.cuda.is_available()
        y = Layer()(x)
        print("ms", triton.testing.do_bench(lambda: y.sum().backward(retain_graph=True)))
        print("bytes", torch.cuda.max_memory_allocated())
    tall, wide = (torch.ones(*size, device="cuda", requires_grad=True) for size in ((8, 4), (4, 8)))
    (Layer()(tall).sum() + Layer()(wide).sum()).backward()
    # A rival that Inductor would compile, and a call that keeps the generator's state.
    assert torch.compile(lambda one: one + 1)(tall).shape == tall.shape
    checkpoint(Layer(), tall, use_reentrant=False).sum().backward()
    offsets = torch.tensor([0, 128, 512], dtype=torch.int32, device="cuda")
    summed([torch.zeros(8, device="cuda")] * 2, offsets, mode=sys.argv[1])

if __name__ == "__main__":
    main()
    raise RuntimeError("a suite may end so")
"""
COMPILED = """
import torch
from benchedops import by_module, gated, untouched

x = torch.ones(8, 4, device="cuda", dtype=torch.bfloat16)
gated(x, factor=3.0)
by_module(x)
untouched(x)
torch.compile(untouched)(x[:2])
"""
CASES = """
import pytest, torch
from benchedops import launched

@pytest.mark.parametrize("size", [64, 128])
def test_it(size):
    assert launched(torch.ones(size, device="cuda"))[0] == 2
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "benchedops").mkdir()
    (tmp_path / "benchedops" / "__init__.py").write_text(LIBRARY)
    (tmp_path / "bench.py").write_text(BENCH)
    (tmp_path / "test_cases.py").write_text(CASES)
    (tmp_path / "warpwatch.toml").write_text(
        '[package]\nname = "benchedops"\npath = "benchedops"\n'
        '[[workload]]\nname = "first"\ncall = "benchedops:launched"\nargs = "fp32[64]"\n'
    )
    return tmp_path


def record(folder: Path, *command: str) -> tuple[int, str, str]:
    environment = {k: v for k, v in os.environ.items() if k != "WARPWATCH_CONFIG"}
    done = subprocess.run(
        [sys.executable, "-m", "warpwatch", "record", *command],
        cwd=folder,
        env=environment | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    return done.returncode, done.stdout, done.stderr


def test_a_benchmark_becomes_workloads(project: Path) -> None:
    code, out, err = record(project, "--", "python", "bench.py", "sum")
    assert code == 0, err
    assert "the command ended with RuntimeError: a suite may end so" in err
    found = tomllib.loads(out)["workload"]
    calls, mistakes = calls_of(found)
    assert mistakes == []
    # The last two went forward one after the other, and then backward.
    given = ("bf16[1024,64]", "bf16[2048,64]", "fp32[8,4]", "fp32[4,8]")
    assert {(one.call, one.args, one.backward) for one in calls} == {
        ("benchedops:Doubled.apply", f"{first} 1e-05", backward)
        for first in given
        for backward in (False, True)
    } | {("benchedops:summed", "[fp32[8],fp32[8]] i32(0,128,512) mode=sum", False)}
    assert len({one.name for one in calls}) == 9


def test_functions_for_torch_compile_become_workloads(project: Path) -> None:
    (project / "compiled.py").write_text(COMPILED)
    code, out, err = record(project, "--", "python", "compiled.py")
    assert code == 0, err
    calls, mistakes = calls_of(tomllib.loads(out)["workload"])
    assert mistakes == []
    # Before it is given to torch.compile, a function of torch's operations launches nothing.
    assert [(one.call, one.args) for one in calls] == [
        ("benchedops:gated", "bf16[8,4] factor=3.0"),
        ("benchedops:by_module", "bf16[8,4]"),
        ("benchedops:untouched", "bf16[2,4]"),
    ]


def test_pytest_serves_as_well_and_what_is_there_is_not_written_twice(project: Path) -> None:
    code, _, err = record(project, "--write", "--", "pytest", "-q", "test_cases.py")
    assert code == 0, err
    text = (project / "warpwatch.toml").read_text()
    calls, mistakes = calls_of(tomllib.loads(text)["workload"])
    assert mistakes == []
    # The first is there already.
    assert [(one.name, one.args) for one in calls] == [
        ("first", "fp32[64]"),
        ("launched-fp32-128", "fp32[128]"),
    ]


def test_a_command_that_is_ended_leaves_its_calls(project: Path) -> None:
    """As ``--seconds`` ends it."""
    (project / "endless.py").write_text(
        "import os, signal, time, torch, benchedops\n"
        "benchedops.launched(torch.ones(256, device='cuda'))\n"
        "os.kill(os.getpid(), signal.SIGTERM)\n"
        "time.sleep(600)\n"
    )
    code, out, err = record(project, "--", "python", "endless.py")
    assert code == 0, err
    assert 'args = "fp32[256]"' in out
    assert "the command ended with its time was up" in err


def test_what_torch_calls_self_and_complex_numbers_are_arguments_as_any(project: Path) -> None:
    (project / "benchedops" / "__init__.py").write_text(
        LIBRARY
        + "def dotted(self, other):\n    return launched(torch.view_as_real(self))\n\n"
        + "class Kept:\n    def run(self, x):\n        return launched(x[0])\n"
    )
    (project / "operators.py").write_text(
        "import torch, benchedops\n"
        "one = torch.ones(8, dtype=torch.complex64, device='cuda')\n"
        "benchedops.dotted(one, one)\n"
        "benchedops.Kept().run([torch.ones(8, device='cuda')])\n"
    )
    code, out, err = record(project, "--", "python", "operators.py")
    assert code == 0, err
    calls, mistakes = calls_of(tomllib.loads(out)["workload"])
    assert mistakes == []
    assert [(one.call, one.args) for one in calls] == [
        ("benchedops:dotted", "complex64[8] complex64[8]"),
        ("benchedops:launched", "fp32[8]"),
    ]


def test_nothing_launched_is_said(project: Path) -> None:
    (project / "idle.py").write_text("import benchedops\n")
    code, out, err = record(project, "--", "python", "idle.py")
    assert (code, out) == (3, "")
    assert "0 calls of benchedops, 0 launches" in err
    assert record(project)[0] == 2


ARGUMENTS = [
    "bf16[4096,4096] fp32[]",
    "i64[4096]<32000",
    "i32(0,128,512) fp32(0.5,)",
    "bf16[64]~ bf16[64]",
    "[bf16[64],bf16[2,3]~] (1,2)",
    "x=[i8[4]]",
]


@pytest.mark.parametrize("text", ARGUMENTS)
def test_arguments_can_be_written_and_read(text: str) -> None:
    positional, keywords = parse_arguments(text)
    words = [written(one) for one in positional]
    words += [f"{name}={written(one)}" for name, one in keywords.items()]
    again = parse_arguments(" ".join(words))
    if "<" not in text:
        assert again == (positional, keywords)


@pytest.mark.parametrize("text", ["i32(1,,2)", "i32(007)"])
def test_numbers_that_python_cannot_read_are_one_line(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected numbers with commas between, such as i32"):
        parse_arguments(text)


def test_tensors_say_what_they_hold() -> None:
    (drawn, given, listed), _ = parse_arguments("i64[8]<100 i32(3,5) [bf16[2]~]")
    assert drawn == TensorSpec("int64", (8,), below=100)
    assert given == TensorSpec("int32", (2,), (3, 5))
    assert listed == [TensorSpec("bfloat16", (2,), gradient=False)]
    with pytest.raises(ValueError, match="only tensors of integers"):
        parse_arguments("bf16[8]<100")


def test_tensors_are_made_so() -> None:
    import torch

    from warpwatch.workload.tensors import made

    (drawn, given, listed), _ = parse_arguments("i64[800]<100 i32(3,5) [bf16[2]~,bf16[2]]")
    generator = torch.Generator().manual_seed(0)
    values = made(drawn, "cpu", generator=generator)
    assert 90 < int(values.max()) < 100 and int(values.min()) >= 0
    assert made(drawn, "cpu").sum() == 0
    assert made(given, "cpu").tolist() == [3, 5]
    assert [one.requires_grad for one in made(listed, "cpu", backward=True)] == [False, True]


def test_a_sweep_is_a_call_for_each_combination() -> None:
    table = {"name": "f", "call": "a:f", "args": "bf16[{M},{N}]", "sweep": {"M": [1, 2], "N": [8]}}
    calls, mistakes = calls_of([table])
    assert mistakes == []
    assert [(one.name, one.args) for one in calls] == [
        ("f-M1-N8", "bf16[1,8]"),
        ("f-M2-N8", "bf16[2,8]"),
    ]
    _, mistakes = calls_of([{**table, "args": "bf16[{M},8]"}])
    assert mistakes == ["[[workload]] 1 (f) sweep: args names no {N}"]
    _, mistakes = calls_of([{**table, "sweep": {"M": 3}}])
    assert "expected lists of values" in mistakes[0]
