"""An old commit's kernels and today's benchmarks are what runs, in every kind of process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from tests.root import ROOT
from warpwatch.config import isolation
from warpwatch.config import package as configuration
from warpwatch.config.package import Package, load

PACKAGE = Package(name="planted", path="src/planted", workloads="benchmarks.workloads")

WORKLOADS = """
NAME = "planted"


def all_workloads():
    return []


fixed_set = get = all_workloads
"""

# Runs in a process of each kind and tells what it sees.
SEE = """
import json, multiprocessing, subprocess, sys
sys.path[:0] = __import__("os").environ["ASV_PYTHONPATH"].split(":")
from warpwatch.config import isolation
from warpwatch.config import package as configuration
from warpwatch.config.isolation import subprocess_environment

def look(_=None):
    import planted, benchmarks
    return [planted.VALUE, planted.__file__, benchmarks.__file__]

if __name__ == "__main__":
    seen = {"own": look()}
    for method in ("spawn", "forkserver", "fork"):
        with multiprocessing.get_context(method).Pool(1) as pool:
            seen[method] = pool.map(look, [0])[0]
    seen["subprocess"] = json.loads(subprocess.run(
        [sys.executable, "-c", "import json, planted, benchmarks;"
         "print(json.dumps([planted.VALUE, planted.__file__, benchmarks.__file__]))"],
        env=subprocess_environment(), check=True, capture_output=True, text=True, cwd="/").stdout)
    print(json.dumps([seen, isolation.measured().commit]))
