"""The workloads that stand in the configuration, offered as a module of workloads is."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from warpwatch.config import package as configuration
from warpwatch.config.calls import Call

from .base import Workload
from .call import CallWorkload, dtype_name


def all_workloads() -> tuple[Workload, ...]:
    """The workloads of ``[[workload]]``, in the order of the file."""
    package = configuration.load()
    return tuple(_made(one, package.name) for one in package.calls)


def get(name: str) -> Workload:
    """The workload called ``name``.

    Raises:
        ValueError: There is none; near matches are named.
    """
    found = {one.name: one for one in all_workloads()}
    if name in found:
        return found[name]
    near = difflib.get_close_matches(name, found, n=3, cutoff=0.4)
    hint = f"did you mean {', '.join(near)}?" if near else "none is alike"
    raise ValueError(f"unknown workload {name!r}: {hint}")


def select(*, kernel: str | None = None, group: str | None = None) -> tuple[Workload, ...]:
    """The workloads of one kernel, of one group, or of both."""
    return tuple(
        one
        for one in all_workloads()
        if kernel in (None, one.kernel) and group in (None, one.group)
    )


def fixed_set() -> Sequence[tuple[Workload, str]]:
    """Each workload with each target that every commit is compiled for."""
    chosen = configuration.chosen_targets()
    return tuple((workload, target) for workload in all_workloads() for target in chosen)


def _made(call: Call, package: str) -> CallWorkload:
    module, _, function = call.call.partition(":")
    inside = module == package or module.startswith(f"{package}.")
    below = module.removeprefix(package).removeprefix(".")
    return CallWorkload(
        kernel=f"{below}:{function}".lstrip(":") if inside else "",
        group=call.group,
        dtype=dtype_name(call.args),
        title=call.name,
        function=call.call,
        arguments=call.args,
        backward=call.backward,
        compares_with=call.reference,
        operations=call.flops,
    )
