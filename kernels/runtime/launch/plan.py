"""What a call of a known form does: memory, operations of torch and launches, one after another."""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Iterable
from typing import Any

import torch

from .adapters import Run, launcher
from .recording import Recording
from .steps import (
    Allocation,
    Applied,
    Launch,
    Operation,
    Slot,
    Unrepeatable,
    View,
    like,
    slots_in,
)

# Of memory that torch reserves on a GPU.
ALIGNMENT = 512


class Plan:
    """A recorded call, to be run with other tensors of the same form."""

    __slots__ = (
        "_actions",
        "_device",
        "_driver",
        "_results",
        "_room",
        "_spare",
        "_take",
        "_whole",
        "hooks",
    )

    def __init__(self, recording: Recording, result: Any, driver: Any) -> None:
        self._driver = driver
        self._device = driver.get_current_device()
        # Lists of Triton's, that whoever watches a kernel adds to at any time.
        self.hooks = [
            one.kernel.pre_run_hooks for one in recording.steps if isinstance(one, Launch)
        ]
        for one in recording.steps:
            if isinstance(one, Applied) and one.node is not None:
                self.hooks += one.node.plan.hooks
        launches = [launcher(step) for step in recording.steps if isinstance(step, Launch)]
        needed = _needed(recording, result, [one.tensors for one in launches])
        arguments = len(recording.arguments())
        self._room = [None] * (len(recording.slots) - arguments + 1)
        self._actions: list[Run] = []
        # Memory that only the caller may want, by the slot, and what reserves it.
        self._spare: dict[int, Run] = {}
        used = _used(recording)
        ready = iter(launches)
        ends = _ends(recording, result)
        hidden = _hidden(recording, needed, ends)
        apart = {one.slot for one in hidden}
        room = len(recording.slots)
        freed = _freed(recording, ends, apart, room)
        for i, step in enumerate(recording.steps):
            if isinstance(step, Launch):
                self._actions.append(next(ready).run)
            elif isinstance(step, Allocation):
                if step.slot not in apart:
                    self._actions.append(_allocate(step, recording, apart))
                    if step.slot not in used:
                        self._spare[step.slot] = self._actions[-1]
                elif step is hidden[0]:
                    self._actions.append(_allocate_together(hidden, recording, room))
            elif (action := _action(step, needed, recording)) is not None:
                self._actions.append(action)
            if i in freed and i < len(recording.steps) - 1:
                self._actions.append(_free(freed[i]))
        self._take = _taker(result)
        made = result if isinstance(result, (tuple, list)) else (result,)
        self._results = [getattr(one, "number", None) for one in made]
        self._whole = _whole(recording, result, arguments, self._actions)

    def without(self, results: set[int]) -> Plan:
        """The same call, with None for some of its results where nothing but them is left out."""
        kept = {one for i, one in enumerate(self._results) if i not in results}
        left_out = [run for slot, run in self._spare.items() if slot not in kept]
        found = copy.copy(self)
        found._actions = [one for one in self._actions if one not in left_out]
        return found

    def run(self, tensors: list[Any], addresses: list[int]) -> Any:
        """The call's result for ``tensors`` that lie at ``addresses``."""
        if self._whole is not None:
            return self._whole(addresses, *tensors)
        tensors += self._room
        addresses += self._room  # type: ignore[arg-type]
        stream = self._driver.get_current_stream(self._device)
        for action in self._actions:
            action(tensors, addresses, stream)
        return self._take(tensors)


def _used(recording: Recording) -> set[int]:
    """Slots that a step uses, by their own number or as the memory of another."""
    found: set[int] = set()
    for step in recording.steps:
        if isinstance(step, Allocation):
            slots: list[Any] = [] if step.twin is None else [recording.slots[step.twin]]
        elif isinstance(step, Launch):
            slots = list(slots_in(step.arguments))
        else:
            operation = step.operation if isinstance(step, View) else step
            slots = list(slots_in((operation.args, operation.kwargs)))
        found |= {number for one in slots for number in (one.number, one.root)}
    return found


