"""A stranger's package, in each layout, from an empty configuration to a report."""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from tests import forked as forks
from tests.spine import strangers
from warpwatch import project
from warpwatch.asv import configuration
from warpwatch.commands.setup import init, proposal, starter
from warpwatch.config import package as config
from warpwatch.workload.kernel import find_kernel


def run(
    folder: Path, *arguments: str, seconds: float = 600, forked: bool = False
) -> tuple[int, str, str]:
    """Run the command in a folder as its user would: this checkout is not on the path."""
    environment = {
        k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "WARPWATCH_CONFIG")
    }
    if forked:
        done = forks.warpwatch(*arguments, folder=folder, environment=environment, seconds=seconds)
        return done.returncode, done.stdout, done.stderr
    done = subprocess.run(
        [sys.executable, "-P", "-m", "warpwatch", *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=seconds,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", strangers.LAYOUTS)
def test_from_nothing_to_a_report(name: str, tmp_path: Path) -> None:
    layout = strangers.LAYOUTS[name]
    # One layout by processes of their own, as a user has them.
    warpwatch = partial(run, forked=name != "flat")
    folder = strangers.repository(tmp_path, layout)
    code, out, err = warpwatch(folder, "init")
    assert code == 0, err
    assert out.strip() == str(folder / "warpwatch.toml")
    assert "arguments that fit: `warpwatch record --write -- pytest FILE`" in err
    written = (folder / "warpwatch.toml").read_text("utf-8")
    assert f'path = "{layout.path}"' in written
    assert f'call = "{layout.name}.ops.activation:gelu"' in written
    # It cannot be called with a tensor: the trial says why, and it is no workload.
    assert '# name = "wants_a_dictionary-bf16"' in written and "# Not recorded (" in written
    (folder / "warpwatch.toml").write_text(written.replace(', "gfx942"', ""))

    code, out, err = warpwatch(folder, "doctor")
    assert code == 0, out + err
    assert f"ok       measured package     {layout.name} from {folder / layout.path}" in out

    code, out, err = warpwatch(folder, "history", "--commits", "2", "--bench", "^compiled")
    assert code == 0, err
    assert err.endswith("compiled: 2 of 2 pairs of workload and target measured\n"), err
    assert strangers.git(folder, "status", "--porcelain") == "?? warpwatch.toml"

    code, out, err = warpwatch(folder, "report")
    assert code == 0, err
    found = json.loads((folder / "reports" / "html" / "regressions.json").read_text("utf-8"))
    assert found["findings"] or "2 commits" in err
    (summed,) = (line for line in err.splitlines() if " files written, " in line)
    assert re.search(r"\b1 finding$|\b(0|[2-9]|\d\d+) findings$", summed), summed
    code, out, err = warpwatch(folder, "compare", "--recorded", "HEAD~1", "HEAD", "--json")
    assert code == 1, err
    worse = [one for one in json.loads(out)["series"] if one["verdict"] == "regressed"]
    assert {one["metric"] for one in worse} >= {"copied_bytes", "launches"}

    # The working tree is the newest commit; the one before has no copy.
    code, out, err = warpwatch(
        folder, "inspect", "--diff", "HEAD~1", ".", "gelu-bf16", "--target", "sm_90"
    )
    assert code == 1, out + err
    code, out, err = warpwatch(
        folder, "inspect", "--diff", "HEAD", ".", "gelu-bf16", "--target", "sm_90"
    )
    assert (code, "1 same" in out) == (0, True), out + err
    if name == "src":
        function = f"{layout.name}.ops.activation:gelu"
        asked = ("inspect", function, "--args", "fp16[64,128]", "--target", "sm_90")
        code, out, err = warpwatch(folder, *asked)
        assert code == 0 and "_gelu" in out, out + err


def test_a_kernel_that_is_nowhere_is_said_and_nothing_is_green(tmp_path: Path) -> None:
    folder = strangers.repository(tmp_path, strangers.LAYOUTS["flat"])
    (folder / "warpwatch.toml").write_text(
        'targets = ["sm_90"]\n[package]\nname = "fastops"\npath = "fastops"\n'
        '[[workload]]\nname = "gelu"\ncall = "fastops.ops.activation:gelu"\nargs = "bf16[64]"\n'
        '[[workload]]\nname = "glu"\ncall = "fastops.ops.activation:glu"\nargs = "bf16[64]"\n'
    )
    # That one of them is measured makes the other no less blind.
    code, _, err = run(folder, "history", "--commits", "1", "--bench", "launches")
    assert code == 3, err
    assert "compiled: 1 of 2 pairs of workload and target measured" in err
    why = "fastops has no ops.activation:glu; did you mean gelu or _gelu? (such as glu on sm_90)"
    assert f"  1 not applicable: {why}" in err
    assert "no value at any of these commits: glu\n" in err + "\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, "no such file. `warpwatch init` writes one"),
        ("[package", "cannot be read as TOML"),
        ('[package]\nname = "a"\npath = "a"\n', "nothing to measure"),
        ('[package]\nname = "a-b"\npath = "../x"\n', "dotted Python name, got 'a-b'"),
        ('[package]\nname = "a.b"\npath = "b"\n', "a folder that ends in a/b for a.b, got 'b'"),
        ('targets = ["sm_91"]\n[package]\nname = "a"\npath = "a"\n', "unknown target 'sm_91'"),
    ],
)
def test_a_wrong_configuration_is_one_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None, expected: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(project.FILE_VARIABLE, raising=False)
    if text is not None:
        Path("warpwatch.toml").write_text(text)
    with pytest.raises(ValueError) as raised:
        config.load()
    assert expected in str(raised.value)


