"""Which machine a result is of, by what matters for time: the model of its processor or card.

A name says little. Under one name two kinds of processors may take turns, as in a pool of
runners; and one kind of runner may have another name at every commit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Literal

from .result_file import ResultFile

Identity = Literal["name", "model"]
Placed = tuple[str, ResultFile]  # and its machine

_MODEL = ("cpu", "gpu", "num_cpu", "arch")
_LONGEST = 120  # letters of a model


def identified(
    files: Sequence[Placed], positions: Mapping[str, int], identity: Identity = "name"
) -> list[Placed]:
    """The files with the machines that they are of.

    Args:
        files: results, each with the name its machine gave itself.
        positions: of the commits; results of others are left as they are.
        identity: ``name`` keeps names, but models that take turns under one name are machines of
            their own, ``NAME (MODEL)``; ``model`` joins whatever has the same model.

    Returns:
        The same files in the same order.
    """
    if identity == "model":
        return [(_model(file, _MODEL) or name, file) for name, file in files]
    by_name: dict[str, list[ResultFile]] = {}
    for name, file in files:
        if file.commit in positions:
            by_name.setdefault(name, []).append(file)
    telling = {name: _that_take_turns(of, positions) for name, of in by_name.items()}
    return [
        (f"{name} ({_model(file, fields)})" if (fields := telling.get(name)) else name, file)
        for name, file in files
    ]


def _that_take_turns(files: Sequence[ResultFile], positions: Mapping[str, int]) -> tuple[str, ...]:
    """The fields of a model that change and come back along the commits, ``()`` where none does.

    A model that changes for good is a border, and no other machine.
    """
    ordered = sorted(files, key=lambda file: (positions[file.commit], file.started_ms))
    runs = [model for model, _ in groupby(_model(file, _MODEL) for file in ordered)]
    if len(runs) == len(set(runs)):
        return ()
    return tuple(
        field for field in _MODEL if len({file.machine.get(field, "") for file in files}) > 1
    )


def _model(file: ResultFile, fields: Sequence[str]) -> str:
    found = (file.machine.get(field, "").strip() for field in fields)
    return ", ".join(filter(None, found))[:_LONGEST]
