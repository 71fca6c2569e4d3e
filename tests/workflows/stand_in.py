"""A stand-in of GitHub on loopback, and artifacts as measuring jobs and attackers make them."""

from __future__ import annotations

import io
import json
import threading
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

BASE, HEAD, OTHER = "b" * 40, "a" * 40, "c" * 40
REPOSITORY, NUMBER, RUN = "team/kernels", 7, 4711
BOT = "github-actions[bot]"
MACHINE = "compile-lane"
ENVIRONMENT = "kernels-overlay-py3.11"
SPILLS, LEVEL = "compiled.Matmul.track_spilled_bytes", "compiled.Matmul.track_tensor_core_level"
POINTS = ("matmul-a", "matmul-b", "matmul-c")

BENCHMARKS: dict[str, Any] = {
    name: {
        "name": name,
        "param_names": ["workload"],
        "params": [[repr(point) for point in POINTS]],
        "unit": unit,
        "version": "1",
        "better": better,
        "role": "verdict",
        "exact": True,
        "metric": name.rpartition("track_")[2],
        "instrument": "compiled",
    }
    for name, unit, better in ((SPILLS, "bytes", "lower"), (LEVEL, "level", "higher"))
} | {"version": 2}


def result(
    commit: str, spills: list[float | None], levels: list[float | None], **more: Any
) -> dict[str, Any]:
    """A result file of asv with both benchmarks."""
    params = [[repr(point) for point in POINTS]]
    return {
        "commit_hash": commit,
        "env_name": ENVIRONMENT,
        "date": 1_700_000_000_000,
        "params": {"machine": MACHINE},
        "python": "3.11",
        "requirements": {},
        "env_vars": {},
        "result_columns": ["result", "params", "version", "started_at", "duration"],
        "results": {
            SPILLS: [spills, params, "1", 1_700_000_000_000, 1.5],
            LEVEL: [levels, params, "1", 1_700_000_000_000, 1.5],
        },
        "durations": {},
        "version": 2,
    } | more


def manifest(shard: int = 1, shards: int = 1, **more: Any) -> dict[str, Any]:
    document = {"schema_version": 1, "lane": "cpu", "shard": shard, "shards": shards}
    return document | {"base": BASE, "head": HEAD} | more


def result_name(commit: str) -> str:
    return f"results/{MACHINE}/{commit[:8]}-{ENVIRONMENT}.json"


def honest(
    head: dict[str, Any], base: dict[str, Any], shard: int = 1, shards: int = 1
) -> dict[str, str]:
    """The files of an honest shard."""
    return {
        "results/benchmarks.json": json.dumps(BENCHMARKS),
        f"results/{MACHINE}/machine.json": json.dumps({"machine": MACHINE, "version": 1}),
        result_name(BASE): json.dumps(base),
        result_name(HEAD): json.dumps(head),
        "shard.json": json.dumps(manifest(shard, shards)),
    }


