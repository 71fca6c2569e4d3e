"""Calls of GitHub's REST API: one repository, a token that stays with it, and patience.

Only the standard library is needed, because a workflow's plan is made where nothing is installed.
"""

from __future__ import annotations

import copy
import json
import os
import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from http.client import HTTPException, HTTPMessage
from pathlib import Path
from typing import IO, Any, TypeVar

from warpwatch.judge.results.strict_json import RejectedError

# After each of these seconds a call that failed for a passing reason is made again.
WAITS_S = [1.0, 4.0, 15.0]
_LONGEST_WAIT_S = 60.0
_PASSING = (429, 500, 502, 503, 504)
_REDIRECTS = (301, 302, 307, 308)
_MAX_ANSWER_BYTES = 16 * 1024 * 1024
_PAGES = 20
_T = TypeVar("_T")
_COMMIT = re.compile(r"[0-9a-f]{40}")


def is_commit(value: object) -> bool:
    """Whether it is the full hash of a commit."""
    return isinstance(value, str) and _COMMIT.fullmatch(value) is not None


class ApiError(ValueError):
    """The API refused or cannot be reached; the message says which call.

    ``status`` is HTTP's, 0 without an answer. ``passing`` says that it may go well later.
    """

    def __init__(
        self, message: str, status: int = 0, *, passing: bool = False, wait_s: float = 0.0
    ):
        self.status = status
        self.passing = passing
        self.wait_s = wait_s
        super().__init__(message)


class Api:
    """Calls for one repository; what passes by itself is waited for."""

    def __init__(self, repository: str, token: str, url: str = "", timeout_s: float = 30.0):
        self._repository = repository
        self._token = token
        self._url = (url or os.environ.get("GITHUB_API_URL", "")).rstrip("/")
        self._timeout_s = timeout_s
        self._is_patient = True
        if not self._url:
            raise ValueError("GITHUB_API_URL is not set: the judge runs inside GitHub Actions")
        self._opener = urllib.request.build_opener(_NoRedirect)

    def get(self, path: str) -> Any:
        """The JSON answer to a question."""
        return self._call("GET", path)

    def pages(self, path: str, key: str = "") -> Iterator[dict[str, Any]]:
        """The entries of a list, over its pages; ``key`` names the list in the answer."""
        joint = "" if path.endswith("?") else "&"
        for page in range(1, _PAGES + 1):
            answer = self._call("GET", f"{path}{joint}per_page=100&page={page}")
            entries = answer.get(key) if key and isinstance(answer, dict) else answer
            if not isinstance(entries, list):
                raise ApiError(f"GET {path}: expected a list")
            yield from (entry for entry in entries if isinstance(entry, dict))
            if len(entries) < 100:
                return

    def write(self, method: str, path: str, body: dict[str, Any]) -> Any:
        """Write something. A call without an answer may have gone well, and is made again: what
        must not be there twice is written within ``patiently``, after a look."""
        return self._call(method, path, body)

    def store(self, path: str, limit: int) -> bytes:
        """What GitHub keeps in its store: the answer is the address, and the token stays here."""

        def load(api: Api) -> bytes:
            location, body = api._request("GET", path, None, limit)
            return api._stored(location, path, limit) if location else body

        return self.patiently(load)

    def patiently(self, act: Callable[[Api], _T]) -> _T:
        """Do it, and do it again where it failed for a reason that passes.

        The API that it is given has no patience of its own, so that no wait lies within another.
        """
        hasty = copy.copy(self)
        hasty._is_patient = False
        for wait_s in WAITS_S if self._is_patient else ():
            try:
                return act(hasty)
            except ApiError as error:
                if not error.passing:
                    raise
                time.sleep(min(max(wait_s, error.wait_s), _LONGEST_WAIT_S))
        return act(hasty)

    def _stored(self, location: str, path: str, limit: int) -> bytes:
        store = urllib.request.Request(location)
        if store.type != "https" and not self._url.startswith("http://"):
            raise ApiError(f"GET {path}: redirected to something that is not https")
        try:
            with urllib.request.urlopen(store, timeout=self._timeout_s) as answer:
                return _limited(answer, limit, path)
        except (OSError, HTTPException) as error:
            raise ApiError(
                f"GET {path}: the store does not answer: {error}", passing=True
            ) from None

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        _, answer = self.patiently(lambda api: api._request(method, path, body, _MAX_ANSWER_BYTES))
        try:
            return json.loads(answer)
        except ValueError:
            raise ApiError(f"{method} {path}: the answer is not JSON") from None

    def _request(
        self, method: str, path: str, body: dict[str, Any] | None, limit: int
    ) -> tuple[str, bytes]:
        """Where the answer lies instead, if it is a redirect, and the answer."""
        request = urllib.request.Request(
            f"{self._url}/repos/{self._repository}{'/' if path else ''}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={
                "Accept": "application/vnd.github+json",
                "Authorization": f"Bearer {self._token}",
                "Content-Type": "application/json",
                "X-GitHub-Api-Version": "2022-11-28",
            },
        )
        try:
            with self._opener.open(request, timeout=self._timeout_s) as answer:
                return "", _limited(answer, limit, path)
        except urllib.error.HTTPError as error:
            if error.code in _REDIRECTS:
                return str(error.headers.get("Location", "")), b""
            raise _refusal(method, path, error) from None
        except (OSError, HTTPException) as error:
            raise ApiError(f"{method} {path}: no answer: {error}", passing=True) from None


def _refusal(method: str, path: str, error: urllib.error.HTTPError) -> ApiError:
    # Too many calls are answered with 403 or 429, and with how long to wait.
    wait = error.headers.get("Retry-After") or ""
    limited = error.code == 403 and (wait or error.headers.get("X-RateLimit-Remaining") == "0")
    return ApiError(
        f"{method} {path}: {error.code} {error.reason}",
        error.code,
        passing=bool(limited) or error.code in _PASSING,
        wait_s=float(wait) if wait.isdigit() else 0.0,
    )


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect must not carry the token to another host."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: HTTPMessage,
        newurl: str,
    ) -> None:
        return None


def _limited(answer: Any, limit: int, path: str) -> bytes:
    data: bytes = answer.read(limit + 1)
    if len(data) > limit:
        raise RejectedError(Path(path), [f"is larger than {limit:,} bytes"])
    return data


def at(value: Any, *keys: str) -> Any:
    """The value below these keys, ``None`` where one is missing."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value
