"""What the interpreter is worth: takes Hopper's kernels' synchronisation away, piece by piece.

    python -m tests.gluon.mutants [--only NAME ...] [--orders N]

Each mutant is one of the kernels without one of its waits, releases, fences or turns, or with a
phase the wrong way round. It is told if any of some calls ends in an error of the interpreter's or
in values that are far off. Prints those that nothing tells; 1 if there are any that are not known
to be harmless.
"""

from __future__ import annotations

import argparse
import ast
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any

TAKEN_AWAY = (
    "mbarrier.wait",
    "mbarrier.arrive",
    "fence_async_shared",
    "tma.store_wait",
    "meet",
    "_turn",
    "_hand_back",
)
METHODS = ("wait", "release")


@dataclass(frozen=True)
class Mutant:
    """``function`` of a kernel with ``what`` changed in ``line``."""

    function: str
    line: int
    what: str
    plain: FunctionType
    code: CodeType
    reached: CodeType  # raises where the change is

    def __str__(self) -> str:
        return f"{self.plain.__module__}:{self.line} {self.function}: {self.what}"


class ReachedError(Exception):
    """A change is in code that a call runs."""


def _mark() -> None:
    raise ReachedError("here")


MARK = ast.Expr(ast.parse("_mark()", mode="eval").body)
# Nothing tells these, since nothing is wrong with the kernel: something else says the same.
_START = "Cursor(gl.to_tensor(0), gl.to_tensor(1), work.STAGES)"
# By module, function and change: how many places, and why.
HARMLESS = {
    (
        "hopper_backward",
        "_produce",
        "Cursor(gl.to_tensor(0), gl.to_tensor(1), work.STAGES) in phase 0",
    ): (1, "stages are handed back by named barriers, which have no phase"),
    ("hopper_backward_kv", "_keys", "no memory.q.wait(at)"): (
        2,
        "the other warpgroup waited before it handed weights over",
    ),
    ("hopper_backward_q", "_consume", "no k_ring.wait(k_at)"): (
        1,
        "a block passed over is a program's first: its stage was never used",
    ),
    ("hopper_backward_short_kv", "_pass_over", "no memory.dout.wait(at)"): (
        1,
        "a stage of dO is handed back before that of Q is",
    ),
    ("hopper_forward", "_turn", "no meet(OPERATION, I_CONSUMER % CONSUMERS)"): (
        1,
        "turns are for speed alone",
    ),
    ("hopper_forward", "_consume", "no _turn('sync', 0, CONSUMERS)"): (
        1,
        "turns are for speed alone",
    ),
    ("hopper_forward", "_consume", "no k_ring.wait(k_at)"): (
        1,
        "of a block passed over; V of the block before was waited for",
    ),
    ("hopper_forward", "_consume", "no v_ring.wait(v_at)"): (
        1,
        "of a block passed over; K of the block behind is waited for",
    ),
}


class _Change(ast.NodeTransformer):
    """Changes the ``number``-th place that can be changed; counts them all."""

    def __init__(self, number: int, marks: bool) -> None:
        self.number, self.marks, self.seen = number, marks, 0
        self.what, self.line = "", 0

    def _is_it(self, node: ast.AST, what: str) -> bool:
        self.seen += 1
        if self.seen - 1 != self.number:
            return False
        self.what, self.line = what, node.lineno
        return True

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        call = node.value
        if isinstance(call, ast.Call):
            name = ast.unparse(call.func)
            method = isinstance(call.func, ast.Attribute) and call.func.attr in METHODS
            if (name in TAKEN_AWAY or method) and self._is_it(node, f"no {ast.unparse(node)}"):
                return ast.copy_location(MARK if self.marks else ast.Pass(), node)
        self.generic_visit(node)
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if ast.unparse(node.func) == "warpgroup_mma_wait" and isinstance(
            node.args[0], ast.Constant
        ):
            more = node.args[0].value + 1
            if self._is_it(node, f"{ast.unparse(node)} of {more}"):
                node.args[0] = MARK.value if self.marks else ast.Constant(more)
        if ast.unparse(node.func) == "Cursor" and len(node.args) == 3:
            phase = ast.unparse(node.args[1])
            if phase in ("gl.to_tensor(0)", "gl.to_tensor(1)"):
                other = f"gl.to_tensor({1 - int(phase[-2])})"
                if self._is_it(node, f"{ast.unparse(node)} in phase {1 - int(phase[-2])}"):
                    changed = ast.parse(other, mode="eval").body
                    node.args[1] = MARK.value if self.marks else changed
        return node


def mutants_of(plain: FunctionType) -> Iterator[Mutant]:
    from tests.gluon import interpreter

    number = 0
    while True:
        changes = [_Change(number, marks) for marks in (False, True)]
        codes = [interpreter.compiled(plain, change.visit) for change in changes]
        if changes[0].seen <= number:
            return
        yield Mutant(plain.__qualname__, changes[0].line, changes[0].what, plain, *codes)
        number += 1


@dataclass(frozen=True)
class Call:
    """Something to compute, its kernels interpreted: the largest relative error of its results."""

    name: str
    run: Callable[[], float]
    multiprocessors: int = 2