def zipped(files: Mapping[str, str | bytes], modes: Mapping[str, int] | None = None) -> bytes:
    """A zip as an attacker may write it: any name, any mode."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (modes or {}).get(name, 0o100644) << 16
            archive.writestr(entry, content)
    return buffer.getvalue()


@dataclass
class StandIn:
    """What GitHub holds and what was written to it."""

    url: str = ""
    artifacts: dict[str, bytes] = field(default_factory=dict)
    # Of an earlier attempt of the same run: GitHub lists them too, under the same names.
    earlier: dict[str, bytes] = field(default_factory=dict)
    pulls: list[dict[str, Any]] = field(default_factory=list)
    comments: list[dict[str, Any]] = field(default_factory=list)
    checks: list[dict[str, Any]] = field(default_factory=list)
    issues: list[dict[str, Any]] = field(default_factory=list)
    written: list[tuple[str, str]] = field(default_factory=list)
    leaked: list[str] = field(default_factory=list)
    # Where a head departed from a branch, if not at BASE.
    departed: dict[str, str] = field(default_factory=dict)
    # What protects each environment; one that was never made is not there.
    environments: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    # The hash of each folder, by commit and path.
    trees: dict[tuple[str, str], str] = field(default_factory=dict)
    # By the beginning of a call: the answers that it gets before it gets the true one.
    trouble: dict[str, list[int]] = field(default_factory=dict)

    def pull_request(
        self,
        head: str = HEAD,
        number: int = NUMBER,
        branch: str = "main",
        source: str = "stranger:branch",
    ) -> None:
        self.pulls.append(
            {
                "number": number,
                "head": {"sha": head, "label": source},
                "base": {"ref": branch, "sha": OTHER},
            }
        )

    def _stored(self) -> list[tuple[str, bytes]]:
        return [*self.earlier.items(), *self.artifacts.items()]

    def _tree(self, tree: str) -> list[dict[str, str]]:
        """One folder's entries, below a commit or another tree, as git names them."""
        above = {found: (commit, f"{path}/") for (commit, path), found in self.trees.items()}
        commit, folder = above.get(tree, (tree, ""))
        return [
            {"path": path.removeprefix(folder), "type": "tree", "sha": found}
            for (one, path), found in self.trees.items()
            if one == commit and path.startswith(folder) and "/" not in path.removeprefix(folder)
        ]

    def answer(self, method: str, path: str, body: Any, authorized: bool) -> tuple[int, Any]:
        parts = urlsplit(path)
        prefix = f"/repos/{REPOSITORY}/"
        if parts.path.startswith("/store/"):
            if authorized:
                self.leaked.append(path)
            return 200, self._stored()[int(parts.path.rpartition("/")[2])][1]
        if not authorized or not parts.path.startswith(prefix):
            return 401, {"message": "no"}
        call = parts.path.removeprefix(prefix)
        for beginning, answers in self.trouble.items():
            if answers and f"{method} {call}".startswith(beginning):
                return answers.pop(0), {"message": "try again"}
        if method != "GET":
            self.written.append((method, call))
        page = int(parse_qs(parts.query).get("page", ["1"])[0])
        match method, call.split("/"):
            case "GET", ["pulls"]:
                wanted = parse_qs(parts.query)["head"][0]
                return 200, [one for one in self.pulls if one["head"]["label"] == wanted]
            case "GET", ["compare", pair]:
                sha = self.departed.get(pair.partition("...")[0], BASE)
                return 200, {"merge_base_commit": {"sha": sha}}
            case "GET", ["environments", name] if name in self.environments:
                return 200, {"name": name, "protection_rules": self.environments[name]}
            case "GET", ["git", "trees", tree]:
                return 200, {"tree": self._tree(tree)}
            case "GET", ["actions", "runs", run, "artifacts"]:
                assert int(run) == RUN
                entries = [
                    {"id": i, "name": name, "size_in_bytes": len(data), "expired": False}
                    for i, (name, data) in enumerate(self._stored())
                ][::-1]
                return 200, {"artifacts": entries[(page - 1) * 100 : page * 100]}
            case "GET", ["actions", "artifacts", identity, "zip"]:
                return 302, f"{self.url}/store/{identity}"
            case "GET", ["issues", number, "comments"]:
                here = [c for c in self.comments if c.get("issue", number) == number]
                return 200, here[(page - 1) * 100 : page * 100]
            case "POST", ["issues", number, "comments"]:
                comment = {"id": len(self.comments), "user": {"login": BOT}, "issue": number}
                self.comments.append(comment | body)
                return 201, {}
            case "PATCH", ["issues", "comments", identity]:
                self.comments[int(identity)]["body"] = body["body"]
                return 200, {}
            case "POST", ["check-runs"]:
                self.checks.append(body)
                return 201, {}
            case "GET", ["issues"]:
                return 200, self.issues
            case "POST", ["issues"]:
                self.issues.append(body)
                return 201, {}
        return 404, {"message": "not found"}


@contextmanager
def serve() -> Iterator[StandIn]:
    """The stand-in, listening on loopback until the block ends."""
    github = StandIn()

    class Handler(BaseHTTPRequestHandler):
        def _do(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            authorized = self.headers.get("Authorization") == "Bearer secret"
            status, answer = github.answer(self.command, self.path, body, authorized)
            data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            self.send_response(status)
            if status == 302:
                self.send_header("Location", answer)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PATCH = _do  # noqa: N815  (names that http.server looks for)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    github.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield github
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def write_event(folder: Path, **more: Any) -> Path:
    """The event that starts the judge, as GitHub sends it for a pull request from a fork."""
    run = {
        "id": RUN,
        "event": "pull_request",
        "head_sha": HEAD,
        "head_branch": "branch",
        "head_repository": {"owner": {"login": "stranger"}},
        "html_url": "https://example.invalid/run",
        "pull_requests": [],
    } | more
    path = folder / "event.json"
    repository = {"full_name": REPOSITORY, "default_branch": "main"}
    path.write_text(json.dumps({"workflow_run": run, "repository": repository}))
    return path


def write_trusted(folder: Path, base: dict[str, Any] | None) -> Path:
    """The results of the default branch."""
    results = folder / "results"
    (results / MACHINE).mkdir(parents=True)
    (results / "benchmarks.json").write_text(json.dumps(BENCHMARKS))
    (results / MACHINE / "machine.json").write_text('{"machine": "compile-lane", "version": 1}')
    if base is not None:
        name = result_name(BASE).removeprefix("results/")
        (results / name).write_text(json.dumps(base))
    return results
