"""Steps that are run, cut off, resumed and kept: by small processes, without a GPU."""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.processes import ends
from tests.root import ROOT
from tools.evidence import __main__ as command
from tools.evidence import runner
from tools.evidence.runner import Record, Run, Step, judged, pack, telling

MADE_BY = {"sources": "a", "triton": "3.6.0", "torch": "2", "commit": "c"}


def step(name: str, code: str, seconds: float = 1.0, must: str = "", **more) -> Step:
    return Step(name, ("-c", code), seconds, "", must, **more)


@dataclass
class Ran(Run):
    code: int = 0


def run(
    folder: Path,
    steps: Sequence[Step],
    seconds: float = 60.0,
    cards: Sequence[str] = ("0",),
    **more,
) -> Ran:
    made_by = more.pop("made_by", MADE_BY)
    until = runner.time.monotonic() + seconds
    made = Ran(steps, cards, folder, folder / "all.tgz", until, made_by, print)
    if more.pop("skip_done", False):
        made.skip_done()
    made.code = made.go()
    return made


class Clock:
    """The runner's time is what it slept since ``begun``: it stands still until then, so that no
    busy machine takes a step's time before its first line. What does not begin within a minute is
    not waited for."""

    time = staticmethod(time.time)

    def __init__(self, begun: Callable[[], bool]) -> None:
        self.begun, self.now, self.last = begun, 0.0, time.monotonic() + 60

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)
        if self.begun() or time.monotonic() > self.last:
            self.now += seconds


def printed(path: Path) -> bool:
    return path.exists() and path.read_text().endswith("\n")


def archived(folder: Path) -> dict[str, str]:
    with tarfile.open(folder / "all.tgz") as archive:
        return {one.name: archive.extractfile(one).read().decode() for one in archive.getmembers()}


def test_what_each_step_left_is_in_the_folder_the_archive_and_the_table(
    tmp_path: Path, capsys
) -> None:
    steps = [
        step("good", "print('12 right'); print('bye')", must=r"\d+ right", tells="right"),
        step("bad", "print('x'); raise SystemExit(1)", must="x"),
        step("said", "print('all: FAILED 3'); print('end')"),
        step("silent", "print('other')", must="figure"),
        step("crash", "import os; print('figure', flush=True); os.abort()", must="figure"),
        step("files", "import sys; open(sys.argv[1] + '/made', 'w').write('1')"),
    ]
    steps[-1] = Step("files", (*steps[-1].command, "{folder}"), 1.0, "", "")
    made = run(tmp_path, steps)
    states = {name: one.state for name, one in made.records.items()}
    assert states == {
        "good": "ok",
        "bad": "failed",
        "said": "failed",
        "silent": "incomplete",
        "crash": "incomplete",
        "files": "ok",
    }
    assert made.code == 1
    kept = archived(tmp_path)
    assert kept["good.txt"] == "12 right\nbye\n" and kept["files/made"] == "1"
    assert {f"{one.name}.json" for one in steps} <= kept.keys() and "all.tgz" not in kept
    assert kept["summary.txt"] == (tmp_path / "summary.txt").read_text()
    rows = kept["summary.txt"].splitlines()
    assert re.fullmatch(r"good +ok +0 +\d s of +1  12 right", rows[0])
    assert re.fullmatch(r"said +failed +0 +\d s of +1  all: FAILED 3", rows[2])
    assert re.fullmatch(r"crash +incomplete +-6 .*  figure", rows[4])
    # Printed after each step, those that are still to come at its end.
    printed = capsys.readouterr().out
    assert printed.count("to come: ") == 5 and printed.count("  12 right") == 7


def test_a_table_of_nothing_but_good_steps_is_good(tmp_path: Path) -> None:
    assert run(tmp_path, [step("one", "pass"), step("two", "pass")]).code == 0
    assert runner.exit_code({}) == 3
    assert runner.exit_code({"one": Record("one", "ok"), "two": Record("two", "not begun")}) == 3


def test_the_time_ends_a_step_and_its_group_and_keeps_what_it_printed(
    tmp_path: Path, monkeypatch
) -> None:
    clock = Clock(lambda: printed(tmp_path / "long.txt"))
    monkeypatch.setattr(runner, "time", clock)
    monkeypatch.setattr(runner, "GRACE_S", 1.0)
    code = (
        "import subprocess, sys, time, signal\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(100)'])\n"
        "print('at', child.pid, flush=True)\n"
        "time.sleep(100)\n"
    )
    made = run(tmp_path, [step("long", code), step("longer", "pass", seconds=30)], seconds=3)
    assert clock.now < 5.5, "what it has, and twice the grace at most"
    one = made.records["long"]
    assert (one.state, one.code, made.code) == ("cut off", -signal.SIGKILL, 3)
    text = (tmp_path / "long.txt").read_text()
    assert one.lines == (text.strip(),) and archived(tmp_path)["long.txt"] == text
    assert ends(int(text.split()[1]))
    assert made.records["longer"].state == "not begun"
    assert not (tmp_path / "longer.txt").exists()


