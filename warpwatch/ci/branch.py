"""The data branch: results of the default branch, appended by whoever measured, never rewritten.

Each push is one commit on top of what is there. Two runners that push at once do not lose
anything: who comes second fetches, adds its files to the newer state, and pushes again.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from warpwatch.judge.evidence import compiled as kept_evidence
from warpwatch.judge.evidence.compiled import spoken_code
from warpwatch.judge.evidence.measured import MEASURED_PATTERN
from warpwatch.judge.results.asv_results import read_machine, read_result
from warpwatch.judge.results.strict_json import RejectedError, load

from .api import is_commit
from .append import append
from .merge_evidence import unite

BRANCH = "warpwatch-data"
_RETRIES = 8
_BENCHMARKS = "benchmarks.json"
# What a value of a benchmark means; only a new method may change it.
_MEANING = ("better", "role", "exact", "unit", "metric", "instrument")


@dataclass(frozen=True)
class Silent:
    """A machine that owes the result of a commit for longer than allowed."""

    machine: str
    newest: str
    age_days: float


@dataclass(frozen=True)
class Waiting:
    """A commit to be measured, and when it came to the branch."""

    commit: str
    since_s: float


def record(
    remote: str,
    folders: Sequence[Path],
    *,
    message: str,
    branch: str = BRANCH,
    keep_results: int = 200,
    retries: int = _RETRIES,
    tell: Callable[[str], None] = lambda line: None,
) -> str:
    """Append the results of ``folders`` to the branch of ``remote``; the new commit's hash.

    What was measured again, and what of it does not count, is told to ``tell`` and stands in the
    commit's message.
    """
    with tempfile.TemporaryDirectory(prefix="warpwatch-data-") as place:
        checkout = Path(place) / "data"
        for attempt in range(retries):
            commit, said = _attempt(remote, branch, folders, message, checkout, keep_results)
            if commit:
                for line in said:
                    tell(line)
                return commit
            time.sleep(min(0.2 * 2**attempt, 10.0))
    raise ValueError(f"{branch}: others pushed {retries} times in between; run it again")


def fetch(remote: str, out: Path, branch: str = BRANCH) -> bool:
    """Check the branch out into ``out``; False (and an empty folder) where there is none yet."""
    out.mkdir(parents=True, exist_ok=True)
    if not _git(Path.cwd(), "ls-remote", "--heads", remote, f"refs/heads/{branch}"):
        return False
    _git(Path.cwd(), "clone", "--quiet", "--depth=1", "--branch", branch, remote, str(out))
    return True


def fetch_commit(repository: Path, commit: str) -> None:
    """Bring a commit's objects here, a fork's too; nothing is checked out."""
    if not is_commit(commit):
        raise ValueError(f"expected the 40 digits of a commit, got {commit!r}")
    _git(repository, "fetch", "--quiet", "--no-tags", "origin", commit)


def remote_address(repository: Path, remote: str) -> str:
    """Where a remote of the repository lives, credentials and all."""
    return _git(repository, "remote", "get-url", remote)


def silent_machines(
    results: Path, limit_days: float, now_s: float, commits: Sequence[Waiting]
) -> list[Silent]:
    """Machines for which a commit waits longer than ``limit_days``: it came after their newest
    result. Where nothing was pushed nobody is silent.

    Args:
        results: The folder of the data branch.
        limit_days: How long a machine may take.
        now_s: The time.
        commits: What came to the default branch and touches the measured package.

    Returns:
        The machines, by name.
    """
    found = []
    for folder in sorted(path for path in results.iterdir() if (path / "machine.json").is_file()):
        newest_ms, commit, measured = 0, "", set()
        for path in folder.glob("*.json"):
            if path.name == "machine.json":
                continue
            try:
                result = read_result(path)
            except RejectedError:
                continue
            measured.add(result.commit)
            started = result.started_ms or result.date_ms
            if started > newest_ms:
                newest_ms, commit = started, result.commit
        waiting = [
            one.since_s
            for one in commits
            if one.since_s > newest_ms / 1000 and one.commit not in measured
        ]
        if waiting and (now_s - min(waiting)) / 86_400 > limit_days:
            found.append(Silent(folder.name, commit, (now_s - newest_ms / 1000) / 86_400))
    return found


def arrivals(repository: Path, folder: str, limit: int = 50) -> list[Waiting]:
    """The newest commits of the checked-out branch that touch ``folder``, and when they came.

    Along the first parents: a merge came when it was made, whenever its commits were written.
    """
    log = ["log", "--first-parent", "-m", f"--max-count={limit}", "--format=%H %ct"]
    found = (line.split() for line in _git(repository, *log, "--", folder).splitlines())
    return [Waiting(commit, int(time_s)) for commit, time_s in found]


def _attempt(
    remote: str,
    branch: str,
    folders: Sequence[Path],
    message: str,
    checkout: Path,
    keep_results: int,
) -> tuple[str, list[str]]:
    """One try: the new commit's hash (an empty text where somebody was faster), what to tell."""
    if not checkout.exists():
        _git(checkout.parent, "init", "--quiet", str(checkout))
        _git(checkout, "remote", "add", "origin", remote)
    exists = _git(checkout, "ls-remote", "--heads", "origin", f"refs/heads/{branch}")
    if exists:
        _git(checkout, "fetch", "--quiet", "--depth=1", "origin", branch)
        _git(checkout, "checkout", "--quiet", "--force", "-B", branch, "FETCH_HEAD")
    else:
        _git(checkout, "symbolic-ref", "HEAD", f"refs/heads/{branch}")
    said = [line for folder in folders for line in _add(folder, checkout / "results")]
    _prune(checkout / "results", keep_results)
    _git(checkout, "add", "--all", "results")
    if not _git(checkout, "status", "--porcelain"):
        return _git(checkout, "rev-parse", "HEAD"), said
    body = ["--message", "\n".join(said)] if said else []
    _git(checkout, "commit", "--quiet", "--message", message, *body)
    pushed = subprocess.run(
        ["git", "-C", str(checkout), "push", "--quiet", "origin", f"HEAD:refs/heads/{branch}"],
        capture_output=True,
        text=True,
        env=_environment(),
    )
    if pushed.returncode == 0:
        return _git(checkout, "rev-parse", "HEAD"), said
    if "rejected" in pushed.stderr or "fetch first" in pushed.stderr or "lock" in pushed.stderr:
        return "", []
    raise ValueError(f"git push to {branch} failed: {pushed.stderr.strip()}")


