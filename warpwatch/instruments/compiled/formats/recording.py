"""What one recorded call did: its kernel launches, torch's own operations, and what failed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import numpy as np

    from warpwatch.config.targets import Target


class HarnessError(RuntimeError):
    """The instrument itself failed: never the fault of the code that is measured."""


@dataclass(frozen=True)
class TensorArgument:
    """A pointer a kernel was given. ``nbytes`` counts an expanded dimension once. ``values`` holds
    the memory behind small integer tensors (lengths, tables), so that loop bounds which are read
    from it can be evaluated: one element after the other from where it points, those that are not
    known masked."""

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    nbytes: int
    address: int
    values: np.ndarray | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class DescriptorArgument:
    """A tensor descriptor made on the host."""

    base: TensorArgument
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    block_shape: tuple[int, ...]


Scalar = int | float | bool | None
Argument = TensorArgument | DescriptorArgument | Scalar | str | tuple["Argument", ...]


def by_compiled_names(names: Sequence[str], given: Mapping[str, Argument]) -> dict[str, Argument]:
    """Arguments by the names of a compiled kernel, which has each member of a tuple by itself.

    Args:
        names: Those of the kernel in their order, as ``%lengths`` and then ``%lengths_0``.
        given: A launch's arguments by name.

    Returns:
        What is no tuple by its own name, and members by theirs. Those that Triton makes constants,
        ``None`` and 1, have no name. A tuple whose members are not as many as its names is left
        out.

    Example:
        >>> by_compiled_names(["%a", "%b", "%b_0"], {"a": 7, "b": (5, None, (1, 6))})
        {'a': 7, 'b': 5, 'b_0': 6}
    """
    found: dict[str, Argument] = {}
    for name, value in given.items():
        if not isinstance(value, tuple):
            found[name] = value
            continue
        numbered = re.compile(rf"%({re.escape(name)}(?:_\d+)?)$")
        matches = [match[1] for one in names if (match := numbered.match(one))]
        members = [one for one in matches if one == name or one not in given]
        passed = [one for one in _leaves(value) if one is not None and not _is_one(one)]
        if len(members) == len(passed):
            found |= zip(members, passed, strict=True)
    return found


def _leaves(value: Argument) -> Iterator[Argument]:
    if isinstance(value, tuple):
        for one in value:
            yield from _leaves(one)
    else:
        yield value


def _is_one(value: Argument) -> bool:
    return type(value) is int and value == 1


@dataclass(frozen=True)
class Kernel:
    """One compiled kernel: what the compiler said and every text it left.

    ``texts`` maps stages (``ttir``, ``ttgir``, ``ptx``, ``amdgcn``) to text; ``binary`` is the
    cubin or hsaco. ``log`` is what ptxas printed.
    """

    name: str
    target: Target
    binary: bytes = field(repr=False)
    texts: Mapping[str, str] = field(repr=False)
    num_warps: int
    num_ctas: int
    num_stages: int
    shared_bytes: int
    log: str = field(repr=False)
    compile_seconds: float
    triton_version: str


@dataclass(frozen=True)
class Launch:
    """One launch that would have happened. ``arguments`` has every argument by name, constexprs
    included; ``signature`` the type Triton gave each, ``attributes`` what it was specialised for
    (``tt.divisibility``, ``tt.pointer_range``); ``file`` is where the kernel's source lies."""

    kernel: Kernel
    grid: tuple[int, int, int]
    arguments: Mapping[str, Argument]
    signature: Mapping[str, str]
    attributes: Mapping[str, tuple[tuple[str, int], ...]]
    file: str = ""

    @property
    def programs(self) -> int:
        return self.grid[0] * self.grid[1] * self.grid[2]


@dataclass(frozen=True)
class TorchOp:
    """An operation of torch itself on device tensors; views are none.

    ``bytes_moved`` is what it reads and writes, ``copied_bytes`` what it writes when all it does
    is to copy. ``flops`` of ``dtype`` are those of products, 0 of anything else.
    """

    name: str
    launches: int
    bytes_moved: int
    copied_bytes: int
    flops: int = 0
    dtype: str = ""


@dataclass(frozen=True)
class Failure:
    """A launch that did not get as far as the device. ``error`` is one line."""

    kernel: str
    stage: Literal["compile", "resources"]
    error: str
    details: str = field(default="", repr=False)


@dataclass(frozen=True)
class Tuned:
    """The search space of an autotuned kernel, as it was when it was launched: ``configurations``
    after its pruning, in its order, ``recorded`` the one that was taken and ``why``. ``key`` is the
    tuner's own: what a choice made on a card is known by."""

    kernel: str
    key: str
    configurations: tuple[str, ...]
    recorded: str
    why: str


@dataclass(frozen=True)
class Recording:
    """Everything one call did, in order."""

    target: Target
    launches: tuple[Launch, ...]
    torch_ops: tuple[TorchOp, ...]
    failures: tuple[Failure, ...]
    notes: tuple[str, ...] = ()
    tuned: tuple[Tuned, ...] = ()
