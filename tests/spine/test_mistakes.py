"""Mistakes that users make: each is one message with its place and remedy, and none is green."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.root import ROOT
from tests.spine import strangers
from warpwatch import __main__ as cli
from warpwatch import project
from warpwatch.commands.setup import doctor

HEAD = 'targets = ["sm_90"]\n[package]\nname = "fastops"\npath = "fastops"\n'
CALL = '[[workload]]\nname = "gelu"\ncall = "fastops.ops.activation:gelu"\nargs = "bf16[64]"\n'
OFFERS = """
def get(name): return {one.name: one for one in all_workloads()}[name]
def fixed_set(): return [(one, "sm_90") for one in all_workloads()]
"""
MODULE = """
from warpwatch.workload.base import Workload
class One(Workload):
    kernel, group, dtype, title = "ops.activation:gelu", "g", "fp32", "t"
    flops = bytes_moved = 1.0
    def __init__(self): pass
    name = property(lambda self: type(self).__name__.lower())
    def inputs(self, device, values="seeded"):
        import torch
        return torch.zeros(64, device=device)
    def call(self, x):
        from fastops.ops.activation import gelu
        return gelu(x)
    def reference(self, x):
        return x
"""
WRONG = """
class Misspelt(One):
    kernel = "ops.activation:gelou"
class Inputs(One):
    def inputs(self, device, values="seeded"):
        return shape
class Call(One):
    def call(self, x):
        return unknown_name(x)
class Renamed(One):
    def call(self, x):
        from fastops.ops import activation
        return activation.gelou(x)
