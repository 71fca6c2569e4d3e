"""Makes asv result trees with a matching git repository, as large as a test wants them."""

from __future__ import annotations

import html
import json
import random
import re
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

COLUMNS = [
    "result",
    "params",
    "version",
    "started_at",
    "duration",
    "stats_ci_99_a",
    "stats_ci_99_b",
    "stats_q_25",
    "stats_q_75",
    "stats_number",
    "stats_repeat",
    "samples",
    "profile",
]
START_S = 1_700_000_000


@dataclass
class Tree:
    """A results folder under construction and the repository its commits are in."""

    root: Path
    commits: list[str] = field(default_factory=list)
    benchmarks: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def results(self) -> Path:
        return self.root / "results"

    @property
    def repo(self) -> Path:
        return self.root / "repo"

    def add_benchmark(
        self,
        name: str,
        params: Sequence[Sequence[str]] = (),
        *,
        version: str = "1",
        param_names: Sequence[str] = (),
        unit: str = "seconds",
        **attributes: Any,
    ) -> None:
        self.benchmarks[name] = {
            "name": name,
            "params": [[repr(value) for value in values] for values in params],
            "param_names": list(param_names) or [f"p{i}" for i in range(len(params))],
            "unit": unit,
            "version": version,
            "type": "track",
            "code": "def track(): ...",
            **attributes,
        }

    def write_benchmarks(self) -> None:
        self.results.mkdir(parents=True, exist_ok=True)
        text = json.dumps({**self.benchmarks, "version": 2}, indent=4)
        (self.results / "benchmarks.json").write_text(text)

    def write_machine(self, machine: str, **fields: str) -> None:
        folder = self.results / machine
        folder.mkdir(parents=True, exist_ok=True)
        entry = {"machine": machine, "arch": "x86_64", "os": "Linux 6.1", "ram": "64", **fields}
        (folder / "machine.json").write_text(json.dumps({**entry, "version": 1}, indent=4))

    def write_result(
        self,
        commit: int,
        values: dict[str, list[float | None]],
        *,
        machine: str = "rig",
        environment: str = "env-py3.11",
        version: str | None = None,
        machine_fields: dict[str, str] | None = None,
        intervals: float | None = None,
        cells: Callable[[str, list[float | None]], dict[str, Any]] | None = None,
    ) -> Path:
        """``intervals`` is the relative half width of the stored confidence interval."""
        rows: dict[str, list[Any]] = {}
        for name, result in values.items():
            entry = self.benchmarks[name]
            row: dict[str, Any] = {
                "result": result,
                "params": entry["params"],
                "version": entry["version"] if version is None else version,
                "started_at": (START_S + 60 * commit) * 1000,
                "duration": 1.5,
            }
            if intervals is not None:
                row["stats_ci_99_a"] = [v and v * (1 - intervals) for v in result]
                row["stats_ci_99_b"] = [v and v * (1 + intervals) for v in result]
            if cells is not None:
                row |= cells(name, result)
            filled = [row.get(column) for column in COLUMNS]
            while filled and filled[-1] is None:
                filled.pop()
            rows[name] = filled
        document = {
            "commit_hash": self.commits[commit],
            "env_name": environment,
            "date": (START_S + 60 * commit) * 1000,
            "params": {"machine": machine, "python": "3.11", **(machine_fields or {})},
            "python": "3.11",
            "requirements": {},
            "env_vars": {},
            "result_columns": COLUMNS,
            "results": rows,
            "durations": {},
            "version": 2,
        }
        folder = self.results / machine
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.commits[commit][:8]}-{environment}.json"
        path.write_text(json.dumps(document))
        return path


def make_repository(
    root: Path,
    count: int,
    *,
    subjects: Sequence[str] = (),
    author: str = "Ada Lovelace <ada@example.invalid>",
) -> Tree:
    """A repository of ``count`` empty commits, made by one ``git fast-import``."""
    tree = Tree(root)
    tree.repo.mkdir(parents=True)
    git(tree.repo, "init", "-q", "-b", "main")
    stream: list[bytes] = []
    for number in range(count):
        subject = subjects[number] if number < len(subjects) else f"Change number {number}"
        message = subject.encode()
        stream.append(
            b"commit refs/heads/main\n"
            + f"committer {author} {START_S + 60 * number} +0000\n".encode()
            + b"data %d\n%s\n" % (len(message), message)
        )
    git(tree.repo, "fast-import", "--quiet", given=b"".join(stream))
    listed = git(tree.repo, "rev-list", "--reverse", "main").decode()
    tree.commits = listed.split()
    return tree