"""


@pytest.fixture
def repository(tmp_path: Path) -> tuple[Path, list[str]]:
    """A repository of three commits: without the package, VALUE = 1, VALUE = 2."""
    repo = tmp_path / "repo"
    package = repo / "src" / "planted"
    package.mkdir(parents=True)
    git = ["git", "-C", str(repo), "-c", "user.name=t", "-c", "user.email=t@example.invalid"]
    subprocess.run([*git, "init", "-q"], check=True, timeout=120)
    commits = []
    for value in (0, 1, 2):
        (repo / "note").write_text(str(value))
        if value:
            (package / "__init__.py").write_text(f"VALUE = {value}\n")
        subprocess.run([*git, "add", "."], check=True, timeout=120)
        subprocess.run([*git, "commit", "-qm", f"value {value}"], check=True, timeout=120)
        head = subprocess.run(
            [*git, "rev-parse", "HEAD"], check=True, capture_output=True, timeout=120
        )
        commits.append(head.stdout.decode().strip())
    return repo, commits


def measuring_variables(site: Path, harness: Path) -> dict[str, str]:
    variables = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    variables[isolation.PATH_VARIABLE] = isolation.search_path(site, harness)
    variables[isolation.SITE_VARIABLE] = str(site)
    return variables


def test_every_process_sees_the_old_package_and_todays_benchmarks(
    repository: tuple[Path, list[str]], tmp_path: Path
) -> None:
    repo, commits = repository
    site, harness = tmp_path / "site", isolation.link_harness(tmp_path / "harness")
    for commit, value in ((commits[2], 2), (commits[1], 1)):
        isolation.export(commit, site, repo, PACKAGE)
        script = tmp_path / "see.py"
        script.write_text(SEE)
        result = subprocess.run(
            [sys.executable, str(script)],
            env=measuring_variables(site, harness),
            cwd=tmp_path,
            check=True,
            capture_output=True,
            text=True,
            timeout=600,
        )
        seen, named = json.loads(result.stdout)
        assert named == commit
        assert set(seen) == {"own", "spawn", "forkserver", "fork", "subprocess"}
        for process, (found, package_file, benchmarks_file) in seen.items():
            assert found == value, process
            assert Path(package_file).is_relative_to(site), process
            assert Path(benchmarks_file).resolve().is_relative_to(ROOT / "benchmarks"), process


def test_another_package_on_the_path_raises_the_alarm(
    repository: tuple[Path, list[str]], tmp_path: Path
) -> None:
    repo, commits = repository
    site, harness = tmp_path / "site", isolation.link_harness(tmp_path / "harness")
    isolation.export(commits[1], site, repo, PACKAGE)
    variables = measuring_variables(site, harness)
    intruder = tmp_path / "intruder" / "planted"
    intruder.mkdir(parents=True)
    (intruder / "__init__.py").write_text("VALUE = 9\n")
    variables["PYTHONPATH"] = f"{intruder.parent}:{harness}"
    result = subprocess.run(
        [sys.executable, "-c", "from warpwatch.config import isolation; isolation.measured()"],
        env=variables,
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert result.returncode == 1
    assert f"expected package 'planted' of commit {commits[1][:8]}" in result.stderr
    assert str(intruder) in result.stderr


def test_the_commit_a_package_comes_from(repository: tuple[Path, list[str]]) -> None:
    repo, commits = repository
    git = ["git", "-C", str(repo), "-c", "user.name=t", "-c", "user.email=t@example.invalid"]
    subprocess.run([*git, "commit", "-qm", "nothing", "--allow-empty"], check=True, timeout=120)
    head = isolation.commit_hash("HEAD", repo)
    found = [isolation.last_touched(one, repo, PACKAGE) for one in (*commits, head)]
    assert found == [*commits, commits[2]]  # the first has no package at all


def test_a_commit_without_the_package_is_refused(
    repository: tuple[Path, list[str]], tmp_path: Path
) -> None:
    repo, commits = repository
    with pytest.raises(ValueError, match="has no folder src/planted: nothing to measure"):
        isolation.export(commits[0], tmp_path / "site", repo, PACKAGE)
    with pytest.raises(ValueError, match="'no-such-commit' is no commit of"):
        isolation.export("no-such-commit", tmp_path / "site", repo, PACKAGE)


def test_the_working_tree_can_be_measured_with_its_edits(
    repository: tuple[Path, list[str]], tmp_path: Path
) -> None:
    repo, _ = repository
    (repo / "src" / "planted" / "__init__.py").write_text("VALUE = 'edited'\n")
    isolation.export(None, tmp_path / "site", repo, PACKAGE)
    assert "edited" in (tmp_path / "site" / "planted" / "__init__.py").read_text()


def test_the_harness_folder_offers_no_kernels(tmp_path: Path) -> None:
    harness = isolation.link_harness(tmp_path / "harness")
    assert sorted(path.name for path in harness.iterdir()) == ["benchmarks", "warpwatch"]
    assert isolation.link_harness(harness) == harness  # made twice, the links stay


def test_every_mistake_of_the_configuration_is_named_at_once(tmp_path: Path) -> None:
    file = tmp_path / "warpwatch.toml"
    file.write_text('[package]\nname = "a b"\npath = "../x"\nworkload = "w"\n[other]\n')
    with pytest.raises(ValueError) as caught:
        load(file)
    message = str(caught.value)
    for part in ("[other]", "workload: unknown", "name: expected", "path: expected", "`workloads`"):
        assert part in message


def test_workloads_may_lie_in_a_folder_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ours").mkdir()
    (tmp_path / "ours" / "planted_workloads.py").write_text(WORKLOADS)
    file = tmp_path / "warpwatch.toml"
    file.write_text(
        '[package]\nname = "planted"\npath = "src/planted"\n'
        'workloads = "planted_workloads"\nworkloads_folder = "ours"\n'
    )
    monkeypatch.setenv("WARPWATCH_CONFIG", str(file))
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert configuration.workloads().NAME == "planted"
    file.write_text(file.read_text().replace('"ours"', '"theirs"'))
    with pytest.raises(ValueError, match="no folder 'theirs' next to the file"):
        load(file)


def test_threads_that_begin_at_once_make_the_same_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the processes do that compile ahead: each is begun by a thread of its own."""
    folder, both, replace = tmp_path / "harness", Barrier(2), Path.replace

    def replaced(made: Path, link: Path) -> Path:
        if link.name == "warpwatch":  # the first: none puts it in its place before both have one
            both.wait(timeout=30)
        return replace(made, link)

    monkeypatch.setattr(Path, "replace", replaced)
    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(isolation.link_harness, [folder] * 2)) == [folder] * 2
    links = list(folder.iterdir())
    assert links and all(one.is_symlink() for one in links)


def test_what_is_installed_where_only_our_path_leads_is_named_to_other_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    about = tmp_path / "warpwatch-0.2.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Name: warpwatch\nVersion: 0.2.0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delenv("PYTHONPATH", raising=False)
    assert isolation.path_of_the_harness() == ""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["", str(tmp_path)]))
    assert isolation.path_of_the_harness() == str(Path(isolation.__file__).parents[2])
