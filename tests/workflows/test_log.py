"""What a container or an artifact says is text to GitHub's runner, and no order."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.workflows.flow import ONE_OF_ONE, judge
from tests.workflows.stand_in import StandIn, zipped
from warpwatch.__main__ import main
from warpwatch.sandbox import containers

ORDERS = (
    "::add-mask::regressed\n::notice title=Warpwatch::no regression\n##[set-output name=missing]\n"
    "::add-matcher::.lane/x.json\n::stop-commands::mine\nno end of line"
)
_COMMAND = re.compile(r"^\s*::(?P<name>[^: ]+)[^:]*::(?P<value>.*)$|##\[(?P<old>[^ \]]+)")


def heeded(log: str) -> list[str]:
    """The orders that GitHub's runner would take from a log, by its own rules: a line that begins
    with ``::``, or ``##[`` anywhere; while commands are stopped only the word that resumes."""
    taken, word = [], ""
    for line in log.splitlines():
        match = _COMMAND.search(line)
        if match is None:
            continue
        name = match["name"] or match["old"]
        if word:
            word = "" if name == word else word
        elif name == "stop-commands":
            word = match["value"]
        else:
            taken.append(name)
    return [*taken, *(["never resumed"] if word else [])]


class Container:
    """A container that prints and ends, as the docker SDK shows it."""

    id, name, client = "1", "box", None

    def __init__(self, output: bytes) -> None:
        self._output = output
        self.client = self
        self.api = self
        self.images = self
        self.containers = self
        self.attrs: dict[str, str] = {}

    def attach(self, **_: Any) -> list[bytes]:
        return [self._output]

    def wait(self, **_: Any) -> dict[str, int]:
        return {"StatusCode": 0}

    def inspect_container(self, _: str) -> dict[str, dict[str, bool]]:
        return {"State": {"OOMKilled": False}}

    def create(self, **_: Any) -> Container:
        return self

    def get(self, _: str) -> Container:
        return self

    def info(self) -> dict[str, str]:
        return {}

    def start(self, **_: Any) -> None: ...

    def remove(self, **_: Any) -> None: ...


def run_container(folder: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    (folder / ".git").mkdir()
    monkeypatch.setattr(containers, "connect", lambda: Container(ORDERS.encode()))
    command = ["container", "run", "--backend", "cpu", "--repository", str(folder)]
    return main([*command, "--", "true"])


def test_a_container_gives_the_runner_no_orders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    assert run_container(tmp_path, monkeypatch) == 0
    log = capfdbinary.readouterr().out.decode()
    assert ORDERS in log
    assert heeded(log) == []
    assert heeded(ORDERS) == ["add-mask", "notice", "set-output", "add-matcher", "never resumed"]


def test_each_run_stops_them_by_another_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    words = set()
    for number in range(2):
        (tmp_path / str(number)).mkdir()
        run_container(tmp_path / str(number), monkeypatch)
        words |= set(re.findall(rb"^::stop-commands::([0-9a-f]{32})$",
                                capfdbinary.readouterr().out, re.MULTILINE))  # fmt: skip
    assert len(words) == 2


def test_elsewhere_nothing_is_added(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    run_container(tmp_path, monkeypatch)
    assert capfdbinary.readouterr().out.decode() == ORDERS


def test_an_artifact_gives_the_runner_no_orders(
    github: StandIn,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Neither by a name that a refusal quotes, nor where the judge itself fails."""
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    github.artifacts[ONE_OF_ONE] = zipped({f"results/{ORDERS}.json": "{}"})
    assert judge(tmp_path) == 0
    github.trouble["GET pulls"] = [404]
    assert judge(tmp_path) == 3
    out, err = capfd.readouterr()
    assert heeded(out) == [] and "Traceback" in out
    assert err == "", "another stream would be read before or after"


def test_a_mistake_is_quoted_while_orders_are_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    assert main(["ci", "merge", f"{tmp_path}/x", str(tmp_path), "--out", "##[add-mask]x"]) in (0, 3)
    assert main(["ci", "record", "commit", "##[set-output name=x]y"]) == 2
    out, err = capfd.readouterr()
    assert "set-output" in out and heeded(out) == [] and err == ""