def all_workloads(): return [Misspelt(), Inputs(), Call(), Renamed()]
"""
MODULES = {
    "mistake_raises": "import fastops.nothing\n",
    "mistake_empty": "",
    "mistake_twice": MODULE + "def all_workloads(): return [One(), One()]\n" + OFFERS,
    "mistake_abstract": "from warpwatch.workload.base import Workload\nclass A(Workload): pass\n"
    "def all_workloads(): return [A()]\n" + OFFERS,
}
HISTORY = ("history",)
# The configuration, the command, its exit code, and what its one message says.
MISTAKES: dict[str, tuple[str | None, tuple[str, ...], int, tuple[str, ...]]] = {
    "no configuration": (None, HISTORY, 2, ("toml: no such file", "`warpwatch init` writes one")),
    "no TOML": ("[package", HISTORY, 2, ("warpwatch.toml: cannot be read as TOML", "Expected ']'")),
    "a path to nowhere": (
        HEAD.replace('path = "', 'path = "src/') + CALL,
        HISTORY,
        3,
        ("touches src/fastops", "mend `path` in [package] of", "warpwatch.toml"),
    ),
    "a package that was never committed": (
        HEAD.replace("fastops", "newops") + CALL.replace("fastops", "newops"),
        HISTORY,
        3,
        ("touches newops: nothing to measure", "commit the package first"),
    ),
    "a module misspelt": (
        HEAD + 'workloads = "mistake_nowhere"\n',
        HISTORY,
        2,
        ("[package] cannot import mistake_nowhere", "Mend the name or the module"),
    ),
    "a module that raises": (
        HEAD + 'workloads = "mistake_raises"\n',
        HISTORY,
        2,
        ("cannot import mistake_raises", "No module named 'fastops.nothing'", "Mend the"),
    ),
    "a module without functions": (
        HEAD + 'workloads = "mistake_empty"\n',
        HISTORY,
        2,
        ("mistake_empty has no all_workloads fixed_set get", "expected the functions"),
    ),
    "an abstract workload": (
        HEAD + 'workloads = "mistake_abstract"\n',
        HISTORY,
        2,
        ("mistake_abstract: TypeError: Can't instantiate abstract class A", "Mend the module"),
    ),
    "two of one name": (
        HEAD + 'workloads = "mistake_twice"\n',
        HISTORY,
        2,
        ("warpwatch.toml: two workloads are called 'one': rename one of them",),
    ),
    "a set that names nothing": (
        HEAD + '[sets]\nhistory = ["gelo"]\n' + CALL,
        HISTORY,
        2,
        ("[sets] names 'gelo', which is no workload: did you mean gelu?",),
    ),
    "a target misspelt": (
        HEAD.replace("sm_90", "sm_91") + CALL,
        HISTORY,
        2,
        (
            "targets: unknown target 'sm_91', expected one of sm_80 sm_90 sm_100 ",
            " (the default ones), sm_103 sm_120 gfx1201 gfx1250 (where named)",
        ),
    ),
    "a dtype misspelt": (
        HEAD + CALL.replace("bf16", "bf61"),
        HISTORY,
        2,
        ("[[workload]] 1 (gelu) args: 'bf61[64]': unknown dtype",),
    ),
    "an unknown workload": (
        HEAD + CALL,
        ("inspect", "gelo"),
        2,
        ("unknown workload 'gelo': did you mean gelu?",),
    ),
    "an unknown commit": (
        HEAD + CALL,
        ("compare", "nowhere", "HEAD"),
        2,
        (
            "'nowhere' is no commit of",
            "expected a hash, a branch or a tag",
            "pull/NUMBER/head` brings",
        ),
    ),
    "no repository": (
        HEAD.replace("[package]\n", '[package]\nrepository = "../no-repository"\n') + CALL,
        HISTORY,
        2,
        ("no-repository is no git repository", "`git init`", "set `repository` in [package]"),
    ),
}
# Calls, and what `doctor` says of each.
CALLS = {
    "misspelt": (
        "fastops.ops.activation:gelou",
        "bf16[64]",
        "has no ops.activation:gelou; did you",
    ),
    "module": (
        "fastops.ops.activatoin:gelu",
        "bf16[64]",
        "has no ops.activatoin:gelu; did you mean activation?",
    ),
    "elsewhere": (
        "fastopps.ops:gelu",
        "bf16[64]",
        "cannot import fastopps.ops",
    ),
    "without": ("fastops.ops.activation:gelu", "", "missing a required argument: 'x', for gelu(x)"),
    "kernel": ("fastops.ops.activation:_gelu", "bf16[64]", "is a Triton kernel, which has no grid"),
    "kind": ("fastops.ops.activation:gelu", "3", "kind: call failed: AttributeError: 'int' object"),
    "good": ("fastops.ops.activation:gelu", "bf16[64]", ""),
}


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = strangers.repository(tmp_path_factory.mktemp("mistakes"), strangers.LAYOUTS["flat"])
    (folder.parent / "no-repository").mkdir()
    (folder / "newops").mkdir()
    (folder / "newops" / "__init__.py").touch()
    for name, text in MODULES.items():
        (folder / f"{name}.py").write_text(text)
    (folder / "mistake_measured.py").write_text(MODULE + WRONG + OFFERS)
    return folder


@pytest.fixture
def inside(repository: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(repository)
    monkeypatch.delenv(project.FILE_VARIABLE, raising=False)
    yield repository
    (repository / project.FILE_NAME).unlink(missing_ok=True)


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_message(
    inside: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    text, command, code, parts = MISTAKES[name]
    if text is not None:
        (inside / project.FILE_NAME).write_text(text)
    assert cli.main(command) == code
    said = capsys.readouterr()
    assert said.out == "" and "Traceback" not in said.err
    assert len(said.err.splitlines()) <= 2, said.err
    for part in parts:
        assert part in said.err


def tried(capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    """What `doctor` finds at HEAD, and the states of its checks."""
    cli.main(["doctor", "--json"])
    found = {one["name"]: one for one in json.loads(capsys.readouterr().out)["checks"]}
    assert found["measured package"]["state"] == "ok", found["measured package"]
    head = found["kernels at HEAD"]
    return {key: head[key] for key in ("state", "detail", "remedy")}


def test_a_call_that_cannot_be_made_is_found_before_a_history(
    inside: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = os.environ.get("PYTHONPATH", "")
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}{os.pathsep}{path}")
    monkeypatch.setattr(doctor, "_SHOWN_TRIALS", len(CALLS))
    (inside / project.FILE_NAME).write_text(
        HEAD
        + "".join(
            f'[[workload]]\nname = "{name}"\ncall = "{call}"\nargs = "{args}"\n'
            for name, (call, args, _) in CALLS.items()
        )
    )
    head = tried(capsys)
    assert (head["state"], head["remedy"]) == ("missing", "mend those workloads' call or args")
    assert head["detail"].startswith("6 of 7 workloads cannot run: ")
    for _, _, said in CALLS.values():
        assert said in head["detail"]


@pytest.mark.parametrize(
    ("line", "state", "said"),
    [
        ("import einopsy", "missing", "No module named 'einopsy' (fastops/__init__.py:1)"),
        (
            "import torch; torch.cuda.get_device_properties(0)",
            "ok",
            "1 workload finds its kernel and builds its inputs; all calls tried without a GPU",
        ),
    ],
    ids=["lacks-a-package", "asks-for-a-card"],
)
def test_an_import_lacks_a_package_or_asks_for_a_card_that_recordings_have(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    line: str,
    state: str,
    said: str,
) -> None:
    folder = strangers.repository(tmp_path, strangers.LAYOUTS["flat"])
    (folder / "fastops" / "__init__.py").write_text(f"{line}\n")
    strangers.git(folder, "commit", "--quiet", "--all", "--message", "another import")
    (folder / project.FILE_NAME).write_text(HEAD + CALL)
    monkeypatch.chdir(folder)
    monkeypatch.delenv(project.FILE_VARIABLE, raising=False)
    path = os.environ.get("PYTHONPATH", "")
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}{os.pathsep}{path}")
    head = tried(capsys)
    assert head["state"] == state
    assert said in head["detail"]
    assert (state == "ok") == ("install next to asv what it lacks" not in head["remedy"])


def test_mistakes_in_workloads_are_the_users_and_none_is_green(
    inside: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel that is nowhere, names that do not exist in ``inputs`` and in ``call``, and there a
    function that the package lacks."""
    # The processes that measure find this checkout as they find an installed one.
    path = os.environ.get("PYTHONPATH", "")
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}{os.pathsep}{path}")
    (inside / project.FILE_NAME).write_text(HEAD + 'workloads = "mistake_measured"\n')
    assert cli.main(["inspect", "misspelt", "inputs", "call", "--target", "sm_90"]) == 3
    said = capsys.readouterr().out
    assert "not applicable: fastops has no ops.activation:gelou" in said
    where = "NameError: name 'shape' is not defined (mistake_measured.py:"
    assert f"mistake in the workload (inputs): {where}" in said
    where = "NameError: name 'unknown_name' is not defined (mistake_measured.py:"
    assert f"mistake in the workload (call): {where}" in said
    assert cli.main(["doctor"]) == 2
    said = capsys.readouterr().out
    assert "4 of 4 workloads cannot run: misspelt: fastops has no ops.activation:gelou" in said
    assert f"call: not measured: mistake in the workload (call): {where}" in said
    lacking = "module 'fastops.ops.activation' has no attribute 'gelou'"
    assert f"renamed: not applicable: AttributeError: {lacking}" in said
    assert "->  mend those workloads' call or args" in said
