"""What another Triton does: the command with two real Tritons, and its page."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import triton

from warpwatch.__main__ import main
from warpwatch.config import targets
from warpwatch.instruments.compiled.diff import assemblers, sides
from warpwatch.instruments.compiled.diff.comparison import Change, Compared
from warpwatch.instruments.compiled.diff.upgrade_page import markdown, unknown_of
from warpwatch.instruments.compiled.measure.jobs import Job, Result

OTHER = "3.6.0"


@pytest.fixture(scope="module")
def upgradable(project: Any) -> Any:
    """The project, with another Triton beside the installed one."""
    try:
        folder = sides.triton_folder(OTHER)
    except ValueError as error:
        pytest.skip(f"Triton {OTHER} cannot be had here: {error}")
    assert folder is not None, f"Triton {OTHER} is the installed one"
    place = project.folder / ".asv" / "triton" / OTHER
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(folder)
    # A kernel that only the other version runs, as a package would choose it.
    file = project.folder / "own" / "__init__.py"
    committed = file.read_text()
    file.write_text(
        committed
        + "\n\nimport warnings\n\n"
        + "renamed_kernel = triton.jit(scale_kernel.fn)\n"
        + f"if triton.__version__ != {OTHER!r}:\n"
        + "    two_launches = scale\n\n"
        + "    def scale(x):\n"
        + "        warnings.warn('own: the slow scale serves', RuntimeWarning)\n"
        + "        y = two_launches(x)\n"
        + "        scale_kernel[(1,)](x, y, x.numel(), BLOCK=64)\n"
        + "        return y\n"
    )
    yield project
    file.write_text(committed)


def test_two_tritons_are_compared_kernel_by_kernel(upgradable: Any, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    installed = triton.__version__
    arguments = ("upgrade", installed, "--from", OTHER, "--page", page, "--json", "-")
    done = upgradable.benchmarks(*arguments)
    assert done.returncode == 1, done.stderr
    assert f"compiling 3 pairs with triton {OTHER}" in done.stderr
    found = json.loads(done.stdout)
    assert (found["schema_version"], found["old"], found["new"]) == (1, OTHER, installed)
    assert found["unknown_instructions"] == []
    words = {(one["name"], one["target"]): one["verdict"] for one in found["compared"]}
    assert words["scale-5000", "sm_90"] == words["scale-5000", "gfx942"] == "regressed"
    assert words["gram-64x256", "sm_90"] not in ("missing", "nothing")
    text = page.read_text()
    assert f"# Triton {OTHER} to {installed}" in text
    assert "| more launches | 2 | gfx942 (1), sm_90 (1) |" in text
    assert "- own: the slow scale serves" in text
    assert "| scale_kernel, scale_kernel -> scale_kernel, scale_kernel, scale_kernel |" in text


def test_inspect_compares_two_tritons_too(upgradable: Any) -> None:
    sides_asked = ("--diff", OTHER, triton.__version__)
    done = upgradable.benchmarks("inspect", "own:gram", "--args", "fp16[64,128]", *sides_asked,
                                 "--target", "sm_80", "--code", "--json", "-")  # fmt: skip
    assert done.returncode in (0, 1), done.stderr
    found = json.loads(done.stdout)
    assert [one["label"] for one in found["sides"]] == [
        f"triton {OTHER}",
        f"triton {triton.__version__}",
    ]
    (compared,) = found["compared"]
    assert compared["word"] != "nothing"
    assert bool(found["code"]) == (compared["word"] != "same")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("newest",), "expected a version of Triton such as 3.9.0, got 'newest'"),
        (("3.9.0", "--from", "old"), "expected a version of Triton such as 3.9.0, got 'old'"),
        (("3.9.0", "--match", "zzz"), "no workload of the fixed set holds 'zzz'"),
        ((triton.__version__,), "name another version"),
    ],
)
def test_mistakes_are_said_before_anything_is_compiled(
    arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["upgrade", *arguments]) == 2
    assert message in capsys.readouterr().err


# The page -----------------------------------------------------------------------------------------


def row(name: str, word: Any, *changes: Change, target: str = "sm_80", **more: Any) -> Compared:
    return Compared(name, target, word, changes, **more)


def test_the_page_ranks_what_got_worse_and_names_target_and_cause() -> None:
    small = Change("spilled_bytes", 0, 20, False)
    large = Change("spilled_bytes", 0, 144, False)
    flavour = Change("tensor_core_level", 2, 1, False)
    better = Change("bound_us", 100.0, 90.0, True)
    text = markdown(
        [
            row("gone", "missing", causes=("CompilationError: no | such",), target="gfx90a"),
            row("serial", "regressed", flavour, causes=("k: wgmma -> mma",), target="sm_90"),
            row("much", "regressed", large, better, causes=("k: spilled bytes 0 -> 144", "k: why")),
            row("little", "regressed", small),
            row("fast", "improved", better),
            row("x", "other code", target="gfx942"),
            row("y", "same", target="gfx942"),
            row("z", "nothing", target="gfx942"),
        ],
        "3.6.0",
        "3.9.0",
        "warpwatch upgrade 3.9.0 --from 3.6.0",
    )
    first = text.index("## What got worse")
    summary = text[first : text.index("## Compiled before")].splitlines()
    assert [line.split(" | ")[0] for line in summary if line.startswith("| ")][1:] == [
        "| compiled before, does not now",
        "| tensor-core flavour lost",
        "| registers spill",
    ]
    assert "| registers spill | 2 | sm_80 (2) | much on sm_80: spilled_bytes 0 -> 144 |" in text
    assert r"| gfx90a | gone | - | CompilationError: no \| such |" in text
    assert "tensor_core_level wgmma -> mma.sync or MFMA" in text
    assert "| sm_80 | much | **spilled_bytes 0 -> 144**; bound_us 100 -> 90 | k: why |" in text
    order = [text.index(f"| {name} |") for name in ("gone", "serial", "much", "little", "fast")]
    assert order == sorted(order)
    assert "- gfx942: x\n" in text
    assert "- gfx942: y\n" in text


def test_a_backward_names_the_kernels_of_its_forward_once() -> None:
    shared = ("k: registers 32 -> 40", "k: grid 1 -> 2")
    worse = Change("launches", 1, 2, False)
    rows = [row("norm", "regressed", worse, causes=shared)]
    rows += [row("norm-backward", "regressed", worse, causes=(*shared, "b: registers 8 -> 9"))]
    rows += [row("norm", "regressed", worse, causes=shared, target="gfx942")]
    page = markdown(rows, "3.7.1", "3.9.0", "c")
    assert page.count("k: registers 32 -> 40, grid 1 -> 2 |") == 2  # once a target
    assert "b: registers 8 -> 9; as in norm |" in page


def test_a_page_without_losses_says_so() -> None:
    text = markdown([row("w", "same")], "3.6.0", "3.9.0", "c")
    assert "Nothing got worse." in text
    assert "Other kernels" not in text


def test_instructions_no_reader_knows_are_named_with_their_targets() -> None:
    evidence = {"launches": [{"unknown_instructions": ["v_frob_b32"]}]}
    result = Result(Job("w", "gfx942"), "ok", evidence=evidence)
    assert list(unknown_of([result])) == ["gfx942: v_frob_b32"]
    text = markdown([row("w", "same")], "3.6.0", "3.9.0", "c", unknown=list(unknown_of([result])))
    assert "## Instructions that no reader knows" not in markdown([], "3.6.0", "3.9.0", "c")
    assert "- gfx942: v_frob_b32\n" in text


def test_the_gravest_of_one_row_decides_its_place() -> None:
    one = row("w", "regressed", Change("bound_us", 1, 2, False), Change("launches", 1, 2, False))
    assert one.worst == Change("launches", 1, 2, False)
    assert row("w", "improved", Change("launches", 2, 1, True)).worst is None


def test_one_ptx_goes_through_two_assemblers(upgradable: Any, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    chosen = [word for name in ("sm_90", "sm_100", "gfx942") for word in ("--target", name)]
    arguments = ("upgrade", "--assembler", f"triton=={OTHER}", *chosen, "--page", page)
    done = upgradable.benchmarks(*arguments, "--json", "-")
    assert done.returncode in (0, 1), done.stderr
    assert "left out gfx942: its code is not assembled by ptxas" in done.stderr
    found = json.loads(done.stdout)
    own = f"triton=={triton.__version__}"
    assert (found["old"], found["new"]) == (own, f"triton=={OTHER}")
    assert {one["target"] for one in found["compared"]} == {"sm_90", "sm_100"}
    assert not any(one["verdict"] in ("missing", "nothing") for one in found["compared"])
    # Both Tritons carry one release for Hopper, and the Triton that made the PTX is one as well.
    assert {one["word"] for one in found["compared"] if one["target"] == "sm_90"} == {"same"}
    text = page.read_text()
    assert f"# {own} to triton=={OTHER}" in text
    assert f"--assembler triton=={OTHER} --from-assembler {own} --from" in text


def test_both_assemblers_report_the_lower_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For Triton writes its PTX for the release that it finds."""
    monkeypatch.setattr(assemblers.project, "folder", lambda: tmp_path)
    own = assemblers.named(f"triton=={triton.__version__}")
    plain, blackwell = own.paths.values()
    other = assemblers.named(str(plain))
    lowest = assemblers.lowest([own, other])
    assert lowest["TRITON_PTXAS_BLACKWELL_PATH"] == lowest["TRITON_PTXAS_PATH"]
    script = own.environment(lowest)["TRITON_PTXAS_BLACKWELL_PATH"]
    said = subprocess.run([script, "--version"], capture_output=True, text=True, timeout=60).stdout
    real = subprocess.run(
        [blackwell, "--version"], capture_output=True, text=True, timeout=60
    ).stdout
    release = ".".join(map(str, lowest["TRITON_PTXAS_PATH"]))
    assert f"release {release}, " in said and f"release {release}, " not in real
    assert (
        said.split("release ")[1].split(", ", 1)[1] == real.split("release ")[1].split(", ", 1)[1]
    )
    assert own.knows(targets.get("sm_103")) and not other.knows(targets.get("sm_103"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "expected one of two: a version of Triton such as 3.9.0, or --assembler NAME"),
        (("3.9.0", "--assembler", "x"), "expected one of two"),
        (("3.9.0", "--from-assembler", "x"), "--from-assembler: expected --assembler with it"),
        (("--assembler", "x"), "the path of a ptxas, got 'x'"),
        (("3.9.0", "--args", "fp16[4]"), "expected --call NAME"),
    ],
)
def test_mistakes_are_one_line(
    words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["upgrade", *words]) == 2
    (said,) = capsys.readouterr().err.strip().splitlines()
    assert message in said


def test_a_callable_of_any_package_is_compared(upgradable: Any) -> None:
    call = ("--call", "own:gram", "--args", "fp16[64,128]", "--target", "sm_80")
    done = upgradable.benchmarks(
        "upgrade", triton.__version__, "--from", OTHER, *call, "--json", "-"
    )
    assert done.returncode in (0, 1), done.stderr
    (found,) = json.loads(done.stdout)["compared"]
    assert (found["name"], found["target"]) == ("own:gram", "sm_80")
