"""What a call of a known form does: memory, operations of torch and launches, one after another."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import Any

import torch

from .adapters import Run, launcher
from .recording import Recording
from .steps import Allocation, Described, Launch, Operation, Slot, Unrepeatable, View

# Of memory that torch reserves on a GPU.
ALIGNMENT = 512


class Plan:
    """A recorded call, to be run with other tensors of the same form."""

    __slots__ = ("_actions", "_device", "_driver", "_room", "_take")

    def __init__(self, recording: Recording, result: Any, driver: Any) -> None:
        self._driver = driver
        self._device = driver.get_current_device()
        launches = [launcher(step) for step in recording.steps if isinstance(step, Launch)]
        needed = _needed(recording, result, [one.tensors for one in launches])
        arguments = _count_of_arguments(recording)
        self._room = [None] * (len(recording.slots) - arguments + 1)
        self._actions: list[Run] = []
        ready = iter(launches)
        hidden = _hidden(recording, needed)
        if hidden:
            self._actions.append(_allocate_together(hidden, len(recording.slots)))
        apart = {one.slot for one in hidden}
        for step in recording.steps:
            if isinstance(step, Launch):
                self._actions.append(next(ready).run)
            elif isinstance(step, Allocation):
                if step.slot not in apart:
                    self._actions.append(_allocate(step, apart))
            elif (action := _action(step, needed, recording)) is not None:
                self._actions.append(action)
        self._take = _taker(result)

    def run(self, tensors: list[Any], addresses: list[int]) -> Any:
        """The call's result for ``tensors`` that lie at ``addresses``."""
        tensors += self._room
        addresses += self._room  # type: ignore[arg-type]
        stream = self._driver.get_current_stream(self._device)
        for action in self._actions:
            action(tensors, addresses, stream)
        return self._take(tensors)


def _count_of_arguments(recording: Recording) -> int:
    made: set[int] = set()
    for step in recording.steps:
        made |= set(_results(step))
    return len(recording.slots) - len(made)


def _results(step: Any) -> Iterable[int]:
    if isinstance(step, Allocation):
        return (step.slot,)
    operation = step.operation if isinstance(step, View) else step
    if isinstance(operation, Operation):
        return (one for one in operation.results if one is not None)
    return ()


def slots_in(value: Any) -> Iterable[Slot]:
    """The slots of a template."""
    if isinstance(value, Slot):
        yield value
    elif isinstance(value, Described):
        yield value.slot
    elif isinstance(value, (tuple, list)):
        for one in value:
            yield from slots_in(one)


def filled(value: Any, tensors: list[Any]) -> Any:
    """A template with tensors in place of slots."""
    if isinstance(value, Slot):
        return tensors[value.number]
    if isinstance(value, (tuple, list)):
        return type(value)(filled(one, tensors) for one in value)
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
    return _operate(step, recording)


def _hidden(recording: Recording, needed: set[int]) -> list[Allocation]:
    """Memory whose address is enough, of one device: it lies together."""
    seen = {recording.slots[one].root for one in needed}
    made = [one for one in recording.steps if isinstance(one, Allocation)]
    found = [one for one in made if one.slot not in seen]
    return found if len({one.device for one in found}) == 1 else []


def _allocate_together(steps: list[Allocation], place: int) -> Run:
    """All memory of ``steps`` at once; ``place`` keeps it alive as long as the call."""
    offsets, total = [], 0
    for step in steps:
        offsets.append((step.slot, total))
        total += -(-step.nbytes // ALIGNMENT) * ALIGNMENT
    device, empty, dtype = steps[0].device, torch.empty, torch.uint8

    def allocate(tensors: list[Any], addresses: list[int], stream: int) -> None:
        made = tensors[place] = empty(total, dtype=dtype, device=device)
        base = made.data_ptr()
        for slot, offset in offsets:
            addresses[slot] = base + offset

    return allocate


def _allocate(step: Allocation, apart: set[int]) -> Run:
    slot, size, stride = step.slot, step.size, step.stride
    twin = None if step.twin in apart else step.twin
    dtype, device = step.dtype, step.device
    empty, strided, like = torch.empty, torch.empty_strided, torch.empty_like

    def allocate(tensors: list[Any], addresses: list[int], stream: int) -> None:
        if twin is not None:  # the least that torch asks for
            made = like(tensors[twin])
        elif stride is None:
            made = empty(size, dtype=dtype, device=device)
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


def _taker(result: Any) -> Callable[[list[Any]], Any]:
    """Takes the result of a call from its tensors."""
    if isinstance(result, Slot):
        return operator.itemgetter(result.number)
    if result is None:
        return lambda tensors: None
    if not isinstance(result, (tuple, list)) or not all(
        one is None or isinstance(one, Slot) for one in result
    ):
        raise Unrepeatable
    kind = type(result)
    numbers = [None if one is None else one.number for one in result]
    if kind is tuple and len(numbers) > 1 and None not in numbers:
        return operator.itemgetter(*numbers)
    return lambda tensors: kind([None if i is None else tensors[i] for i in numbers])
