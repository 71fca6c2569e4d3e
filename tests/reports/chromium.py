"""Drives a headless Chromium over its debugging pipe, with nothing but the standard library."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
    "--host-resolver-rules=MAP * ~NOTFOUND",
)


def installed() -> str | None:
    """The browser's path, ``None`` where there is none."""
    return next(filter(None, map(shutil.which, NAMES)), None)


@dataclass
class Seen:
    """What a page did while it was open."""

    console: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


class Browser:
    """One page after the other, in one process."""

    def __init__(self) -> None:
        program = installed()
        assert program is not None
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        to_read, self._write = os.pipe()
        self._read, to_write = os.pipe()
        # The pipe's ends are file descriptors 3 and 4 by Chromium's convention.
        relay = 'exec 3<&"$1" 4>&"$2"; shift 2; exec "$@"'
        self._process = subprocess.Popen(
            [
                *("bash", "-c", relay, "relay", str(to_read), str(to_write)),
                *(program, *_FLAGS, f"--user-data-dir={self._profile.name}", "about:blank"),
            ],
            pass_fds=(to_read, to_write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(to_write)
        self._number = 0
        self._rest = b""
        self.seen = Seen()
        targets = self._send("Target.getTargets")["targetInfos"]
        page = next(t["targetId"] for t in targets if t["type"] == "page")
        self._session = self._send("Target.attachToTarget", targetId=page, flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.wait(timeout=60)
        os.close(self._write)
        os.close(self._read)
        self._profile.cleanup()

    def view(
        self, width: int = 1200, height: int = 900, *, dark: bool = False, scripts: bool = True
    ) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Emulation.setScriptExecutionDisabled", value=not scripts)

    def open(self, address: str) -> Seen:
        """Loads a page until it is quiet; what it logged and asked for."""
        self.seen = Seen()
        self._loaded = False
        self.call("Page.navigate", url=address)
        deadline = time.monotonic() + 60
        while not self._loaded and time.monotonic() < deadline:
            self._pump(0.1)
        self.settle()
        return self.seen

    def settle(self, seconds: float = 0.15) -> None:
        """Takes in events until none has come for a while."""
        while self._pump(seconds):
            pass

    def run(self, expression: str) -> Any:
        """The value of a JavaScript expression, awaited; its error raises."""
        done = self.call(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in done:
            raise RuntimeError(json.dumps(done["exceptionDetails"])[:2000])
        return done["result"].get("value")

    def until(self, expression: str) -> None:
        """Waits for a JavaScript expression to be true; a busy machine gets half a minute."""
        deadline = time.monotonic() + 30
        while not self.run(expression):
            assert time.monotonic() < deadline, f"never true: {expression}"
            self.settle(0.05)

    def search(self, text: str) -> None:
        """Types into the search of an index page."""
        self.run(
            f"((e) => {{ e.value = {text!r}; e.dispatchEvent(new Event('input')); }})"
            "(document.getElementById('find'))"
        )

    def milliseconds(self, page: Path, most: float = 0.0) -> float:
        """From navigation to interactive, scripts run; the quickest of three, for busy machines
        of up to twelve while none is within ``most``."""
        ready = "performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd"
        times: list[float] = []
        while len(times) < 3 or (len(times) < 12 and min(times) > most > 0.0):
            self.open("about:blank")
            self.open(page.as_uri())
            times.append(float(self.run(ready)))
        return min(times)

    def screenshot(self, path: Path, *, whole: bool = False) -> None:
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shot["data"]))

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self._send(method, session=self._session, **parameters)

    def _send(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        number = self._number
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._write, data) :]
        deadline = time.monotonic() + 90
        while time.monotonic() < deadline:
            for answer in self._messages(1.0):
                if answer.get("id") == number:
                    if "error" in answer:
                        raise RuntimeError(f"{method}: {answer['error']}")
                    result: dict[str, Any] = answer["result"]
                    return result
        raise TimeoutError(f"{method}: Chromium did not answer")

    def _pump(self, seconds: float) -> bool:
        return bool(list(self._messages(seconds)))

    def _messages(self, seconds: float) -> list[dict[str, Any]]:
        if b"\0" not in self._rest:
            ready, _, _ = select.select([self._read], [], [], seconds)
            if not ready:
                return []
            self._rest += os.read(self._read, 1 << 20)
        *whole, self._rest = self._rest.split(b"\0")
        messages = [json.loads(part) for part in whole]
        for message in messages:
            self._note(message.get("method", ""), message.get("params", {}))
        return messages

    def _note(self, method: str, given: dict[str, Any]) -> None:
        if method == "Page.loadEventFired":
            self._loaded = True
        elif method == "Network.requestWillBeSent":
            self.seen.requests.append(given["request"]["url"])
        elif method == "Runtime.consoleAPICalled":
            self.seen.console.append(json.dumps(given["args"]))
        elif method == "Log.entryAdded":
            self.seen.console.append(given["entry"]["text"])
        elif method == "Runtime.exceptionThrown":
            self.seen.console.append(json.dumps(given["exceptionDetails"])[:500])
        elif method == "Page.javascriptDialogOpening":
            self.seen.console.append(f"dialog: {given['message']}")
