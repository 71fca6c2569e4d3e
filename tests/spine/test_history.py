"""`history`: which commits asv measures at one time, and what it is alone for."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

import pytest
from asv.machine import Machine

from warpwatch import project
from warpwatch.commands.measure import history, queues

COMMITS = [f"c{number}" for number in range(1, 6)]
# Says what it is asked as asv would say it, and notes when.
ASV = """
import os, sys, time

queue = os.environ["WARPWATCH_QUEUE"]
benches = [two for one, two in zip(sys.argv, sys.argv[1:]) if one == "--bench"]


def note(what):
    with open(os.environ["NOTES"], "a") as file:
        card = os.environ.get("CUDA_VISIBLE_DEVICES", "")
        file.write(f"{what} {queue or '1'} {' '.join([*benches, card]).strip()}\\n")


note("begins")
for commit in sys.stdin.read().split():
    time.sleep(0.3)
    note(commit)
    print(f"[ 0.00%] · For own commit {commit}:", flush=True)
    print("[ 1.00%] ··· Setting up compiled:36        ok", flush=True)
    print("[ 2.00%] ··· compiled.A.track_launches     ok", flush=True)
note("ends")
sys.exit(3 if queue == os.environ.get("STOPS") else 0)
"""

# This asv leaves no evidence.
NOTHING_MEASURED = 3


@pytest.fixture
def asv(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    (tmp_path / "path" / "asv").mkdir(parents=True)
    (tmp_path / "path" / "asv" / "__main__.py").write_text(ASV)
    (tmp_path / "path" / "asv" / "__init__.py").touch()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "path"))
    monkeypatch.setenv("NOTES", str(tmp_path / "notes"))
    monkeypatch.setattr(project, "folder", lambda: tmp_path)
    monkeypatch.setattr(history, "is_registered", lambda machine: True)
    monkeypatch.setattr(history, "commits_that_touch", lambda path, count: COMMITS[:count])
    monkeypatch.setattr(history, "subjects_of", lambda repository, commits: {"c1": "A subject"})
    monkeypatch.setattr(history.presence, "has_gpu", lambda: False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1})
    return tmp_path / "notes"


def run(*bench: str, commits: int = 5) -> int:
    chosen = {"commits": commits, "tags": None, "touching": None, "again": False}
    return history.main(argparse.Namespace(**chosen, bench=list(bench), machine=None))


def test_what_is_compiled_shares_the_machine_and_what_is_timed_has_it_alone(
    asv: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run() == NOTHING_MEASURED
    notes = [line.split() for line in asv.read_text().splitlines()]
    assert notes[0] == ["begins", "1", "^compiled"]
    assert notes[1] == ["c1", "1", "^compiled"], "the others begin when this is compiled"
    second, third = ["c2", "2", "^compiled"], ["begins", "3", "^compiled"]
    assert notes.index(second) < notes.index(third), "both would write asv's machine file at once"
    timed = notes.index(["begins", "host", "^host"])
    assert [what for what, *_ in notes[:timed]].count("ends") == 3
    assert [note[0] for note in notes[timed:]] == ["begins", *COMMITS, "ends"]
    dealt = {name: [what for what, queue, _ in notes[:timed] if queue == name] for name in "123"}
    assert dealt == {
        "1": ["begins", "c1", "c4", "ends"],
        "2": ["begins", "c2", "c5", "ends"],
        "3": ["begins", "c3", "ends"],
    }
    logs = {path.name for path in (tmp_path / ".asv").glob("*.log")}
    assert logs == {"run.log", "run-2.log", "run-3.log", "run-host.log"}
    said = capsys.readouterr().err
    assert "   3 [ 0.00%] · For own commit c3:" in said
    assert "track_launches" not in said
    done = [line for line in said.splitlines() if " done: " in line]
    assert [line.split(" done:")[0] for line in done] == [
        *(f"commit {number} of 5" for number in range(1, 6)),
        *(f"host's times of commit {number} of 5" for number in range(1, 6)),
    ], "those of all queues are counted together"
    assert sorted(line.split()[5].rstrip(";") for line in done[:5]) == COMMITS
    assert "c1 “A subject”; nothing measured; took 0 s; about " in said
    assert all(line.endswith(" left, without the host's times") for line in done[:4])
    assert done[8].endswith(" left") and done[9].endswith("took 0 s"), "nothing is left"


@pytest.mark.parametrize(
    "found",
    [{}, {"host.Calls.time_call": {"params": [[]]}}, {"compiled.A.track_b": {"params": [["x"]]}}],
    ids=["none", "no-values", "others"],
)
def test_a_package_whose_host_nothing_times_has_no_last_run(
    asv: Path, tmp_path: Path, found: dict[str, object], capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / ".asv" / "results").mkdir(parents=True)
    kept = tmp_path / ".asv" / "results" / "benchmarks.json"
    kept.write_text(json.dumps({**found, "version": 2}))
    assert run(commits=2) == NOTHING_MEASURED
    assert "host" not in asv.read_text()
    assert " left\n" in (said := capsys.readouterr().err) and "host" not in said
    kept.write_text(json.dumps({"host.Calls.time_call": {"params": [["x"]]}, "version": 2}))
    assert run(commits=1) == NOTHING_MEASURED
    assert "begins host ^host" in asv.read_text()


def test_each_of_several_cards_has_its_commits_and_the_host_is_timed_alone(
    asv: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(history.presence, "has_gpu", lambda: True)
    monkeypatch.setattr(history.clocks, "alike", lambda: ["GPU-a", "GPU-b"])
    assert run() == NOTHING_MEASURED
    notes = [line.split() for line in asv.read_text().splitlines()]
    of = {card: [what for what, *_, on in notes if on == card] for card in ("GPU-a", "GPU-b")}
    assert of == {
        "GPU-a": ["begins", "c1", "c3", "c5", "ends"],
        "GPU-b": ["begins", "c2", "c4", "ends"],
    }
    assert notes.index(["begins", "2", "^(?!host)", "GPU-b"]) < notes.index(
        ["c3", "1", "^(?!host)", "GPU-a"]
    )
    last = [note for note in notes if note[-1] == "^host"]
    assert notes[-len(last) :] == last and [one[0] for one in last][1:-1] == COMMITS
    asv.unlink()
    run("host.*track_import_s")
    assert "GPU" not in asv.read_text(), "what times the host has the machine to itself"


def test_a_gpu_is_for_one_at_a_time(asv: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history.presence, "has_gpu", lambda: True)
    assert run() == NOTHING_MEASURED
    assert asv.read_text().split() == [
        "begins",
        "1",
        *" 1 ".join(COMMITS).split(),
        "1",
        "ends",
        "1",
    ]


def test_named_benchmarks_may_be_timed_and_run_one_at_a_time(asv: Path) -> None:
    assert run("Attention", commits=2) == NOTHING_MEASURED
    assert asv.read_text().splitlines()[-1] == "ends 1 Attention"
    assert asv.read_text().count("begins") == 1


@pytest.mark.parametrize(("queue", "log"), [("2", "run-2.log"), ("host", "run-host.log")])
def test_any_of_them_that_stops_fails_the_history_and_names_its_log(
    asv: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    queue: str,
    log: str,
) -> None:
    monkeypatch.setenv("STOPS", queue)
    assert run(commits=2) == 2
    said = capsys.readouterr().err
    ends = {"2": "\ncommit 2 of 2 done: ", "host": "\nhost's times of commit 2 of 2 done: "}
    assert ends.pop(queue) not in said, "asv stopped after it began"
    assert all(end in said for end in ends.values())
    assert f"asv stopped with exit code 3; its output: {tmp_path / '.asv' / log}" in said


def test_one_core_and_one_commit_have_one_queue(asv: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [one.name for one in queues.queues(["c1"], [])] == [""]
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0})
    assert [one.name for one in queues.queues(COMMITS, [])] == [""]


def test_a_machine_of_a_given_name_is_described_as_one_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert not history.is_registered("rig")
    history.register("rig")
    assert history.is_registered("rig")
    written = json.loads((tmp_path / ".asv-machine.json").read_text())["rig"]
    assert written == Machine.get_defaults() | {"machine": "rig"}
    assert written["cpu"] and written["arch"]
