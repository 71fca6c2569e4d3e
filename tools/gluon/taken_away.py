"""What can be taken away of Hopper's kernels: waits, releases, fences, turns, and what these depend
on, place by place."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any

from triton.runtime.interpreter import InterpretedFunction
from triton.runtime.jit import JITFunction

from tools.gluon.places import Places

TAKEN_AWAY = (
    "mbarrier.wait",
    "mbarrier.arrive",
    "mbarrier.expect",
    "fence_async_shared",
    "tma.store_wait",
    "async_copy.wait_group",
    "meet",
    "_turn",
    "_hand_back",
)
METHODS = ("wait", "release")
OF_GLUON = re.compile(r"kernels\.(device\.hopper_rings|\w+\.hopper\..+)")


class Change(Places, ast.NodeTransformer):
    """Takes something away of Hopper's kernels."""

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        call = node.value
        if isinstance(call, ast.Call):
            name = ast.unparse(call.func)
            method = isinstance(call.func, ast.Attribute) and call.func.attr in METHODS
            if name in TAKEN_AWAY or method:
                if self.is_it(node, f"no {ast.unparse(node)}"):
                    return ast.copy_location(ast.Pass(), node)
                node.value = self.marked(call)
        self.generic_visit(node)
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        if ast.unparse(node.value) == f"{ast.unparse(node.targets[0])}.next()":
            if self.is_it(node, f"no {ast.unparse(node)}"):
                return ast.copy_location(ast.Pass(), node)
            node.value = self.marked(node.value)
        self.generic_visit(node)
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        name = ast.unparse(node.func)
        if name.endswith(".acquire"):
            if self.is_it(node, f"no wait in {ast.unparse(node)}"):
                ring = node.func.value  # type: ignore[attr-defined]
                node.func = ast.Name("_unawaited", ast.Load())
                node.args.insert(0, ring)
            else:
                node.args[0] = self.marked(node.args[0])
        if name == "warpgroup_mma_wait":
            count = node.args[0]
            more: ast.expr = ast.BinOp(count, ast.Add(), ast.Constant(1))
            if isinstance(count, ast.Constant) and isinstance(count.value, int):
                more = ast.Constant(count.value + 1)
            if self.is_it(node, f"{ast.unparse(node)} of {ast.unparse(more)}"):
                node.args[0] = more
            else:
                node.args[0] = self.marked(count)
        if name in TAKEN_AWAY:
            for one in node.keywords:
                if one.arg == "pred" and self.is_it(node, f"{ast.unparse(node)} in any case"):
                    node.keywords.remove(one)
                elif one.arg == "pred":
                    one.value = self.marked(one.value)
        if name == "Cursor" and len(node.args) == 3:
            phase = ast.unparse(node.args[1])
            if phase in ("gl.to_tensor(0)", "gl.to_tensor(1)"):
                other = f"gl.to_tensor({1 - int(phase[-2])})"
                if self.is_it(node, f"{ast.unparse(node)} in phase {1 - int(phase[-2])}"):
                    node.args[1] = ast.parse(other, mode="eval").body
                else:
                    node.args[1] = self.marked(node.args[1])
        return node


@dataclass(frozen=True)
class Mutant:
    """``plain``, a function of a kernel, with ``what`` changed in ``line``: its ``number``-th
    place."""

    plain: FunctionType
    number: int
    line: int
    what: str
    code: CodeType

    def __str__(self) -> str:
        return f"{self.plain.__module__}:{self.line} {self.plain.__qualname__}: {self.what}"


def name_of(plain: FunctionType) -> str:
    return f"{plain.__module__}.{plain.__qualname__}"


def unawaited(ring: Any, at: Any, count: int) -> Any:
    """``Ring.acquire`` of a stage, be it empty or not."""
    from warpwatch.simulator.machine import engines

    ready = ring.full.index(at.stage)
    engines.expect(ready, count)
    return ready


def mutants_of(plain: FunctionType) -> Iterator[Mutant]:
    from warpwatch.simulator.session import interpreter

    for number in range(sys.maxsize):
        change = Change(name_of(plain), number)
        code = interpreter.compiled(plain, change.visit)
        if change.seen <= number:
            return
        yield Mutant(plain, number, change.line, change.what, code)


def functions() -> list[FunctionType]:
    """Of all kernels that have places to be changed."""
    from tests.gluon.interpreter import hopper_on_the_cpu

    with hopper_on_the_cpu():
        pass  # has imported them
    modules = [one for name, one in sys.modules.items() if OF_GLUON.fullmatch(name)]
    members = [member for module in modules for member in vars(module).values()]
    members += [
        member
        for one in members
        if getattr(one, "__triton_aggregate__", False)
        for member in vars(one).values()
    ]
    found = {
        member.fn for member in members if isinstance(member, JITFunction | InterpretedFunction)
    }
    ordered = sorted(found, key=lambda one: (one.__module__, one.__code__.co_firstlineno))
    return [one for one in ordered if next(mutants_of(one), None)]
