"""The method's hash changes with what is measured, and with nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from warpwatch.instruments.compiled import METHOD_VERSION
from warpwatch.instruments.counters import rocprof
from warpwatch.instruments.method import method_hash, part_hash, version
from warpwatch.session import commit, utilization

ROOT = Path(__file__).resolve().parents[2]
CODE = '''
"""Measures."""
LIMIT = 3

def measure(call):
    """Times a call."""
    return call() * LIMIT
'''


def written(folder: Path, text: str) -> str:
    file = folder / "code.py"
    file.write_text(text, encoding="utf-8")
    return method_hash(str(file))


def test_comments_docstrings_and_lines_do_not_count(tmp_path: Path):
    other = CODE.replace("Times a call.", "Times one call of it.").replace(
        "LIMIT = 3", "\n\n# a comment\nLIMIT = 3"
    )
    assert written(tmp_path, other) == written(tmp_path, CODE)


def test_a_threshold_counts(tmp_path: Path):
    assert written(tmp_path, CODE.replace("= 3", "= 4")) != written(tmp_path, CODE)


def test_neither_order_nor_place_of_definitions_counts(tmp_path: Path):
    one, two, both = tmp_path / "one.py", tmp_path / "two.py", tmp_path / "both.py"
    one.write_text("A = 1", encoding="utf-8")
    two.write_text("B = 2", encoding="utf-8")
    both.write_text("B = 2\nA = 1", encoding="utf-8")
    assert method_hash(str(one), str(two)) == method_hash(str(two), str(one))
    assert method_hash(str(one), str(two)) == method_hash(str(both))
    assert method_hash(str(one)) != method_hash(str(both))


def test_where_modules_lie_and_how_they_are_called_does_not_count(tmp_path: Path):
    def of(imports: str, module: str, package: str) -> str:
        folder = tmp_path / package
        folder.mkdir()
        for name in ("__init__", module, "card"):
            (folder / f"{name}.py").touch()
        file = folder / "code.py"
        code = f"{imports}\n\ndef go():\n    return {module}.read(Sample)\n"
        file.write_text(code, encoding="utf-8")
        return method_hash(str(file))

    today = of("from . import clocks\nfrom .gpu import Sample", "clocks", "one")
    moved = of("from two import timers\nfrom two.card import Sample", "timers", "two")
    assert today == moved


def test_another_function_of_a_library_counts(tmp_path: Path):
    before = written(tmp_path, "from math import floor\n\ndef go(x):\n    return floor(x)")
    assert before != written(tmp_path, "from math import ceil\n\ndef go(x):\n    return ceil(x)")
    renamed = "from math import floor as down\n\ndef go(x):\n    return down(x)"
    assert before == written(tmp_path, renamed)


# The newest version of each instrument among the published results. Whoever changes a method on
# purpose publishes results of it, and names its version here.
PUBLISHED = {
    "latency_cold": "latency-ec414eeda652",
    "latency_warm": "latency-ec414eeda652",
    "peak_share": "latency-ec414eeda652",
    "tensor_pipe": "cupti-1",
    "sm_cycles": "cupti-1",
    "instructions": "cupti-1",
    "dram_bytes": "cupti-1",
    "tensor_pipe_sampled": "gpm-ab082e2aa2ee",
    "peak_bytes": "allocator-1",
    "relative_error": "accuracy-afaef5fcb2c0",
    "host_us": "host-984cdb59d77d",
}


def test_todays_methods_extend_the_published_history():
    described = json.loads((ROOT / "reports/published/benchmarks.json").read_text("utf-8"))
    published = {
        one["metric"]: one["version"]
        for name, one in described.items()
        if name != "version" and one["metric"] in PUBLISHED
    }
    assert published == PUBLISHED
    assert {name: commit.INSTRUMENTS[name][1] for name in PUBLISHED} == PUBLISHED


def test_tidying_is_no_change_of_the_compiled_method():
    """No results are published of it: this is the version of everybody's histories."""
    assert METHOD_VERSION == "compiled-0feb5c74870b"


def test_a_part_changes_with_what_it_names_alone(tmp_path: Path):
    file = tmp_path / "code.py"

    def of(text: str, *names: str) -> str:
        file.write_text(text, encoding="utf-8")
        return part_hash(str(file), *names)

    other_limit = CODE.replace("= 3", "= 4")
    assert of(other_limit, "measure") == of(CODE, "measure")
    assert of(other_limit, "LIMIT") != of(CODE, "LIMIT")
    method = "class Card:\n" + "".join(f"    {line}\n" for line in CODE.splitlines())
    assert of(method, "Card.measure") == of(CODE, "measure")
    assert of(method.replace("call()", "call(1)"), "Card.measure") != of(CODE, "measure")
    with pytest.raises(ValueError, match=r"code\.py defines no Card\.run: expected what a method"):
        of(method, "Card.run")


def test_a_metric_has_a_version_of_its_own_once_the_code_that_makes_it_changed():
    began_with = version("latency-1", "", "parts", "as they were").rpartition("-")[2]
    assert version("latency-1", began_with, "parts", "as they were") == "latency-1"
    assert version("latency-2", began_with, "parts", "as they were") == "latency-2"
    changed = version("latency-1", began_with, "parts", "as they are")
    assert changed.startswith("latency-1-") and changed != "latency-1"


def test_a_border_of_one_metric_leaves_its_instruments_others(monkeypatch: pytest.MonkeyPatch):
    usual = commit._methods()
    assert set(usual) == {"latency", "cupti", "off_kernel_us", "gpm", "allocator", "accuracy"}
    monkeypatch.setitem(commit.INSTRUMENTS, "peak_share", ("latency", "latency-1-changed"))
    assert commit._methods() == {**usual, "peak_share": "latency-1-changed"}


def test_on_amd_the_counters_are_rocprofs_and_nothing_else_changes(monkeypatch: pytest.MonkeyPatch):
    usual = commit._methods()
    monkeypatch.setattr(utilization, "on_hip", lambda: True)
    assert commit._methods() == {**usual, "rocprofv3": rocprof.METHOD_VERSION}
