"""Plants faults in a kernel: takes a wait, a fence or a signal away, or turns a phase round."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any

WAIT, FENCE, SIGNAL, PHASE = "no wait", "no fence", "no signal", "wrong phase"
KINDS = (WAIT, FENCE, SIGNAL, PHASE)
TAKEN_AWAY = {
    "mbarrier.wait": WAIT,
    "store_wait": WAIT,
    "cluster.wait": WAIT,
    "wait_group": WAIT,
    "sync_cluster_init": WAIT,
    "fence_async_shared": FENCE,
    "mbarrier.arrive": SIGNAL,
    "mbarrier.expect": SIGNAL,
    "tcgen05_commit": SIGNAL,
}


def _word(call: ast.Call) -> str:
    """The name of what is called, with its module's."""
    return ".".join(ast.unparse(call.func).split(".")[-2:])


def _kind(call: ast.Call) -> str:
    word = _word(call)
    return TAKEN_AWAY.get(word) or TAKEN_AWAY.get(word.rpartition(".")[2], "")


class Plant(ast.NodeTransformer):
    """Plants the fault at the ``number``-th place, or has all places say that they are reached."""

    def __init__(self, name: str, number: int | None) -> None:
        self.name, self.number, self.seen = name, number, 0
        self.kind, self.what, self.line = "", "", 0

    def _is_it(self, node: ast.AST, kind: str, what: str) -> bool:
        self.seen += 1
        if self.seen - 1 != self.number:
            return False
        self.kind, self.what, self.line = kind, what, getattr(node, "lineno", 0)
        return True

    def _marked(self, value: ast.expr) -> ast.expr:
        if self.number is not None:
            return value
        call = ast.parse(f"_reached({self.name!r}, {self.seen - 1})", mode="eval").body
        assert isinstance(call, ast.Call)
        call.args.append(value)
        return call

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        """A statement that is a call."""
        call = node.value
        if isinstance(call, ast.Call) and (kind := _kind(call)):
            text = ast.unparse(call)
            if self._is_it(node, kind, f"no {text}"):
                return ast.copy_location(ast.Pass(), node)
            whole = self._marked(call)
            if _word(call) == "mbarrier.wait":
                self._other_phase(call, text)
            node.value = whole
            return node
        self.generic_visit(node)
        return node

    def _other_phase(self, call: ast.Call, text: str) -> None:
        phase = next((one for one in call.keywords if one.arg == "phase"), None)
        given = phase.value if phase is not None else call.args[1]
        other: ast.expr = ast.BinOp(given, ast.BitXor(), ast.Constant(1))
        if not self._is_it(call, PHASE, f"{text} in the other phase"):
            other = self._marked(given)
        if phase is not None:
            phase.value = other
        else:
            call.args[1] = other

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """A wait for products, whose values are used."""
        self.generic_visit(node)
        if _word(node).endswith("warpgroup_mma_wait"):
            count = next((one for one in node.keywords if one.arg == "num_outstanding"), None)
            given = count.value if count is not None else node.args[0]
            more: ast.expr = ast.BinOp(given, ast.Add(), ast.Constant(1))
            if not self._is_it(node, WAIT, f"{ast.unparse(node)} for one fewer"):
                more = self._marked(given)
            if count is not None:
                count.value = more
            else:
                node.args[0] = more
        return node


@dataclass(frozen=True)
class Planted:
    """``plain``, a function of a kernel, with a fault of a ``kind`` in it."""

    plain: FunctionType
    number: int
    kind: str
    line: int
    what: str
    code: CodeType

    @property
    def place(self) -> tuple[str, int]:
        """What ``reached`` calls it."""
        return (name_of(self.plain), self.number)


def name_of(plain: FunctionType) -> str:
    """The name of a function, with the line where it begins."""
    return f"{plain.__code__.co_filename}:{plain.__code__.co_firstlineno}"


def planted_in(plain: FunctionType) -> Iterator[Planted]:
    """Every fault that a function has a place for.

    Args:
        plain: The function.

    Yields:
        The faults, in the order of their places.
    """
    from warpwatch.simulator.session import interpreter

    for number in range(sys.maxsize):
        plant = Plant(name_of(plain), number)
        code = interpreter.compiled(plain, plant.visit)
        if plant.seen <= number:
            return
        yield Planted(plain, number, plant.kind, plant.line, plant.what, code)


def watched(plain: FunctionType) -> CodeType:
    """The code of a function whose places say that they are reached.

    Args:
        plain: The function.

    Returns:
        Code that calls ``_reached``.
    """
    from warpwatch.simulator.session import interpreter

    code: Any = interpreter.compiled(plain, Plant(name_of(plain), None).visit)
    found: CodeType = code
    return found