def _whole(
    recording: Recording, result: Any, arguments: int, actions: list[Run]
) -> Callable[..., Any] | None:
    """The only step of a call, of addresses and tensors, where that is a node's, as of a public
    function whose checks are all of the rest."""
    steps = recording.steps
    if len(steps) != 1 or not isinstance(steps[0], Applied) or steps[0].node is None:
        return None
    given = [one.number for one in steps[0].args if isinstance(one, Slot)]
    wanted, replay = _narrowed(steps[0], {one.number for one in slots_in(result)})
    made = [steps[0].results[i] for i in wanted]
    taken = [result] if isinstance(result, Slot) else result
    same = isinstance(taken, (tuple, list)) and made == [getattr(x, "number", None) for x in taken]
    alone = isinstance(result, Slot) == (len(wanted) == 1) and not isinstance(result, list)
    return replay if same and alone and given == [*range(arguments)] else None


def _results(step: Any) -> Iterable[int]:
    if isinstance(step, Allocation):
        return (step.slot,)
    operation = step.operation if isinstance(step, View) else step
    if isinstance(operation, Operation):
        return (one for one in operation.results if one is not None)
    return ()


def filled(value: Any, tensors: list[Any]) -> Any:
    """A template with tensors in place of slots."""
    if isinstance(value, Slot):
        return tensors[value.number]
    if isinstance(value, (tuple, list)):
        return like(value, [filled(one, tensors) for one in value])
    return value


def _needed(recording: Recording, result: Any, launched: list[Any]) -> set[int]:
    """Slots whose tensor somebody takes; of others the address of their root is enough."""
    needed = {one.number for one in slots_in(result)}
    for tensors in launched:
        needed |= {one.number for one in slots_in(tensors)}
    for step in reversed(recording.steps):
        operation = step.operation if isinstance(step, View) else step
        if not isinstance(operation, Operation):
            continue
        if isinstance(step, View) and needed.isdisjoint(_results(step)):
            continue
        needed |= {one.number for one in slots_in((operation.args, operation.kwargs))}
    return needed


def _action(step: Any, needed: set[int], recording: Recording) -> Run | None:
    if isinstance(step, View):
        if needed.isdisjoint(_results(step)):
            return None
        step = step.operation
    if isinstance(step, Applied) and step.node is not None:
        return _differentiate(step, needed, recording)
    return _operate(step, recording)


def _ends(recording: Recording, result: Any) -> dict[int, int]:
    """The last step that needs the memory of each slot which a step made, by its number; memory of
    the result is not among them."""
    found: dict[int, int] = {}
    for i, step in enumerate(recording.steps):
        used = set(_results(step))
        operation = step.operation if isinstance(step, View) else step
        if isinstance(operation, Operation):
            used |= {one.number for one in slots_in((operation.args, operation.kwargs))}
        elif isinstance(operation, Launch):
            used |= {one.number for one in slots_in(operation.arguments)}
        elif operation.twin is not None:
            used.add(operation.twin)
        found |= dict.fromkeys((recording.slots[one].root for one in used), i)
    made = {one for step in recording.steps for one in _results(step)}
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


def _free(numbers: list[int]) -> Run:
    def free(tensors: list[Any], addresses: list[int], stream: int) -> None:
        for number in numbers:
            tensors[number] = None

    return free