def _add(source: Path, target: Path) -> list[str]:
    """Lay files beside those that are there; nothing on record gets another value. What is
    worth a word."""
    said: list[str] = []
    if (source / _BENCHMARKS).is_file():
        said += _describe(source / _BENCHMARKS, target / _BENCHMARKS)
    methods, hidden = {}, []
    if (target / _BENCHMARKS).is_file():
        known = load(target / _BENCHMARKS)
        methods = {n: str(e.get("version")) for n, e in known.items() if isinstance(e, dict)}
    for path in sorted(source.rglob("*")):
        name = str(path.relative_to(source))
        if not path.is_file() or path.is_symlink() or name == _BENCHMARKS:
            continue
        if "/." in f"/{name}":
            # A `.git` in there would be a repository of its own, and git runs what its
            # configuration names; a `.gitignore` would keep others' results from being recorded.
            hidden.append(name)
            continue
        place = target / name
        if problem := _unreadable(path):
            said.append(f"{name}: not recorded: {problem}")
            continue
        place.parent.mkdir(parents=True, exist_ok=True)
        if not place.is_file() or _unreadable(place):
            place.write_bytes(path.read_bytes())
        elif place.read_bytes() != path.read_bytes():
            try:
                said += _add_to(place, path, name, methods)
            except RejectedError as error:
                said.append(f"{name}: what is on record stays: {'; '.join(error.problems)}")
    if hidden:
        said.append(f"{hidden[0]!r}, one of {len(hidden)} hidden files: not recorded")
    return said


def _unreadable(path: Path) -> str:
    """What is wrong with a result file or the description of a machine; "" where it can be read, or
    is of another kind. It would stay on record, keep the results of its commit away, and be a
    notice in each report."""
    if path.suffix != ".json":
        return ""
    try:
        (read_machine if path.name == "machine.json" else read_result)(path)
    except RejectedError as error:
        return "; ".join(error.problems)
    return ""