def compiled_tree(root: Path, levels: dict[str, list[float | None]], **attributes: Any) -> Tree:
    """A tree of one exact compiled metric a name: ``levels`` holds a value a commit."""
    count = max(len(values) for values in levels.values())
    tree = make_repository(root, count)
    for metric in levels:
        tree.add_benchmark(
            f"compiled.Attention.track_{metric}",
            [["flash B1-H8-S512-D64"], ["sm_90"]],
            param_names=("workload", "target"),
            unit="count",
            **{
                "better": "lower",
                "instrument": "compiled",
                "role": "verdict",
                "exact": True,
                "metric": metric,
                **attributes,
            },
        )
    tree.write_benchmarks()
    tree.write_machine("rig")
    for commit in range(count):
        tree.write_result(
            commit,
            {f"compiled.Attention.track_{m}": [values[commit]] for m, values in levels.items()},
        )
    return tree


def build_site(tree: Tree, out: Path, code: int = 0) -> Path:
    """The report of a tree, which must have something to show; 3 where few series are judged."""
    from warpwatch.__main__ import main  # making trees needs no report

    arguments = ["--results", str(tree.results), "--repo", str(tree.repo), "--out", str(out)]
    assert main(["report", *arguments]) == code
    return out


def large_tree(
    root: Path,
    *,
    commits: int,
    homes: Sequence[tuple[str, str]],
    benchmarks: int,
    params: Sequence[int],
    samples: int = 0,
    files: int | None = None,
    series_a_home: int | None = None,
    seed: int = 7,
) -> Tree:
    """A history of measured benchmarks with lognormal noise and a step in every tenth series.

    ``params`` are the sizes of each benchmark's parameter lists. ``files`` and ``series_a_home``
    trim the last commit's files and the last benchmark's values to hit a count exactly.
    """
    rng = np.random.default_rng(seed)
    random.seed(seed)
    tree = make_repository(root, commits)
    per = int(np.prod(params))
    wanted = series_a_home or benchmarks * per
    sizes = []
    for number in range(benchmarks):
        left = wanted - sum(sizes)
        size = min(per, left)
        sizes.append(size)
        lists = (
            [[str(v) for v in range(p)] for p in params]
            if size == per
            else [[str(v) for v in range(size)]]
        )
        tree.add_benchmark(f"suite_{number % 17}.Case{number}.time_run", lists)
    tree.write_benchmarks()
    for machine in {machine for machine, _ in homes}:
        tree.write_machine(machine)
    level = np.exp(rng.uniform(-9, 1, wanted))
    steps = rng.integers(5, commits - 5, wanted)
    factors = np.where(rng.random(wanted) < 0.1, np.exp(rng.normal(0, 0.15, wanted)), 1.0)
    written = 0
    for commit in range(commits):
        for machine, environment in homes:
            if files is not None and written >= files:
                break
            noise = np.exp(rng.normal(0, 0.01, wanted))
            values = level * noise * np.where(commit >= steps, factors, 1.0)
            rows: dict[str, list[float | None]] = {}
            start = 0
            for number, size in enumerate(sizes):
                name = f"suite_{number % 17}.Case{number}.time_run"
                rows[name] = [float(v) for v in values[start : start + size]]
                start += size
            tree.write_result(
                commit,
                rows,
                machine=machine,
                environment=environment,
                cells=lambda _, result: _stats(result, samples, rng),
            )
            written += 1
    return tree


def _stats(result: list[float | None], samples: int, rng: np.random.Generator) -> dict[str, Any]:
    values = np.array(result, dtype=float)

    # asv stores statistics with five significant digits and results in full.
    def short(factor: float) -> list[float]:
        return [float(f"{v:.5g}") for v in values * factor]

    cells: dict[str, Any] = {
        "stats_ci_99_a": short(0.99),
        "stats_ci_99_b": short(1.01),
        "stats_q_25": short(0.995),
        "stats_q_75": short(1.005),
        "stats_number": [1] * len(result),
        "stats_repeat": [10] * len(result),
    }
    if samples:
        spread = np.exp(rng.normal(0, 0.01, (len(result), samples)))
        cells["samples"] = [[float(f"{v:.5g}") for v in row] for row in values[:, None] * spread]
    return cells


def git(repo: Path, *arguments: str, given: bytes | None = None) -> bytes:
    done = subprocess.run(
        ["git", "-C", str(repo), *arguments],
        input=given,
        capture_output=True,
        check=True,
        timeout=120,
    )
    return done.stdout


def said_on(page: Path) -> str:
    """The words of a page, without its navigation."""
    text = page.read_text(encoding="utf-8").partition("<main")[2]
    return html.unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", text)))
