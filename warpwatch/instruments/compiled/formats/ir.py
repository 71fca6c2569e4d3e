"""Triton's GPU dialect as text, parsed as far as loops and their work need it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_LOCATION = re.compile(r"\s*loc\((?:[^()]|\([^()]*\))*\)\s*$")
_RESULTS = re.compile(r"^(?P<results>%[^=]*?)\s=\s(?P<rest>.*)$")
_NAME = re.compile(r'^"?(?P<name>[a-z_]+\.[\w.]+)"?(?P<rest>.*)$')
_PARTITION = re.compile(
    r"^(?P<kind>default|partition\d+)\b.*?(?:num_warps\((?P<warps>\d+)\))?\s*\{$"
)
_BLOCK = re.compile(r"^(?P<label>\^\w+)")
_VALUE = re.compile(r"%[\w$.-]+(?:#\d+)?")
_SHAPED = re.compile(r"<(?P<shape>(?:\d+x)+)(?P<element>!tt\.ptr<\w+|[a-zA-Z]\w*)")
_FUNCTION = re.compile(r"^tt\.func public @(?P<name>[\w.$-]+)\((?P<arguments>.*)\)")
_ARGUMENT = re.compile(r"(?P<name>%[\w$.-]+): (?P<type>!?[\w.]+)")

_BITS = re.compile(r"[a-zA-Z]+(\d+)")


@dataclass(eq=False)
class Region:
    """Operations in braces. ``warps`` is how many run it, ``None`` for those of its parent."""

    kind: str
    ops: list[Op] = field(default_factory=list)
    warps: int | None = None
    parameters: tuple[str, ...] = ()
    definitions: dict[str, Op] = field(default_factory=dict)

    def walk(self) -> Iterator[Op]:
        """Every operation, those of nested regions included."""
        for op in self.ops:
            yield op
            for region in op.regions:
                yield from region.walk()


@dataclass(eq=False)
class Op:
    """One operation. ``rest`` is the text after its name."""

    name: str
    results: tuple[str, ...]
    rest: str
    regions: list[Region] = field(default_factory=list)

    @property
    def values(self) -> list[str]:
        """Values the text mentions, in order."""
        return _VALUE.findall(self.rest)


@dataclass(frozen=True)
class Function:
    """The kernel: its body, the names of its arguments, the warps of a block."""

    name: str
    arguments: tuple[str, ...]
    body: Region
    warps: int


@dataclass(frozen=True)
class Shaped:
    """A tensor or buffer type."""

    shape: tuple[int, ...]
    element: str

    @property
    def elements(self) -> int:
        count = 1
        for one in self.shape:
            count *= one
        return count

    @property
    def nbytes(self) -> int:
        """Of what a pointer points to, where the elements are pointers."""
        return self.elements * bits(self.element.removeprefix("!tt.ptr<")) // 8


def bits(element: str) -> int:
    """Width of an element type: ``bf16``, ``f8E4M3FN``, ``i1`` (stored as a byte)."""
    match = _BITS.match(element)
    return max(8, int(match.group(1))) if match else 32


def shaped(text: str) -> list[Shaped]:
    """The tensor and buffer types in ``text``, in order."""
    return [
        Shaped(tuple(int(one) for one in found["shape"].split("x") if one), found["element"])
        for found in _SHAPED.finditer(text)
    ]


def parse(text: str) -> Function:
    """The public function of a module; ``ValueError`` where there is none."""
    warps = re.search(r'"ttg\.num-warps" = (\d+)', text)
    stack: list[Region] = [Region("module")]
    function: Op | None = None
    for raw in text.splitlines():
        line = _LOCATION.sub("", raw.strip())
        if not line or line.startswith(("#", "//", "{-#", "module")):
            continue
        if line.startswith("}"):
            if len(stack) > 1:
                stack.pop()
            following = re.match(r"^\} (else|do) \{$", line)
            if following:
                stack.append(_open(stack[-1].ops[-1], following.group(1)))
            continue
        partition = _PARTITION.match(line)
        if partition and stack[-1].ops:
            region = _open(stack[-1].ops[-1], partition["kind"])
            region.warps = int(partition["warps"]) if partition["warps"] else None
            region.parameters = tuple(re.findall(r"(%[\w$.-]+): ", line))
            stack.append(region)
            continue
        block = _BLOCK.match(line)
        if block and not stack[-1].ops and stack[-1].kind == "do":
            stack[-1].parameters = tuple(re.findall(r"(%[\w$.-]+): ", line))
            continue
        if block:
            stack[-1].ops.append(Op("block", (block["label"],), line))
            continue
        op = _operation(line)
        if op is None:
            continue
        stack[-1].ops.append(op)
        for result in op.results:
            stack[-1].definitions[result] = op
        if line.endswith("{"):
            stack.append(_open(op, _kind(op)))
        if op.name == "tt.func" and "public" in op.rest and function is None:
            function = op
    if function is None or not function.regions:
        raise ValueError("expected a module with a public tt.func, found none")
    head = _FUNCTION.match("tt.func" + function.rest.split(" attributes {noinline")[0])
    arguments = tuple(one["name"] for one in _ARGUMENT.finditer(head["arguments"] if head else ""))
    return Function(
        name=head["name"] if head else "",
        arguments=arguments,
        body=function.regions[0],
        warps=int(warps.group(1)) if warps else 4,
    )


def _open(op: Op, kind: str) -> Region:
    region = Region(kind)
    op.regions.append(region)
    return region


def _kind(op: Op) -> str:
    if op.name == "scf.if":
        return "then"
    return "before" if op.name == "scf.while" else "body"


def _operation(line: str) -> Op | None:
    match = _RESULTS.match(line)
    results: tuple[str, ...] = ()
    rest = line
    if match:
        results = tuple(one.split(":")[0].strip() for one in match["results"].split(","))
        rest = match["rest"]
    named = _NAME.match(rest)
    return Op(named["name"], results, named["rest"]) if named else None