def test_what_is_told_to_end_may_still_print(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(runner, "time", Clock(lambda: printed(tmp_path / "long.txt")))
    monkeypatch.setattr(runner, "GRACE_S", 20.0)
    code = (
        "import signal, sys, time\n"
        "def end(*_): print('a table'); sys.exit(143)\n"
        "signal.signal(signal.SIGTERM, end)\n"
        "print('begun', flush=True); time.sleep(100)\n"
    )
    one = run(tmp_path, [step("long", code)], seconds=21).records["long"]
    assert (one.state, one.code, one.lines) == ("cut off", 143, ("a table",))


def test_a_step_that_hangs_does_not_take_the_others_time(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(runner, "LIMIT_S", 0.0)
    steps = [step("hangs", "import time; time.sleep(100)"), step("next", "print(1)", seconds=20)]
    made = run(tmp_path, steps)
    assert [one.state for one in made.records.values()] == ["cut off", "ok"]


def test_what_cannot_be_ended_is_not_waited_for(tmp_path: Path, monkeypatch) -> None:
    """As a process is that waits for a GPU which hangs."""
    monkeypatch.setattr(runner, "time", Clock(lambda: printed(tmp_path / "hangs.txt")))
    monkeypatch.setattr(runner, "GRACE_S", 0.5)
    signalled = []
    monkeypatch.setattr(runner, "_signal", lambda one, what: signalled.append((one, what)))
    steps = [step("hangs", "import time; print('begun', flush=True); time.sleep(100)")]
    made = run(tmp_path, [*steps, step("next", "pass")], seconds=3)
    process = signalled[0][0].process
    process.kill()
    process.wait(timeout=60)
    assert {signal.SIGTERM, signal.SIGKILL} == {what for _, what in signalled}
    assert [one.state for one in made.records.values()] == ["cut off", "not begun"]
    assert made.code == 3 and archived(tmp_path)["hangs.txt"] == "begun\n"


def test_a_shorter_step_is_begun_where_a_longer_one_would_not_end(tmp_path: Path) -> None:
    made = run(tmp_path, [step("long", "pass", seconds=50), step("short", "pass")], seconds=20)
    assert [made.records[name].state for name in ("long", "short")] == ["not begun", "ok"]
    assert made.records["long"].lines == ("it would not end in time",)


def test_a_step_is_told_the_time_it_has(tmp_path: Path, monkeypatch) -> None:
    """Until its own limit, or the end of all, less what it takes to end."""
    monkeypatch.setattr(runner, "time", Clock(lambda: False))
    code = ("-c", "import sys; print(sys.argv[1])", "{seconds}")
    steps = [Step(f"s{n}", code, n, "", r"\d", ends_s=9.0) for n in (1, 100)]
    made = run(tmp_path, steps, seconds=200)
    assert made.records["s1"].lines == ("53",)  # 2 * 1 + 60 - 9
    assert made.records["s100"].lines == ("186",)  # 200 - 5 - 9
    assert made.records["s1"].command == (*code[:2], "53")


def counting(name: str, place: Path, then: str = "") -> Step:
    return step(
        name, f"open({str(place)!r}, 'a').write('{name} '); print('ran'); {then}", must="ran"
    )


def test_what_finished_is_not_run_again(tmp_path: Path) -> None:
    place, folder = tmp_path / "ran", tmp_path / "out"
    folder.mkdir()
    steps = [
        counting("good", place),
        counting("bad", place, "raise SystemExit(1)"),
        counting("broken", place, "raise SystemExit(2)"),
    ]
    assert run(folder, steps).code == 1
    assert place.read_text().split() == ["good", "bad", "broken"]
    again = run(folder, steps, skip_done=True, made_by={**MADE_BY, "commit": "of docs alone"})
    assert place.read_text().split()[3:] == ["broken"]
    assert again.code == 1 and again.records["bad"].kept and not again.records["broken"].kept
    assert "(before) ran" in (folder / "summary.txt").read_text()
    # Other sources, another Triton, or nothing asked: all run again, and nothing is written over.
    for more in (
        {"made_by": {**MADE_BY, "triton": "3.7.1"}},
        {"made_by": {**MADE_BY, "sources": "b"}},
    ):
        place.write_text("")
        run(folder, steps, skip_done=True, **more)
        assert place.read_text().split() == ["good", "bad", "broken"]
    run(folder, steps[:1])
    names = {path.name for path in folder.glob("good*")}
    assert names == {f"good{n}.{end}" for n in ("", ".1", ".2", ".3") for end in ("txt", "json")}
    (folder / "good.json").write_text('{"step": "go')
    assert runner.read_record(folder / "good.json") is None


ENDLESS = """
import sys, time
from pathlib import Path
from tools.evidence import runner
from tests.tools.test_evidence_runner import MADE_BY, step
runner.ARCHIVE_EVERY_S = 0.05
folder = Path(sys.argv[1])
steps = [
    step("quick", "print('x' * 50_000)"),
    step("long", "import os, time; print(os.getpid(), flush=True)\\nwhile True: "
         "print('y' * 50_000, flush=True); time.sleep(0.01)"),
]
runner.Run(steps, ["0"], folder, folder / "all.tgz", time.monotonic() + 60, MADE_BY).go()
"""


def wait_for(what) -> None:
    until = time.monotonic() + 60
    while not what():
        assert time.monotonic() < until
        time.sleep(0.01)


def test_the_archive_is_whole_when_the_runner_is_killed(tmp_path: Path) -> None:
    pids = []
    for number in range(3):  # at any moment, of writing an archive too
        folder = tmp_path / str(number)
        folder.mkdir()
        process = subprocess.Popen([sys.executable, "-c", ENDLESS, str(folder)], cwd=ROOT)
        try:
            wait_for((folder / "quick.json").exists)
            wait_for((folder / "all.tgz").exists)
            wait_for(lambda at=folder: len(archived(at).get("long.txt", "")) > 50_000)
            time.sleep(0.017 * number)
        finally:
            process.kill()
            process.wait(timeout=60)
            pids.append(int((folder / "long.txt").read_text().split()[0]))
            os.kill(pids[-1], signal.SIGKILL)  # nobody is left to end it
        kept = archived(folder)
        assert kept["quick.txt"] == "x" * 50_000 + "\n" and '"ok"' in kept["quick.json"]
        assert (folder / "long.txt").read_text().startswith(kept["long.txt"])
        assert len(kept["long.txt"]) > 50_000
    steps = [step("quick", "print('again')"), step("long", "print('again')")]
    made = run(folder, steps, skip_done=True)
    assert made.records["quick"].kept and made.records["long"].lines == ("again",)
    assert (folder / "long.1.txt").read_text().startswith(str(pids[-1]))


def test_an_archive_that_cannot_be_written_leaves_the_one_before(
    tmp_path: Path, monkeypatch
) -> None:
    (tmp_path / "one.txt").write_text("1")
    archive = tmp_path / "all.tgz"
    pack(tmp_path, archive)
    (tmp_path / "two.txt").write_text("2")
    with monkeypatch.context() as patch, pytest.raises(OSError, match="full"):
        patch.setattr(io, "BytesIO", lambda _: (_ for _ in ()).throw(OSError("disk is full")))
        pack(tmp_path, archive)
    assert archived(tmp_path) == {"one.txt": "1"}
    pack(tmp_path, archive)
    assert archived(tmp_path) == {"one.txt": "1", "two.txt": "2"}


STOPPED = """
import sys
from tools.evidence import __main__ as command
from tests.tools.test_evidence_runner import step
command.find_cards = lambda asked: ["0"]
long = step("long", "import os, time; print(os.getpid(), flush=True); time.sleep(100)")
sys.exit(command.main(["--out", sys.argv[1]], [long, step("next", "pass")]))
"""


def test_a_stop_ends_what_runs_and_tells_the_table(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", STOPPED, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    text = tmp_path / "long.txt"
    try:
        wait_for(lambda: printed(text))
        process.terminate()
        said, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 143
    assert ends(int(text.read_text()))
    assert re.search(r"^long +cut off", said, re.MULTILINE)
    assert re.search(r"^next +not begun .*stopped before its turn", said, re.MULTILINE)
    assert archived(tmp_path)["summary.txt"].startswith("long ")


def test_without_a_gpu_it_says_so(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    assert command.main(["--out", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err == (
        "error: expected an NVIDIA GPU, found none: nvidia-smi has to list one\n"
    )
    assert not (tmp_path / "out").exists()


def test_mistakes_are_told(tmp_path: Path, monkeypatch, capsys) -> None:
    out = ["--out", str(tmp_path)]
    for given, said in (
        (
            [*out, "--only", "speeed"],
            "--only speeed: expected names, or beginnings, out of paths-1",
        ),
        ([*out, "--seconds", "0"], "expected --out FOLDER and --seconds above 0"),
        ([], "expected --out FOLDER and --seconds above 0"),
        ([*out, "--cards", "0,5"], "--cards 5: expected some of 0,1"),
    ):
        monkeypatch.setattr("tools.kernels.sanitized_paths.find_devices", lambda: ["0", "1"])
        assert command.main(given) == 2
        assert capsys.readouterr().err.startswith(f"error: {said}")


def test_names_are_whole_or_beginnings() -> None:
    steps = [step(name, "") for name in ("speed", "speed-any", "peers-a-1", "peers-a-2")]
    names = [one.name for one in command.chosen(["peers-a", "speed"], steps)]
    assert names == ["speed", "peers-a-1", "peers-a-2"]
    assert command.chosen([], steps) == steps


def test_telling_lines_are_few_and_what_spoils_comes_first() -> None:
    one = step("one", "", tells="mean", spoils="^  ours +[a-z]")
    text = "".join(f"mean {n}\n" for n in range(9)) + "  ours   wrong answer: 0.5\nend\n"
    assert telling(one, text) == ("ours   wrong answer: 0.5", *(f"mean {n}" for n in range(5, 9)))
    assert telling(one, "a\n\nlast\n\n") == ("last",) and telling(one, "") == ()
    assert judged(one, text, 0) == "failed" and judged(one, "", 0) == "ok"
