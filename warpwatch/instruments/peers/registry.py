"""Other implementations of a workload: who they are, and for what.

A peer is measured by the same rules as the kernels themselves. A workload of a peer is called
``WORKLOAD @ PEER`` wherever a workload's name is expected.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from warpwatch.config import package as configuration
from warpwatch.workload.base import Inputs, Values, Workload

SEPARATOR = " @ "
OURS = "ours"

Applies = Callable[[Workload], bool]
Run = Callable[[Workload, Inputs], Any]
Lacks = Callable[[Workload], str | None]


@dataclass(frozen=True)
class Peer:
    """``run(workload, inputs)`` computes what the workload's kernel computes. ``needs`` is the
    module it comes from; ``applies`` whether it knows this workload; ``compiles`` whether its
    first call takes seconds; ``lacks`` what it would need here for this workload, in one line;
    ``install`` the command that brings it."""

    name: str
    needs: str
    applies: Applies
    run: Run
    compiles: bool = False
    lacks: Lacks = lambda workload: None
    install: str = ""

    def refusal(self) -> str | None:
        """Why the peer cannot be had here, in one line."""
        try:
            importlib.import_module(self.needs)
        except Exception as error:  # a half-installed peer may raise anything
            text = str(error).splitlines()[0] if str(error) else "no message"
            remedy = f"; try {self.install}" if self.install else ""
            return f"{self.name}: import {self.needs}: {type(error).__name__}: {text}{remedy}"
        return None


@dataclass(frozen=True, kw_only=True)
class PeerWorkload(Workload):
    """A workload whose call is a peer's; all else is the workload's own."""

    base: Workload
    peer: Peer

    @property
    def name(self) -> str:
        return f"{self.base.name}{SEPARATOR}{self.peer.name}"

    @property
    def flops(self) -> int:
        return self.base.flops

    @property
    def bytes_moved(self) -> int:
        return self.base.bytes_moved

    @property
    def definition(self) -> str:
        return self.base.definition

    @property
    def checked_by(self) -> str:
        return self.base.checked_by

    @property
    def tf32(self) -> bool:
        return bool(getattr(self.base, "tf32", False))

    @property
    def missing(self) -> str | None:
        """Why the peer does not stand next to this workload."""
        if not self.peer.applies(self.base):
            return f"{self.peer.name} does not compute {self.base.name}"
        if (refusal := self.peer.refusal()) is not None:
            return refusal
        lacks = self.peer.lacks(self.base)
        return None if lacks is None else f"{self.peer.name}: {lacks}"

    def inputs(self, device: str, seed: int = 0, values: Values = "random") -> Inputs:
        return self.base.inputs(device, seed, values)

    def call(self, inputs: Inputs) -> Any:
        return self.peer.run(self.base, inputs)

    def reference(self, inputs: Inputs, dtype: str | None = None) -> Any:
        return self.base.reference(inputs, dtype)


def known() -> tuple[Peer, ...]:
    """The peers of the project.

    Returns:
        ``PEERS`` of the module that ``peers`` in ``[package]`` names, and the references of
        ``[[workload]]`` where some lie outside the package.

    Raises:
        ValueError: The module has no tuple ``PEERS`` of :class:`Peer`.
    """
    package = configuration.load()
    module = configuration.peers()
    found = () if module is None else getattr(module, "PEERS", None)
    if not isinstance(found, tuple) or not all(isinstance(one, Peer) for one in found):
        name = package.peers
        raise ValueError(f"{name}: expected PEERS, a tuple of peers, got {found!r}")
    written = any(one.reference for one in package.calls)
    return (*found, REFERENCE) if written else found


def _is_foreign(workload: Workload) -> bool:
    """Whether a reference is named that no commit of the package changes."""
    named = getattr(workload, "compares_with", "").partition(":")[0]
    return bool(named) and not f"{named}.".startswith(f"{configuration.load().name}.")


def _lacks(workload: Workload) -> str | None:
    module = getattr(workload, "compares_with", "").partition(":")[0]
    try:
        importlib.import_module(module)
    except Exception as error:  # the module may raise anything
        return f"import {module}: {type(error).__name__}: {error}"
    return None


def _reference(workload: Workload, inputs: Inputs) -> Any:
    return workload.reference(inputs)


# What ``reference`` of a [[workload]] names, such as torch.nn.functional:rms_norm.
REFERENCE = Peer("reference", "torch", _is_foreign, _reference, lacks=_lacks)


def names() -> tuple[str, ...]:
    """The names of :func:`known`."""
    return tuple(peer.name for peer in known())


def base_name(name: str) -> str:
    """The workload a peer's workload stands next to."""
    return name.partition(SEPARATOR)[0]


def get(name: str) -> Workload:
    """The workload called ``name``, of a peer if it says so."""
    base_name, separator, peer_name = name.partition(SEPARATOR)
    base: Workload = configuration.workloads().get(base_name)
    if not separator or peer_name == OURS:
        return base
    found = {peer.name: peer for peer in known()}.get(peer_name)
    if found is None:
        raise ValueError(f"unknown peer {peer_name!r}: expected one of {' '.join(names())}")
    return of(base, found)


def of(base: Workload, peer: Peer) -> PeerWorkload:
    return PeerWorkload(
        kernel=base.kernel, group=base.group, dtype=base.dtype, base=base, peer=peer
    )


def compiles(name: str) -> bool:
    """Whether the first call of a workload, ours or a peer's, waits for compilers."""
    workload = get(name)
    return not isinstance(workload, PeerWorkload) or workload.peer.compiles


def next_to(base: Workload) -> list[PeerWorkload]:
    """Every peer that knows ``base``, whether it can be imported here or not."""
    return [of(base, peer) for peer in known() if peer.applies(base)]