def _far(found: Any, truth: Any) -> float:
    truth = truth.detach()
    far = (found.detach().double() - truth).norm() / truth.norm()
    return float(far) if bool(far == far) else float("inf")


def calls() -> list[Call]:
    import torch

    from kernels import flash_attention, flash_attention_varlen, matmul

    def drawn(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
        return torch.randn(shape).to(dtype)

    def attended(q: Any, k: Any, v: Any, causal: bool, window: int = -1) -> Any:
        q, k, v = (x.double().transpose(-3, -2) for x in (q, k, v))
        k, v = (x.repeat_interleave(q.shape[-3] // k.shape[-3], -3) for x in (k, v))
        scores = q @ k.mT * q.shape[-1] ** -0.5
        rows = torch.arange(scores.shape[-2])[:, None] + scores.shape[-1] - scores.shape[-2]
        columns = torch.arange(scores.shape[-1])
        if causal:
            scores = scores.masked_fill(columns > rows, float("-inf"))
        if window >= 0:
            scores = scores.masked_fill(columns < rows - window, float("-inf"))
        return (scores.softmax(-1) @ v).transpose(-3, -2)

    def attention(S: int, D: int, causal: bool, window: int = -1, grad: bool = True) -> float:
        q, dout = drawn(1, S, 4, D), drawn(1, S, 4, D)
        k, v = drawn(1, S + 40, 2, D), drawn(1, S + 40, 2, D)
        inputs = [x.requires_grad_(grad) for x in (q, k, v)]
        out = flash_attention(*inputs, causal=causal, window_size=(window, -1))
        truth = attended(*inputs, causal, window)
        far = [_far(out, truth)]
        if grad:
            found = torch.autograd.grad(out, inputs, dout)
            true = torch.autograd.grad(truth, inputs, dout.double())
            far += [_far(a, b.double()) for a, b in zip(found, true, strict=True)]
        return max(far)

    def packed(D: int, causal: bool) -> float:
        lengths = (150, 1, 0, 333)
        ends = torch.tensor([0, *torch.tensor(lengths).cumsum(0)], dtype=torch.int32)
        q, dout = drawn(sum(lengths), 4, D), drawn(sum(lengths), 4, D)
        k, v = drawn(sum(lengths), 2, D), drawn(sum(lengths), 2, D)
        inputs = [x.requires_grad_() for x in (q, k, v)]
        out = flash_attention_varlen(*inputs, ends, ends, 333, 333, causal=causal)
        parts = zip(*(x.split(lengths) for x in inputs), strict=True)
        truth = torch.cat([attended(*part, causal) for part in parts])
        found = torch.autograd.grad(out, inputs, dout)
        true = torch.autograd.grad(truth, inputs, dout.double())
        far = [_far(a, b.double()) for a, b in zip(found, true, strict=True)]
        return max(_far(out, truth), *far)

    def in_fp8(S: int, D: int, causal: bool) -> float:
        q = drawn(1, S, 4, D, dtype=torch.float8_e4m3fn)
        k, v = (drawn(1, S, 2, D, dtype=q.dtype) for _ in range(2))
        out = flash_attention(q, k, v, causal=causal, out_dtype=torch.bfloat16)
        return _far(out, attended(q, k, v, causal)) / 10  # weights in fp8 are off by 3 %

    def product(M: int, N: int, K: int, layout: str = "nn", **named: Any) -> float:
        dtype = named.pop("dtype", torch.bfloat16)
        a = drawn(K, M, dtype=dtype).t() if layout[0] == "t" else drawn(M, K, dtype=dtype)
        b = drawn(N, K, dtype=dtype).t() if layout[1] == "t" else drawn(K, N, dtype=dtype)
        truth = a.double() @ b.double()
        residual = named.get("residual")
        if residual is not None:
            truth = truth + residual.double()
        return _far(matmul(a, b, **named), truth)

    fp8 = {"dtype": torch.float8_e4m3fn, "layout": "nt", "out_dtype": torch.bfloat16}
    ones = {"a_scale": torch.ones(300, 4), "b_scale": torch.ones(4, 3)}
    return [
        Call("forward D64", lambda: attention(700, 64, False, grad=False)),
        Call("forward one tile", lambda: attention(200, 64, False, grad=False), 8),
        Call("forward causal D64", lambda: attention(2100, 64, True, grad=False)),
        Call("forward D96", lambda: attention(300, 96, True, grad=False)),
        Call("forward D128", lambda: attention(1100, 128, False, grad=False)),
        Call("forward D256", lambda: attention(400, 256, True, grad=False)),
        Call("forward window", lambda: attention(900, 128, True, 300, grad=False)),
        Call("backward D64", lambda: attention(300, 64, True)),
        Call("backward D128", lambda: attention(520, 128, True)),
        Call("backward D128 full", lambda: attention(520, 128, False)),
        Call("backward D128 long", lambda: attention(1100, 128, False)),
        Call("backward window", lambda: attention(700, 128, True, 300)),
        Call("backward D192", lambda: attention(200, 192, True)),
        Call("backward D256", lambda: attention(200, 256, False)),
        Call("backward window D192", lambda: attention(300, 192, True, 100)),
        Call("packed D128", lambda: packed(128, True)),
        Call("packed D64", lambda: packed(64, False)),
        Call("fp8 D128", lambda: in_fp8(500, 128, True)),
        Call("fp8 D64", lambda: in_fp8(300, 64, False)),
        Call("fp8 D64 causal", lambda: in_fp8(2100, 64, True)),
        Call("fp8 D256", lambda: in_fp8(700, 256, True)),
        Call("product", lambda: product(600, 520, 400)),
        Call("product tn", lambda: product(600, 520, 400, "tn")),
        Call("product nt", lambda: product(600, 520, 400, "nt")),
        Call("product, residual", lambda: product(600, 520, 400, residual=drawn(600, 520))),
        Call("product, one tile", lambda: product(100, 72, 1000)),
        Call("product, few rows", lambda: product(8, 512, 1024)),
        Call("product, split", lambda: product(64, 64, 8192)),
        Call("product, lines", lambda: product(600, 515, 333)),
        Call("product, tf32", lambda: product(600, 512, 512, dtype=torch.float32, allow_tf32=True)),
        Call("product, fp8", lambda: product(300, 300, 512, **fp8)),
        Call("product, fp8 blocks", lambda: product(300, 300, 512, **fp8, **ones)),
        Call("product, fp8 few rows", lambda: product(8, 256, 512, **fp8)),
    ]


FAR = 0.01  # no result in bf16 is off by as much


def outcome(call: Call, seed: int) -> tuple[str, set[FunctionType]]:
    """What is told of a call, nothing where all is well, and the functions that ran."""
    import torch

    from tests.gluon import interpreter

    torch.manual_seed(seed)
    interpreter.called.clear()
    told = ""
    try:
        with interpreter.hopper_on_the_cpu(call.multiprocessors, seed):
            far = call.run()
        if not far < FAR:
            told = f"off by {far:.2g}"
    except Exception as error:
        told = f"{type(error).__name__}: {str(error).splitlines()[0][:120]}"
    return told, set(interpreter.called)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.gluon.mutants")
    parser.add_argument("--only", nargs="+", default=[], help="kernels' modules, by their ends")
    parser.add_argument("--orders", type=int, default=3, help="seeds of each call")
    given = parser.parse_args(arguments)
    from tests.gluon import interpreter

    interpreter.beside["_mark"] = _mark
    reaches: dict[FunctionType, list[tuple[Call, float]]] = {}
    for call in calls():
        begun = time.perf_counter()
        told, functions = outcome(call, 0)
        took = time.perf_counter() - begun
        print(f"{call.name}: {took:.1f} s, {told or 'well'}", flush=True)
        if told:
            return 2
        for one in functions:
            reaches.setdefault(one, []).append((call, took))
    harmless: Counter[tuple[str, str, str]] = Counter()
    counts = dict.fromkeys(("told", "harmless", "not reached", "NOT TOLD"), 0)
    for plain in sorted(reaches, key=lambda one: (one.__module__, one.__code__.co_firstlineno)):
        if given.only and not plain.__module__.endswith(tuple(given.only)):
            continue
        for mutant in mutants_of(plain):
            found = ""
            told_by = sorted(reaches[plain], key=lambda one: one[1])
            for call, _ in told_by:
                interpreter.changed[plain] = mutant.reached
                if not outcome(call, 0)[0].startswith("ReachedError"):
                    continue
                found = found or "NOT TOLD"
                interpreter.changed[plain] = mutant.code
                for seed in range(given.orders):
                    told, _ = outcome(call, seed)
                    found = told if told and found == "NOT TOLD" else found
                    if told:
                        break
                if found != "NOT TOLD":
                    break
            del interpreter.changed[plain]
            key = (plain.__module__.rsplit(".", 1)[-1], plain.__name__, mutant.what)
            count, known = HARMLESS.get(key, (0, ""))
            if not found:
                kind = found = "not reached"
            elif found != "NOT TOLD":
                kind = "told"
            elif harmless[key] < count:
                kind, found = "harmless", f"harmless: {known}"
                harmless[key] += 1
            else:
                kind = "NOT TOLD"
            counts[kind] += 1
            print(f"{mutant}: {found}", flush=True)
    print(", ".join(f"{count} {kind}" for kind, count in counts.items()))
    stale = [key for key, (count, _) in HARMLESS.items() if harmless[key] != count]
    if stale and not given.only:
        print(f"told, or gone, of those that HARMLESS names: {stale}")
    return 1 if counts["NOT TOLD"] or counts["not reached"] or (stale and not given.only) else 0


if __name__ == "__main__":
    if os.environ.get("TRITON_INTERPRET") != "1":
        # Triton reads it when it is imported.
        os.environ["TRITON_INTERPRET"] = "1"
        os.execv(sys.executable, [sys.executable, "-m", "tests.gluon.mutants", *sys.argv[1:]])
    import torch

    from tests.kernels.mended import mend_interpreter

    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    mend_interpreter()
    raise SystemExit(main(sys.argv[1:]))
