"""What is read once is kept: new files in chunks of their own, and none of it trusted blindly."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.reports import trees
from warpwatch.judge.results import folders as reading
from warpwatch.judge.results import store
from warpwatch.judge.results.processes import Workers
from warpwatch.judge.results.result_file import ResultFile

COMMITS = 8


@pytest.fixture
def tree(tmp_path: Path) -> trees.Tree:
    made = trees.make_repository(tmp_path, COMMITS)
    made.add_benchmark("bench.time_it", [["one", "two"]])
    made.write_benchmarks()
    made.write_machine("rig")
    for commit in range(3):
        write(made, commit)
    return made


def write(tree: trees.Tree, commit: int, factor: float = 1.0) -> Path:
    values: list[float | None] = [factor * (commit + 1.0), None]
    return tree.write_result(commit, {"bench.time_it": values}, intervals=0.01)


def results(tree: trees.Tree) -> list[ResultFile]:
    """What a build would see."""
    with Workers(1) as workers:
        found = reading.read_folders(
            [tree.results],
            reading.list_folders([tree.results]),
            workers,
            store.Store(tree.root / "cache"),
        )
    return [one for _, one in found.files]


def read(tree: trees.Tree) -> dict[str, str]:
    """The same by file: values, low and high."""
    return {
        one.path.name: repr([one.values.tolist(), one.low.tolist(), one.high.tolist()])
        for one in results(tree)
    }


def afresh(tree: trees.Tree) -> dict[str, str]:
    return {
        one.path.name: repr([one.values.tolist(), one.low.tolist(), one.high.tolist()])
        for _, one in reading.read_folder(tree.results).files
    }


def chunks(tree: trees.Tree) -> dict[str, tuple[int, int]]:
    """The size and the place of each file of values."""
    found = {path.name: path.stat() for path in (tree.root / "cache").glob("values-*.npy")}
    return {name: (one.st_size, one.st_ino) for name, one in found.items()}


def test_only_new_files_are_written(tree: trees.Tree) -> None:
    assert read(tree) == afresh(tree)
    (before,) = chunks(tree).items()
    write(tree, 3)
    assert read(tree) == read(tree) == afresh(tree)
    after = chunks(tree)
    assert len(after) == 2
    assert before in after.items()


def test_a_new_file_has_the_layout_of_those_remembered(tree: trees.Tree) -> None:
    """One object: series are laid out once for each."""
    read(tree)
    write(tree, 3)
    found = results(tree)
    assert len(found) == 4
    assert len({id(one.rows) for one in found}) == 1


def test_a_chunk_goes_with_the_last_of_its_files(tree: trees.Tree) -> None:
    read(tree)
    path = write(tree, 3)
    read(tree)
    write(tree, 3, 2.5)  # changed: its old values are nobody's
    assert read(tree) == afresh(tree)
    assert len(chunks(tree)) == 2
    path.unlink()
    assert read(tree) == afresh(tree)
    assert len(chunks(tree)) == 1


def test_many_chunks_become_one(tree: trees.Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "_MOST_CHUNKS", 3)
    counts = []
    for commit in range(3, COMMITS):
        write(tree, commit)
        assert read(tree) == afresh(tree)
        counts.append(len(chunks(tree)))
    assert counts == [1, 2, 3, 1, 2]


@pytest.mark.parametrize("damage", ["gone", "short", "other"])
def test_a_broken_chunk_is_read_afresh(tree: trees.Tree, damage: str) -> None:
    read(tree)
    write(tree, 3)
    read(tree)
    path = sorted((tree.root / "cache").glob("bounds-*.npy"))[0]
    if damage == "gone":
        path.unlink()
    elif damage == "short":
        path.write_bytes(path.read_bytes()[:-4])
    else:
        np.save(path, np.zeros((2, 1), dtype=np.float32))
    assert read(tree) == afresh(tree)
    assert len(chunks(tree)) == 1