def test_all_mistakes_of_a_configuration_are_listed(tmp_path: Path) -> None:
    file = tmp_path / "warpwatch.toml"
    file.write_text(
        'colour = "red"\ntargts = []\ntargets = ["sm_91"]\n'
        '[package]\nname = "a"\npath = "/a"\nnames = "b"\n'
        '[sets]\nhistori = []\nhost = "x"\n'
        '[[workload]]\nname = "one"\ncall = "a"\nargs = "bf17[4]"\n'
        '[[workload]]\nname = "two"\ncall = "a:b"\n[[workload]]\nname = "two"\ncall = "a:c"\n'
        "[[workload]]\nname = 3\nflops = -1\narg = 1\n"
    )
    with pytest.raises(ValueError) as raised:
        config.load(file)
    said = str(raised.value)
    for part in (
        "colour: unknown key, expected one of package sets targets workload",
        "targts: unknown key; did you mean targets?",
        "[package] names: unknown key; did you mean name?",
        "[package] path: expected a folder inside the repository, got '/a'",
        "[sets] histori: unknown key; did you mean history?",
        "[sets] host: expected a list",
        "[[workload]] 1 (one) call: expected package.module:function",
        "[[workload]] 1 (one) args: 'bf17[4]': unknown dtype",
        "[[workload]]: two are called 'two'",
        "[[workload]] 4 call: is missing",
        "[[workload]] 4 name: expected text, got 3",
        "[[workload]] 4 arg: unknown key; did you mean args?",
        "targets: unknown target 'sm_91'",
    ):
        assert part in said, part


def test_a_section_of_pyproject_serves_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pyproject.toml").write_text(
        '[tool.warpwatch.package]\nname = "a"\npath = "src/a"\nworkloads = "w"\n'
    )
    (tmp_path / "deep" / "down").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "deep" / "down")
    monkeypatch.delenv(project.FILE_VARIABLE, raising=False)
    found = config.load()
    assert (found.name, found.source_root) == ("a", tmp_path / "src")


def test_the_repository_may_be_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "watch").mkdir()
    strangers.repository(tmp_path / "library", strangers.LAYOUTS["src"])
    file = tmp_path / "watch" / "warpwatch.toml"
    file.write_text(
        '[package]\nname = "fastops"\npath = "src/fastops"\nrepository = "../library"\n'
        'workloads = "w"\n'
    )
    monkeypatch.setenv(project.FILE_VARIABLE, str(file))
    assert config.load().source_root == tmp_path / "library" / "src"
    assert configuration.options()[0] == "--config"
    written = json.loads(Path(configuration.options()[1]).read_text("utf-8"))
    assert written["repo"] == str(tmp_path / "library")
    assert not list((tmp_path / "library").glob(".asv"))


def test_one_call_is_written_in_the_singular() -> None:
    assert [init._calls(count) for count in (0, 1, 2)] == ["0 calls", "1 call", "2 calls"]


def test_init_writes_nothing_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="no package with Triton code"):
        init._chosen(tmp_path, None)
    (tmp_path / "docker").mkdir()
    (tmp_path / "docker" / "compose.yaml").write_text("mine")
    with pytest.raises(ValueError, match=r"exist already, and nothing was written: docker/comp"):
        starter.write(tmp_path, starter.origin_of("team/warpwatch"))
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["compose.yaml"]
    (tmp_path / "docker" / "compose.yaml").unlink()
    starter.write(tmp_path, starter.origin_of("team/warpwatch"))
    assert (tmp_path / "docker" / "versions.toml").is_file()
    assert (tmp_path / ".github" / "workflows" / "warpwatch.yml").is_file()
    assert not (tmp_path / ".github" / "workflows" / "tests.yml").exists()


def test_several_packages_are_named(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("import triton\n")
    assert [one.path for one in proposal.find_packages(tmp_path)] == ["one", "two"]
    with pytest.raises(ValueError, match=r"one, two\): name one with --package"):
        init._chosen(tmp_path, None)
    assert init._chosen(tmp_path, "two/").name == "two"


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("import torch, triton, triton.language as tl", True),
        ("from triton import jit", True),
        ("import torch, tritonclient", False),
        ("from .triton import kernel", False),
    ],
)
def test_a_package_imports_triton_however_it_is_written(
    line: str, found: bool, tmp_path: Path
) -> None:
    (tmp_path / "ops").mkdir()
    (tmp_path / "ops" / "__init__.py").write_text(f"{line}\n")
    assert [one.name for one in proposal.find_packages(tmp_path)] == ["ops"] * found


def test_a_function_may_hide_the_module_of_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "hides" / "ops"
    folder.mkdir(parents=True)
    (folder.parent / "__init__.py").touch()
    (folder / "__init__.py").write_text("from hides.ops.softmax import softmax\n")
    (folder / "softmax.py").write_text("def softmax(x): ...\nclass Softmax:\n    apply = softmax\n")
    (folder / "needs.py").write_text("import no_such_dependency\n")
    monkeypatch.syspath_prepend(tmp_path)
    package = importlib.import_module("hides")
    try:
        assert find_kernel(package, "ops.softmax:softmax") is package.ops.softmax
        assert find_kernel(package, "ops.softmax:Softmax.apply") is package.ops.softmax
        assert find_kernel(package, "ops.softmax") is package.ops.softmax
        for absent in ("ops.softmax:gelu", "ops.gelu:gelu", "nothing.gelu:gelu", "ops.gelu"):
            assert find_kernel(package, absent) is None
        for name in ("ops.needs:softmax", "ops.needs"):
            with pytest.raises(ImportError, match="no_such_dependency"):
                find_kernel(package, name)
    finally:
        for name in [one for one in sys.modules if one.partition(".")[0] == "hides"]:
            del sys.modules[name]
