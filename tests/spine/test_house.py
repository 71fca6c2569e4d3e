"""The rules of the house: which way imports run, and how long a module may grow."""

from __future__ import annotations

import ast
import io
import json
import os
import re
import subprocess
import sys
import tokenize
from collections import Counter
from pathlib import Path

import pytest

from tests.conftest import LONGEST as BEGUN_FIRST
from tests.spine import house_graph

ROOT = Path(__file__).resolve().parents[2]
STANDARD = set(__import__("sys").stdlib_module_names)
# A folder with the packages that it may import beside the standard library and itself.
ALLOWED = {
    "kernels": {"torch", "triton"},
    "warpwatch/judge": {"warpwatch", "numpy", "scipy", "msgspec"},
    "warpwatch/report": {"warpwatch", "numpy", "scipy", "jinja2", "markupsafe"},
    "warpwatch/ci": {"warpwatch", "numpy", "scipy", "jinja2", "markupsafe"},
}
# They read files of unknown origin, so they may import each other and nothing that measures.
WALLED = ("warpwatch.judge", "warpwatch.report", "warpwatch.ci")
# In each part of a package, who may import whom: a name imports those after it.
LAYERS = {
    "kernels": (
        {"flash_attn"},
        {"public"},
        {"attention", "matmul"},
        {"device"},
        {"runtime"},
    ),
    "kernels.attention": (
        {"api"},
        {"operators"},
        {"dispatch"},
        {"portable", "decode", "hopper"},
        {"common"},
    ),
    "kernels.matmul": ({"api"}, {"operators"}, {"portable", "hopper"}, {"common"}),
    "warpwatch": (
        {"__main__"},
        {"commands"},
        {"asv", "ci", "compare"},
        {"session", "report"},
        {"instruments", "sandbox", "simulator"},
        {"judge", "workload", "devices"},
        {"config"},
        {"project"},
    ),
}
MOST_MODULES = 12
# A kernel file may be longer than another module: its table, kernel and launch stay together.
LONGEST = {"kernels": 450, "benchmarks": 350, "warpwatch": 350, "tools": 400}
# Programs among the tests whose move to tools/ is under way.


