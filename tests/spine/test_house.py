"""The rules of the house: which way imports run, and how long a module may grow."""

from __future__ import annotations

import ast
import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.conftest import LONGEST as BEGUN_FIRST

ROOT = Path(__file__).resolve().parents[2]
STANDARD = set(__import__("sys").stdlib_module_names)
# What each part may import beside the standard library and itself.
ALLOWED = {
    "kernels": {"torch", "triton"},
    "reports": {"numpy", "scipy", "jinja2", "markupsafe", "msgspec"},
    "benchmarks": None,  # anything but tests
}
# A kernel file may be longer than another module: its table, kernel and launch stay together.
LONGEST = {"kernels": 450, "benchmarks": 350, "reports": 350}


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


@pytest.mark.parametrize("package", ALLOWED)
def test_imports_run_one_way(package: str) -> None:
    allowed = ALLOWED[package]
    for path in modules(package):
        foreign = imported(path) - STANDARD - {package}
        if allowed is None:
            assert "tests" not in foreign, path
        else:
            assert foreign <= allowed, f"{path.relative_to(ROOT)} imports {foreign - allowed}"


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
    for document in documents:
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
