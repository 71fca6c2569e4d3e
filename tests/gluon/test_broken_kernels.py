"""Kernels that are broken in any way end in reports that name a line, never in a trace-back."""

from __future__ import annotations

import ast
import random
import sys
from collections.abc import Callable
from types import FunctionType
from typing import Any

import pytest
from triton.runtime.jit import JITFunction

from tests.gluon import cluster_kernels, reported_kernels
from warpwatch.simulator.session import interpreter
from warpwatch.simulator.session.check import check
from warpwatch.simulator.session.host import Card

# What an expression of a kernel may be by mistake.
MISTAKES = ("None", "-1", "3", "2.5", "'text'", "()", "[64]", "gl.float32", "gl", "no_such_name")
RUNS: tuple[tuple[Any, str, Callable[[], None], Card], ...] = (
    (reported_kernels, "ring _barriers _produce _consume",
     lambda: reported_kernels.run_ring("", 1), Card()),
    (reported_kernels, "copy _barriers", lambda: reported_kernels.run_copy("", 1), Card()),
    (reported_kernels, "staged_product _stage _use",
     lambda: reported_kernels.run_staged("", 1), Card()),
    (reported_kernels, "on_blackwell _tensor_core _drain",
     lambda: reported_kernels.run_on_blackwell("", 1), Card((10, 0))),
    (cluster_kernels, "shared_operand", lambda: cluster_kernels.run_shared_operand(""), Card()),
    (cluster_kernels, "product_of_two",
     lambda: cluster_kernels.run_product_of_two(""), Card((10, 0))),
)  # fmt: skip
DRAWN = 8  # mistakes for each of them


class Mistake(ast.NodeTransformer):
    """One thing of a function goes wrong: an argument, a statement or a name."""

    def __init__(self, chance: random.Random, number: int | None) -> None:
        self.chance, self.number, self.seen, self.what = chance, number, 0, ""

    def _here(self) -> bool:
        self.seen += 1
        return self.seen - 1 == self.number

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        for i in range(len(node.args)):
            if self._here():
                text = self.chance.choice(MISTAKES)
                self.what = f"{ast.unparse(node)} with {text} as argument {i}"
                node.args[i] = ast.parse(text, mode="eval").body
        for one in list(node.keywords):
            if self._here():
                text = self.chance.choice(MISTAKES)
                self.what = f"{ast.unparse(node)} with {one.arg}={text}"
                one.value = ast.parse(text, mode="eval").body
        if node.args and self._here():
            self.what = f"{ast.unparse(node)} without its last argument"
            node.args.pop()
        if self._here():
            self.what = f"{ast.unparse(node)} called twice over"
            return ast.copy_location(ast.Call(node, [], []), node)
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        self.generic_visit(node)
        if self._here():
            text = self.chance.choice(MISTAKES)
            self.what = f"{ast.unparse(node)} at {text}"
            node.slice = ast.parse(text, mode="eval").body
        return node


def drawn(plain: FunctionType, chance: random.Random) -> tuple[Any, str]:
    """The code of a function with a mistake, and what it is."""
    count = Mistake(chance, None)
    interpreter.compiled(plain, count.visit)
    mistake = Mistake(chance, chance.randrange(count.seen))
    return interpreter.compiled(plain, mistake.visit), mistake.what


@pytest.mark.parametrize("run", RUNS, ids=lambda one: one[1].split()[0])
def test_a_mistake_is_a_report_with_a_line(run: Any) -> None:
    module, names, call, card = run
    chance = random.Random(names)
    functions = [getattr(module, name).fn for name in names.split()]
    assert all(isinstance(getattr(module, name), JITFunction) for name in names.split())
    reports = 0
    for _ in range(DRAWN):
        plain = chance.choice(functions)
        interpreter.changed[plain], what = drawn(plain, chance)
        try:
            found = check(call, [0], card)
        finally:
            del interpreter.changed[plain]
        for one in found.reports:
            reports += 1
            said = "\n".join([what, *one.lines()])
            assert one.sites, said
            assert all(site.file == module.__file__ for _, site in one.sites), said
            assert "Traceback" not in said and "warpwatch" not in one.message, said
    assert reports > DRAWN // 2, (reports, sys.version)