def modules(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def imported(path: Path) -> set[str]:
    """Top-level names the module imports anywhere, relative imports left out."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found.add(node.module.split(".")[0])
    return found


@pytest.mark.parametrize("folder", ALLOWED)
def test_packages_import_what_they_may(folder: str) -> None:
    for path in modules(folder):
        foreign = imported(path) - STANDARD - {folder}
        assert foreign <= ALLOWED[folder], f"{path.relative_to(ROOT)} imports {foreign}"


@pytest.fixture(scope="module")
def graph() -> house_graph.Graph:
    return house_graph.graph()


def test_no_package_imports_one_above_it(graph: house_graph.Graph) -> None:
    above = {"kernels": {"warpwatch", "benchmarks"}, "warpwatch": {"kernels", "benchmarks"}}
    for name, others in graph.items():
        tops = {one.split(".")[0] for one in others}
        assert not tops & above.get(name.split(".")[0], set()), name
    for path in (*modules("warpwatch"), *modules("benchmarks"), *modules("kernels")):
        assert not imported(path) & {"tests", "tools"}, path


def test_the_judge_imports_nothing_that_measures(graph: house_graph.Graph) -> None:
    for name, others in graph.items():
        if name.startswith(WALLED):
            through = {one for one in others if not one.startswith(WALLED)}
            assert through <= {"warpwatch", "warpwatch.project"}, f"{name} imports {through}"


def test_no_import_circles(graph: house_graph.Graph) -> None:
    assert house_graph.circles(graph) == []


@pytest.mark.parametrize("package", LAYERS)
def test_layers_import_downwards(graph: house_graph.Graph, package: str) -> None:
    parts = house_graph.of_folders(graph, package)
    level = {f"{package}.{name}": at for at, one in enumerate(LAYERS[package]) for name in one}
    assert set(parts) <= set(level), "a new part: say where it belongs"
    upward = [
        f"{part} -> {other}"
        for part, others in parts.items()
        for other in others
        if level[other] <= level[part]
    ]
    assert upward == []


def test_the_page_on_architecture_has_the_same_layers() -> None:
    page = (ROOT / "docs" / "explanation" / "architecture.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \| `(\w+)` \|", page, re.MULTILINE)
    said = {(name, int(row)) for row, name in rows}
    layers = LAYERS["warpwatch"]
    assert said == {(name, at) for at, one in enumerate(layers, start=1) for name in one}


@pytest.mark.parametrize("package", ["kernels", "warpwatch", "tools"])
def test_folders_stay_small(package: str) -> None:
    for folder in {path.parent for path in modules(package)}:
        names = sorted(path.stem for path in folder.glob("*.py") if path.stem != "__init__")
        assert len(names) <= MOST_MODULES, f"{folder.relative_to(ROOT)} holds {len(names)} modules"


@pytest.mark.parametrize("package", ["kernels", "warpwatch"])
def test_folders_name_what_they_hold(package: str) -> None:
    for folder in {path.parent for path in modules(package)}:
        names = sorted(path.stem for path in folder.glob("*.py") if path.stem != "__init__")
        words = Counter(name.split("_")[0] for name in names if not name.startswith("__"))
        shared = [word for word, count in words.items() if count > 1]
        assert shared == [], f"{folder.relative_to(ROOT)}: make a folder of each of {shared}"


def test_tests_hold_no_programs() -> None:
    """What people run is in tools/; its cases may be the tests'."""
    programs = [
        path.relative_to(ROOT).as_posix()
        for path in modules("tests")
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.If) and "__name__" in ast.unparse(node.test)
    ]
    assert programs == []


WAITS = re.compile(r"^subprocess\.(run|call|check_call|check_output)$|\.(wait|communicate)$")


def test_tests_wait_for_no_process_without_a_limit() -> None:
    """What hangs is then told by its command."""
    endless = []
    for path in modules("tests"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and WAITS.search(ast.unparse(node.func)):
                limited = any(one.arg in ("timeout", None) for one in node.keywords)
                if not limited and not (node.args and ast.unparse(node.func).endswith(".wait")):
                    endless.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert endless == []


def test_benchmarks_take_kernels_inside_functions_only() -> None:
    for path in modules("benchmarks"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            names = {alias.name for alias in node.names} if isinstance(node, ast.Import) else set()
            if isinstance(node, ast.ImportFrom) and node.level == 0:
                names = {node.module or ""}
            assert not any(name.split(".")[0] == "kernels" for name in names), path


@pytest.mark.parametrize("package", LONGEST)
def test_modules_stay_short(package: str) -> None:
    lengths = {
        str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines())
        for path in modules(package)
    }
    too_long = {name: lines for name, lines in lengths.items() if lines > LONGEST[package]}
    assert not too_long, "split where the module knows two things"


# Of a host function of the kernels. A docstring does not count: a public one has an example.
MOST_LINES, MOST_COMPLEX = 80, 20
# Of kernels. The aim is 13,500: lower this with what you delete.
MOST_CODE = 15_910
NO_CODE = {
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE),
    *(tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER),
}
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
DEVICE = re.compile(r"\b(jit|constexpr_function|aggregate)\b")


def on_device(node: ast.FunctionDef | ast.ClassDef) -> bool:
    """Whether Triton compiles it: a function, or a class of which it compiles the methods."""
    return any(DEVICE.search(ast.unparse(one)) for one in node.decorator_list)


def host_functions(path: Path) -> list[ast.FunctionDef]:
    found: list[ast.FunctionDef] = []
    waiting: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while waiting:
        for node in ast.iter_child_nodes(waiting.pop()):
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and on_device(node):
                continue
            waiting.append(node)
            if isinstance(node, ast.FunctionDef):
                found.append(node)
    return found


