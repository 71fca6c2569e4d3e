"""What a call of a known form does: memory, operations of torch and launches, one after another."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from .adapters import launcher
from .recording import Recording
from .source import Names, function, together
from .steps import (
    Allocation,
    Applied,
    Launch,
    Operation,
    Slot,
    Unrepeatable,
    View,
    slots_in,
)

try:
    from torch._C._dynamo import guards
except ImportError:  # of another torch
    guards = None  # type: ignore[assignment]

# Of memory that torch reserves on a GPU.
ALIGNMENT = 512


class Plan:
    """A recorded call, to be run with other tensors of the same form."""

    def __init__(self, recording: Recording, result: Any, driver: Any) -> None:
        # Lists of Triton's, that whoever watches a kernel adds to at any time.
        self.hooks = [
            one.kernel.pre_run_hooks for one in recording.steps if isinstance(one, Launch)
        ]
        for one in recording.steps:
            if isinstance(one, Applied) and one.node is not None:
                self.hooks += one.node.plan.hooks
        launches = [launcher(step) for step in recording.steps if isinstance(step, Launch)]
        needed = _needed(recording, result, [tensors for _, tensors in launches])
        self._given = len(recording.arguments())
        self._names = names = Names()
        # Lines of the function, each with the slot of memory that only the caller may want.
        self._lines: list[tuple[int | None, str]] = []
        self._take = _taken(result, names)
        made = result if isinstance(result, (tuple, list)) else (result,)
        self._results = [None if one is None else one.number for one in made]
        if launches:
            stream, device = driver.get_current_stream, driver.get_current_device()
            self._add(f"stream = {names.of(stream)}({names.of(device)})")
        used = _used(recording)
        ready = iter([line for line, _ in launches])
        ends = _ends(recording, result)
        hidden = _hidden(recording, needed, ends)
        apart = {one.slot for one in hidden}
        room = len(recording.slots)
        freed = _freed(recording, ends, apart, room)
        for i, step in enumerate(recording.steps):
            if isinstance(step, Launch):
                self._add(next(ready)(names))
            elif isinstance(step, Allocation):
                if step.slot not in apart:
                    spare = None if step.slot in used else step.slot
                    given = map(names.of, (step.size, step.stride, step.dtype))
                    empty = names.of(_reserve(step.device, driver))
                    self._add(f"t{step.slot} = {empty}({', '.join(given)})", spare)
                    self._locate(step.slot, used)
                elif step is hidden[0]:
                    self._allocate_together(hidden, room, driver)
            elif not isinstance(step, View) or not needed.isdisjoint(step.makes):
                self._operate(step, needed, recording)
            if i in freed and i < len(recording.steps) - 1:
                self._add(" = ".join((*(f"t{one}" for one in freed[i]), "None")))

    @functools.cached_property
    def run(self) -> Callable[..., Any]:
        """The call's result, of its tensors and their addresses."""
        return self._ending(self._take, {None, *self._results})

    def giving(self, saved: Sequence[int], wanted: Sequence[int]) -> Callable[..., Any]:
        """The same call, which gives those of (None, its tensors, its results) whose places are
        ``saved``, and its results of the places ``wanted``; memory of no other is reserved."""
        numbers = [None, *range(self._given), *self._results]
        kept, made = [numbers[i] for i in saved], [self._results[i] for i in wanted]
        texts = [["None" if one is None else f"t{one}" for one in part] for part in (kept, made)]
        taken = texts[1][0] if len(made) == 1 else together(texts[1])
        return self._ending(f"{together(texts[0])}, {taken}", {None, *kept, *made})

    def _ending(self, taken: str, kept: set[int | None]) -> Callable[..., Any]:
        """``kept`` are the slots that ``taken`` names."""
        unpacked = [
            f"{''.join(f'{kind}{i}, ' for i in range(self._given))} = {whole}"
            for kind, whole in (("t", "tensors"), ("a", "addresses"))
        ]
        lines = [line for spare, line in self._lines if spare in kept]
        return function("tensors, addresses", (*unpacked, *lines, f"return {taken}"), self._names)

    def _add(self, line: str, spare: int | None = None) -> None:
        self._lines.append((spare, line))

    def _locate(self, slot: int, used: set[int]) -> None:
        if slot in used:
            self._add(f"a{slot} = t{slot}.data_ptr()")

    def _allocate_together(self, steps: list[Allocation], place: int, driver: Any) -> None:
        """All memory of ``steps`` at once; ``place`` keeps it alive as long as the call."""
        offsets, total = [], 0
        for step in steps:
            offsets.append((step.slot, total))
            total += -(-step.nbytes // ALIGNMENT) * ALIGNMENT
        names = self._names
        given = map(names.of, ((total,), (1,), torch.uint8))
        empty = names.of(_reserve(steps[0].device, driver))
        self._add(f"t{place} = {empty}({', '.join(given)})")
        self._add(f"a{place} = t{place}.data_ptr()")
        for slot, offset in offsets:
            self._add(f"a{slot} = a{place} + {names.of(offset)}")

    def _operate(self, step: Operation, needed: set[int], recording: Recording) -> None:
        used, names = _used(recording), self._names
        results: Sequence[int | None] = step.results
        many = step.tuple_of
        if isinstance(step, Applied) and step.node is not None:
            given = [one for one in step.args if isinstance(one, Slot)]
            wanted, replay, node = step.node.narrowed(
                tuple(i for i, one in enumerate(results) if one in needed | used)
            )
            results = [results[i] for i in wanted]
            many = len(results) > 1
            addresses = together(map(names.address, given))
            arguments = [names.of(node), addresses, *map(names.filled, given)]
        else:
            replay = getattr(step.run, "_op", step.run)
            arguments = [names.filled(one) for one in step.args]
            arguments += [f"{name}={names.filled(one)}" for name, one in step.kwargs]
        call = f"{names.of(replay)}({', '.join(arguments)})"
        made = [(i, one) for i, one in enumerate(results) if one is not None]
        if not made:
            self._add(call)
        elif many:
            self._add(f"found = {call}")
            for i, one in made:
                self._add(f"t{one} = found[{i}]")
            self._add("del found")
        else:
            self._add(f"t{made[0][1]} = {call}")
        for _, one in made:
            if recording.slots[one].root == one:
                self._locate(one, used)


def _reserve(device: torch.device, driver: Any) -> Callable[..., Any]:
    """Reserves memory of a size, strides and dtype. Where this torch has it, that is the function
    which its compiled code calls: no arguments are parsed and no dispatcher is asked."""
    found = getattr(guards, f"_empty_strided_{device.type}", None)
    if found is not None and device.index in (None, driver.get_current_device()):
        return found
    return lambda size, stride, dtype: torch.empty_strided(size, stride, dtype=dtype, device=device)


def _used(recording: Recording) -> set[int]:
    """Slots that a step uses, by their own number or as the memory of another."""
    slots = [one for step in recording.steps for one in step.uses]
    return {number for one in slots for number in (one.number, one.root)}


def _needed(recording: Recording, result: Any, launched: list[Any]) -> set[int]:
    """Slots whose tensor somebody takes; of others the address of their root is enough."""
    needed = {one.number for one in slots_in(result)}
    for tensors in launched:
        needed |= {one.number for one in slots_in(tensors)}
    for step in reversed(recording.steps):
        unseen = isinstance(step, View) and needed.isdisjoint(step.makes)
        if isinstance(step, Operation) and not unseen:
            needed |= {one.number for one in step.uses}
    return needed


def _ends(recording: Recording, result: Any) -> dict[int, int]:
    """The last step that needs the memory of each slot which a step made, by its number; memory of
    the result is not among them."""
    found: dict[int, int] = {}
    for i, step in enumerate(recording.steps):
        used = {*step.makes, *(one.number for one in step.uses)}
        found |= dict.fromkeys((recording.slots[one].root for one in used), i)
    made = {one for step in recording.steps for one in step.makes}
    kept = {recording.slots[one.number].root for one in slots_in(result)}
    return {root: i for root, i in found.items() if root in made and root not in kept}


def _hidden(recording: Recording, needed: set[int], ends: dict[int, int]) -> list[Allocation]:
    """Memory whose address is enough, of one device, and is there at one time: it lies together."""
    seen = {recording.slots[one].root for one in needed}
    places = {id(one): i for i, one in enumerate(recording.steps)}
    made = [one for one in recording.steps if isinstance(one, Allocation)]
    found = [one for one in made if one.slot not in seen and one.slot in ends]
    # What is given back before the last of them is made would be held longer than it was.
    found = [one for one in found if ends[one.slot] > places[id(found[-1])]]
    return found if len({one.device for one in found}) == 1 else []


def _freed(
    recording: Recording, ends: dict[int, int], apart: set[int], room: int
) -> dict[int, list[int]]:
    """Slots to give back after each step, so that a repeated call holds what it held as written."""
    found: dict[int, list[int]] = {}
    for one in recording.slots:
        if one.root in ends and one.root not in apart:
            found.setdefault(ends[one.root], []).append(one.number)
    if apart:
        found.setdefault(max(ends[one] for one in apart), []).append(room)
    return found


def _taken(result: Any, names: Names) -> str:
    """How the result of a call is written."""
    if result is not None and not isinstance(result, Slot):
        if type(result) not in (tuple, list):
            raise Unrepeatable
        if not all(one is None or isinstance(one, Slot) for one in result):
            raise Unrepeatable
    return names.filled(result)
