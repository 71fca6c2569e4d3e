"""Runs other people's benchmark suites unmodified under `warpwatch record`, without a GPU.

    python -m tools.harness.recorded_suites FOLDER [PACKAGE ...] [--seconds S]

FOLDER holds a clone of each library, named OWNER+NAME. Where one is missing, the command that
brings it is printed. Writes how many of the cases that a suite lists became series: a suite's as
soon as it is done, those of the others stay. Runs the libraries' own code. Not part of `make test`:
a case takes a quarter of a minute of a processor.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, dataclass, field
from pathlib import Path

from tools.harness.third_party_operators import install
from tools.histories.places import repository
from tools.root import ROOT
from warpwatch.config import isolation

TABLE = Path(__file__).with_suffix(".toml")
KEPT = ROOT / "docs" / "results" / "data" / "recorded.json"
PAGE = ROOT / "docs" / "results" / "recorded.md"
# What `record` says last, and why launches became no workload.
_CALLS = re.compile(r"^(\d+) calls of \S+, \d+ launches$", re.MULTILINE)
_WHY = re.compile(r"^\d+ launches are no workload: .*$", re.MULTILINE)
_MAIN = "__main__"
_FAILED = "the command ended with "
_ERROR = re.compile(r"^(?:E +)?([\w.]*(?:Error|Exception)\b.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Suite:
    """A suite, as the table describes it."""

    name: str
    source: str
    commit: str
    package: str
    path: str
    folders: list[str]
    packages: list[str]
    command: list[str]
    listed: list[str] = field(default_factory=list)
    case: str = ""
    files: str = ""
    environment: dict[str, str] = field(default_factory=dict)
    because: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    """What came of one case: the calls that became series, or why there are none."""

    name: str
    calls: int
    why: str = ""


def suites() -> list[Suite]:
    """Those of the table."""
    found = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    return [Suite(**one) for one in found["suite"]]


def record(suite: Suite, tree: Path, command: Sequence[str], seconds: float) -> str:
    """What `warpwatch record` and the command say on standard error."""
    packages = ROOT / ".asv" / "suites"
    path = os.pathsep.join([str(tree / suite.path), str(tree), str(packages)])
    done = subprocess.run(
        [sys.executable, "-m", "warpwatch", "record", "--package", suite.package,
         "--most", "10000", "--seconds", str(seconds), "--", *command],
        cwd=tree, env={**os.environ, "PYTHONPATH": path, **suite.environment},
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    return done.stderr


def cases(suite: Suite, tree: Path, seconds: float) -> list[str]:
    """What the suite lists.

    Raises:
        ValueError: It lists nothing.
    """
    if suite.files:
        # What no one runs is a part of those that are run.
        scripts = [one for one in tree.glob(suite.files) if _MAIN in one.read_text("utf-8")]
        found = sorted(str(one.relative_to(tree)) for one in scripts)
    else:
        said = record(suite, tree, suite.listed, seconds)
        found = list(dict.fromkeys(re.findall(suite.case, said, re.MULTILINE)))
        if not found:
            raise ValueError(f"{suite.name} lists no case:\n{said[-2000:]}")
    return found


def run(suite: Suite, tree: Path, case: str, seconds: float) -> Case:
    """Record one case."""
    command = [word.replace("{case}", case) for word in suite.command]
    said = record(suite, tree, command, seconds)
    calls = _CALLS.search(said)
    many = int(calls[1]) if calls else 0
    if many:
        return Case(case, many)
    reasons = _WHY.findall(said) or (_ERROR.findall(said)[-1:] if _FAILED in said else [])
    return Case(case, 0, (reasons or ["it launched no kernel of the package"])[0])


def measure(folder: Path, suite: Suite, seconds: float) -> list[Case]:
    """Record every case of a suite, on all cores."""
    git = repository(folder, suite.source)
    assert git is not None, suite.source
    with tempfile.TemporaryDirectory() as scratch:
        tree = Path(scratch)
        isolation.unpack(git, suite.commit, suite.folders, tree)
        names = cases(suite, tree, seconds)
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            found: list[Case] = []
            for one in pool.map(lambda name: run(suite, tree, name, seconds), names):
                said = f"{one.calls} calls" if one.calls else one.why
                print(f"{len(found) + 1}/{len(names)} {one.name}: {said}", file=sys.stderr)
                found.append(one)
    return found


def kept() -> dict[str, list[Case]]:
    """The cases of each suite that was recorded, by its package."""
    found = json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.exists() else {}
    return {package: [Case(*row) for row in rows] for package, rows in found.items()}


def keep(found: dict[str, list[Case]]) -> None:
    """Write down the cases, and the page that is made of them."""
    rows = {package: [astuple(one) for one in cases] for package, cases in found.items()}
    KEPT.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    done = [(one, found[one.package]) for one in suites() if one.package in found]
    PAGE.write_text(page(done), encoding="utf-8")


def page(found: Sequence[tuple[Suite, Sequence[Case]]]) -> str:
    """The document: the share of cases that became series, and why the others did not."""
    every = [case for _, of_suite in found for case in of_suite]
    good = [case for case in every if case.calls]
    text = [
        "# Other people's benchmarks, recorded unmodified",
        "",
        f"`warpwatch record` ran {len(found)} benchmark suites without a GPU, as they are.",
        f"**{len(good) / max(len(every), 1):.0%} of the cases that they list became series**:",
        f"{len(good)} of {len(every)}, with {sum(case.calls for case in good)} different calls.",
        "A case of a pytest suite is a test, of a registry an operator, else a script.",
        "",
        "`python -m tools.harness.recorded_suites FOLDER` writes this page.",
        "",
        "| suite | commit | cases | became series | calls |",
        "|---|---|---:|---:|---:|",
    ]
    for suite, of_suite in found:
        source = f"[{suite.name}](https://github.com/{suite.source})"
        series = sum(bool(case.calls) for case in of_suite)
        calls = sum(case.calls for case in of_suite)
        text.append(f"| {source} | {suite.commit} | {len(of_suite)} | {series} | {calls} |")
    text += ["", "## Cases without a series", "", "| suite | case | why |", "|---|---|---|"]
    for suite, of_suite in found:
        for case in of_suite:
            if not case.calls:
                why = suite.because.get(case.name, case.why).replace("|", "\\|")[:200]
                text.append(f"| {suite.package} | `{case.name}` | {why} |")
    return "\n".join([*text, ""])


def main(given: Sequence[str] | None = None) -> int:
    """Exit 0 where some case became a series, 2 where a clone is missing."""
    known = {one.package: one for one in suites()}
    parser = argparse.ArgumentParser(
        prog="python -m tools.harness.recorded_suites",
        description="record public benchmark suites, unmodified, without a GPU",
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("packages", nargs="*", metavar="PACKAGE", help=" ".join(known))
    parser.add_argument("--seconds", type=float, default=600, help="end a case after this")
    args = parser.parse_args(given)
    if unknown := sorted(set(args.packages) - set(known)):
        parser.error(f"unknown package {unknown[0]}: expected one of {', '.join(known)}")
    chosen = [known[name] for name in args.packages or known]
    absent = [one.source for one in chosen if repository(args.folder, one.source) is None]
    for name in absent:
        place = args.folder / name.replace("/", "+")
        print(f"git clone --bare https://github.com/{name} {place}", file=sys.stderr)
    if absent:
        return 2
    install(ROOT / ".asv" / "suites", sorted({one for suite in chosen for one in suite.packages}))
    found = kept()
    for suite in chosen:
        found[suite.package] = measure(args.folder, suite, args.seconds)
        keep(found)
    print(PAGE)
    return 0 if any(case.calls for suite in chosen for case in found[suite.package]) else 3


if __name__ == "__main__":
    sys.exit(main())