def _allocate_together(steps: list[Allocation], recording: Recording, place: int) -> Run:
    """All memory of ``steps`` at once; ``place`` keeps it alive as long as the call."""
    offsets, total = [], 0
    for step in steps:
        offsets.append((step.slot, total))
        total += -(-step.nbytes // ALIGNMENT) * ALIGNMENT
    lead = recording.arguments()[0]  # whose dtype is as good as another
    reserve = _reserve((total // lead.dtype.itemsize,), lead.dtype, steps[0].device, recording)

    def allocate(tensors: list[Any], addresses: list[int], stream: int) -> None:
        made = tensors[place] = reserve(tensors)
        base = made.data_ptr()
        for slot, offset in offsets:
            addresses[slot] = base + offset

    return allocate


def _reserve(
    size: tuple[int, ...], dtype: torch.dtype, device: torch.device, recording: Recording
) -> Callable[[list[Any]], torch.Tensor]:
    """Contiguous memory; for torch it is less work where an argument says dtype and device."""
    for number, one in enumerate(recording.arguments()):
        if one.device == device and one.dtype == dtype:
            return lambda tensors: tensors[number].new_empty(size)
    empty = torch.empty
    return lambda tensors: empty(size, dtype=dtype, device=device)


def _allocate(step: Allocation, recording: Recording, apart: set[int]) -> Run:
    slot, size, stride = step.slot, step.size, step.stride
    twin = None if step.twin in apart else step.twin
    dtype, device = step.dtype, step.device
    strided, alike = torch.empty_strided, torch.empty_like
    reserve = _reserve(size, dtype, device, recording)

    def allocate(tensors: list[Any], addresses: list[int], stream: int) -> None:
        if twin is not None:  # the least that torch asks for
            made = alike(tensors[twin])
        elif stride is None:
            made = reserve(tensors)
        else:
            made = strided(size, stride, dtype=dtype, device=device)
        tensors[slot] = made
        addresses[slot] = made.data_ptr()

    return allocate


def _operate(step: Operation, recording: Recording) -> Run:
    run = getattr(step.run, "_op", step.run)
    args, kwargs, many = step.args, dict(step.kwargs), step.tuple_of
    results = [(i, one) for i, one in enumerate(step.results) if one is not None]
    owners = {one for _, one in results if recording.slots[one].root == one}
    places = [(i, one.number) for i, one in enumerate(args) if isinstance(one, Slot)]
    flat = len(places) == len(list(slots_in((args, tuple(kwargs.items())))))

    def operate(tensors: list[Any], addresses: list[int], stream: int) -> None:
        if flat:
            given = list(args)
            for i, number in places:
                given[i] = tensors[number]
            found = run(*given, **kwargs)
        else:
            named = {name: filled(one, tensors) for name, one in kwargs.items()}
            found = run(*filled(args, tensors), **named)
        for i, number in results:
            made = found[i] if many else found
            tensors[number] = made
            if number in owners:
                addresses[number] = made.data_ptr()

    return operate


def _differentiate(step: Applied, needed: set[int], recording: Recording) -> Run:
    given = [one for one in step.args if isinstance(one, Slot)]
    wanted, replay = _narrowed(step, needed | _used(recording))
    numbers = [one.number for one in given]
    where = [(one.root, one.offset) for one in given]
    results: list[Any] = [step.results[i] for i in wanted]

    def differentiate(tensors: list[Any], addresses: list[int], stream: int) -> None:
        lie = [addresses[root] + offset for root, offset in where]
        found = replay(lie, *[tensors[i] for i in numbers])
        for number, made in zip(results, (found,) if len(results) == 1 else found, strict=True):
            tensors[number] = made
            addresses[number] = made.data_ptr()

    return differentiate


def _narrowed(step: Applied, needed: set[int]) -> Any:
    """As a node narrows itself, to results that are ``needed``."""
    return step.node.narrowed(tuple(i for i, one in enumerate(step.results) if one in needed))


def _taker(result: Any) -> Callable[[list[Any]], Any]:
    """Takes the result of a call from its tensors."""
    if isinstance(result, Slot):
        return operator.itemgetter(result.number)
    if result is None:
        return lambda tensors: None
    if type(result) not in (tuple, list) or not all(
        one is None or isinstance(one, Slot) for one in result
    ):
        raise Unrepeatable
    kind = type(result)
    numbers = [None if one is None else one.number for one in result]
    if kind is tuple and len(numbers) > 1 and None not in numbers:
        return operator.itemgetter(*numbers)
    return lambda tensors: kind([None if i is None else tensors[i] for i in numbers])