def lines_of(node: ast.FunctionDef) -> int:
    """From ``def`` to the end, comments and empty lines too, but no docstring."""
    first = node.body[0]
    documented = ast.get_docstring(node, clean=False) is not None
    docstring = (first.end_lineno or 0) - first.lineno + 1 if documented else 0
    return (node.end_lineno or 0) - node.lineno + 1 - docstring


def test_host_functions_of_kernels_stay_short() -> None:
    long = [
        f"{path.relative_to(ROOT)}:{node.name} has {lines_of(node)} lines"
        for path in modules("kernels")
        for node in host_functions(path)
        if lines_of(node) > MOST_LINES
    ]
    assert long == [], f"at most {MOST_LINES}: split where it decides two things"


def code_lines(path: Path) -> int:
    """Lines with code: no docstring, no comment, none that is empty."""
    text = path.read_text(encoding="utf-8")
    found: set[int] = set()
    for one in tokenize.generate_tokens(io.StringIO(text).readline):
        if one.type not in NO_CODE:
            found.update(range(one.start[0], one.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            found.difference_update(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    return len(found)


def test_the_code_of_kernels_does_not_grow() -> None:
    count = sum(code_lines(path) for path in modules("kernels"))
    print(f"kernels: {count:,} lines of code")
    assert count <= MOST_CODE, "delete or merge as much as you add"


def test_host_functions_of_kernels_stay_simple() -> None:
    """By ruff's C901; kernels branch at compile time, and are left out."""
    host = {
        (path.as_posix(), node.name, node.lineno)
        for path in modules("kernels")
        for node in host_functions(path)
    }
    limit = f"lint.mccabe.max-complexity={MOST_COMPLEX}"
    rules = ["--isolated", "--select", "C901", "--config", limit, "--output-format", "json"]
    done = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--exit-zero", *rules, str(ROOT / "kernels")],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    complex_ones = [
        f"{one['filename']}: {one['message']}"
        for one in json.loads(done.stdout)
        if (one["filename"], one["message"].split("`")[1], one["location"]["row"]) in host
    ]
    assert complex_ones == []


def test_every_module_says_what_it_knows() -> None:
    for package in LONGEST:
        for path in modules(package):
            assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))), path


def test_no_docker_package_and_no_test_packages() -> None:
    # An __init__.py in docker/ would hide the docker SDK; below tests/ it would hide top names.
    assert not (ROOT / "docker" / "__init__.py").exists()
    assert not list((ROOT / "tests").rglob("__init__.py"))


def test_what_begins_first_is_there() -> None:
    assert set(BEGUN_FIRST) <= {path.stem for path in (ROOT / "tests").rglob("test_*.py")}


def test_make_targets_of_the_documents_exist() -> None:
    makefiles = [ROOT / "Makefile", *(ROOT / "docker").glob("*.mk")]
    rules = "\n".join(path.read_text(encoding="utf-8") for path in makefiles)
    targets = set(re.findall(r"^([a-z][a-z0-9-]*):", rules, re.MULTILINE))
    documents = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    log = ROOT / "docs" / "log"  # says what was, in the words of its day
    for document in [one for one in documents if not one.is_relative_to(log)]:
        text = document.read_text(encoding="utf-8")
        named = set(re.findall(r"(?:`|\$ )make ([a-z][a-z0-9-]*)", text))
        assert named <= targets, f"{document.name} names make targets that do not exist"


def test_make_lets_python_keep_its_bytecode() -> None:
    """Whatever the environment says: packages are installed without it, and torch takes long."""
    rule = 'told: ; @echo "$${PYTHONDONTWRITEBYTECODE-unset}"'
    done = subprocess.run(
        ["make", "--no-print-directory", "--eval", rule, "told"],
        cwd=ROOT,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
    )
    assert done.stdout == "unset\n"
