"""Plants faults in a kernel: takes a wait, a fence or a signal away, or turns a phase round."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any

from tools.gluon.places import Places

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


class Plant(Places, ast.NodeTransformer):
    """Plants the fault at a place."""

    kind = ""

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        """A statement that is a call."""
        call = node.value
        if isinstance(call, ast.Call) and (kind := _kind(call)):
            text = ast.unparse(call)
            if self._is_it(node, kind, f"no {text}"):
                return ast.copy_location(ast.Pass(), node)
            whole = self.marked(call)
            if _word(call) == "mbarrier.wait":
                said = f"{text} in the other phase"
                self._argument(call, ("phase", 1), (ast.BitXor(), PHASE, said))
            node.value = whole
            return node
        self.generic_visit(node)
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """A wait for products, whose values are used."""
        self.generic_visit(node)
        if _word(node).endswith("warpgroup_mma_wait"):
            said = f"{ast.unparse(node)} for one fewer"
            self._argument(node, ("num_outstanding", 0), (ast.Add(), WAIT, said))
        return node

    def _argument(
        self, call: ast.Call, which: tuple[str, int], fault: tuple[ast.operator, str, str]
    ) -> None:
        """A fault in an argument, given by its name or by its place: it and 1 under an operator."""
        (name, place), (operator, kind, said) = which, fault
        named = next((one for one in call.keywords if one.arg == name), None)
        given = named.value if named is not None else call.args[place]
        changed: ast.expr = ast.BinOp(given, operator, ast.Constant(1))
        if not self._is_it(call, kind, said):
            changed = self.marked(given)
        if named is not None:
            named.value = changed
        else:
            call.args[place] = changed

    def _is_it(self, node: ast.AST, kind: str, what: str) -> bool:
        is_it = self.is_it(node, what)
        self.kind = kind if is_it else self.kind
        return is_it


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
        Code that marks each place.
    """
    from warpwatch.simulator.session import interpreter

    code: Any = interpreter.compiled(plain, Plant(name_of(plain), None).visit)
    found: CodeType = code
    return found