def _add_to(place: Path, path: Path, name: str, methods: Mapping[str, str]) -> list[str]:
    if path.name == "machine.json":
        return [f"{name}: another description of the machine; the one on record stays"]
    if path.suffix != ".json":
        place.write_bytes(unite([place, path]))
        return []
    document, report = append(place, path, methods)
    place.write_text(json.dumps(document, sort_keys=True, separators=(",", ":")) + "\n")
    return report.lines(name)


def _describe(new: Path, there: Path) -> list[str]:
    """Benchmarks that are new, or have a new method, are described; others stay as described: a
    lane that cannot measure a benchmark does not know it, and a run must not turn a direction."""
    there.parent.mkdir(parents=True, exist_ok=True)
    recorded = load(there) if there.is_file() else {}
    known, said = dict(recorded), []
    for name, entry in load(new).items():
        old = recorded.get(name)
        if old is None or not isinstance(entry, dict) or not isinstance(old, dict):
            known[name] = entry
        elif old.get("version") != entry.get("version"):
            known[name] = entry
            said.append(f"{name}: measured by another method from now on")
        elif old != entry:
            # More workloads are welcome; what a value means stays.
            known[name] = {**entry, **{key: old[key] for key in _MEANING if key in old}}
            said += [
                f"{name}: {key} stays {old[key]!r}"
                for key in _MEANING
                if key in old and entry.get(key) != old[key]
            ]
    if known != recorded:
        there.write_text(json.dumps(known, sort_keys=True) + "\n")
    return said


def _prune(results: Path, keep: int) -> None:
    """Drop what lies beside old results: files that are not JSON and are named by their commit.

    The results themselves are the history and stay; what explains them is kept for the newest of
    each machine, and code for as long as some evidence speaks of it.
    """
    results.mkdir(exist_ok=True)
    newest: set[str] = set()
    for machine in (path for path in results.iterdir() if path.is_dir()):
        dated = []
        for path in machine.glob("*.json"):
            if path.name == "machine.json":
                continue
            try:
                dated.append((read_result(path).date_ms, path.name.partition("-")[0]))
            except RejectedError:
                continue
        commits = list(dict.fromkeys(name for _, name in sorted(dated, reverse=True)))
        newest |= set(commits[:keep])
        for commit in commits[keep:]:
            for path in machine.glob(f"{commit}*"):
                if path.is_file() and path.suffix != ".json":
                    path.unlink()
    evidence = results / kept_evidence.FOLDER
    spoken: set[str] = set()
    for path in kept_evidence.files(evidence):
        if path.name.partition("-")[0] not in newest:
            path.unlink()
            continue
        try:
            spoken |= spoken_code(path)
        except RejectedError:
            continue
    for path in evidence.glob(MEASURED_PATTERN):
        if path.name.removeprefix("gpu-")[:8] not in newest:
            path.unlink()
    for path in (evidence / kept_evidence.CODE).glob("*/*.xz"):
        if path.stem not in spoken:
            path.unlink()


def _environment() -> dict[str, str]:
    """git's environment: who commits, and the job's token for its own server and no other."""
    who = {
        f"GIT_{role}_{what}": value
        for role in ("AUTHOR", "COMMITTER")
        for what, value in (("NAME", "warpwatch"), ("EMAIL", "warpwatch@localhost"))
    }
    token, server = os.environ.get("GITHUB_TOKEN"), os.environ.get("GITHUB_SERVER_URL")
    if token and server:
        basic = base64.b64encode(f"x-access-token:{token}".encode()).decode()
        who["GIT_CONFIG_COUNT"] = "1"
        who["GIT_CONFIG_KEY_0"] = f"http.{server}/.extraheader"
        who["GIT_CONFIG_VALUE_0"] = f"AUTHORIZATION: basic {basic}"
    return {**os.environ, **who, "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(folder), *arguments], capture_output=True, text=True, env=_environment()
    )
    if done.returncode != 0:
        raise ValueError(f"git {arguments[0]} failed: {done.stderr.strip()}")
    return done.stdout.strip()
