"""How a container is run: hardened, through the docker SDK, with results written as they come."""

from __future__ import annotations

import os
import platform
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from .delivery import sweep
from .images import MACHINE, Backend
from .limits import Watch, full
from .settings import LABEL, RESULTS, EngineError, Run, settings

NEEDED_FREE_GB = 2.0
_IMAGE_USER = 10001
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
# What the engine's answers become: the words it uses, and the remedy.
_REMEDIES = (
    ("no space left", "the disk is full: free some space (docker system prune), then run it again"),
    (
        "could not select device driver",
        "the engine has no GPU runtime: install the vendor's container toolkit "
        "(docs/guides/gpu-runner.md)",
    ),
    ("unresolvable CDI devices", "the CDI description of the GPU is out of date: generate it anew"),
)


def default_machine() -> str:
    """A name that does not change from run to run, as a container's own host name would."""
    name = platform.node().split(".")[0]
    return name if MACHINE.fullmatch(name) else "workstation"


def check(run: Run) -> None:
    """Refuse what cannot work before the engine is asked. ``ValueError`` names each mistake."""
    mistakes = []
    if not run.command:
        mistakes.append("a command is missing: give it after --, for example -- asv run")
    if not MACHINE.fullmatch(run.machine):
        mistakes.append(f"--machine: expected letters, digits and hyphens, got {run.machine!r}")
    if not (run.repository / ".git").exists():
        mistakes.append(f"{run.repository} is not the root of a git repository")
    for name, value in (("memory", run.memory_gb), ("results", run.results_gb)):
        if value <= 0:
            mistakes.append(f"--{name}-gb: expected more than 0, got {value}")
    if mistakes:
        raise ValueError("; ".join(mistakes))
    run.results.mkdir(parents=True, exist_ok=True)
    # The repository is mounted read-only: the engine cannot make the place of the results in it.
    (run.repository / RESULTS).mkdir(exist_ok=True)
    free_gb = shutil.disk_usage(run.results).free / 1e9
    if free_gb < NEEDED_FREE_GB:
        raise EngineError(
            f"{run.results}: {free_gb:.1f} GB free, at least {NEEDED_FREE_GB} GB are needed: free "
            "some space or give --results on another disk"
        )


def connect() -> Any:
    """A client of the engine, or one line that says how to get one."""
    import docker
    import requests
    from docker.errors import DockerException

    try:
        client = docker.from_env(timeout=120)
        client.ping()
    except (DockerException, requests.exceptions.RequestException) as error:
        where = os.environ.get("DOCKER_HOST", "the default socket")
        raise EngineError(
            f"no container engine answers at {where}: start Docker, or podman system service and "
            f"set DOCKER_HOST to its socket ({_first_line(error)})"
        ) from None
    return client


def execute(client: Any, run: Run) -> int:
    """Run it to its end and return its exit code; output is passed on as it comes.

    An interrupt stops and removes the container before it goes on its way up.
    """
    import requests
    from docker.errors import APIError, ImageNotFound

    check(run)
    try:
        _check_image(client, run)
        with _swept(run), _owned(run):
            container = client.containers.create(**settings(run))
            with _removed(container), _terminated_as_interrupt():
                return _follow(container, run)
    except ImageNotFound:
        raise EngineError(
            f"the image {run.reference} is not there: "
            f"warpwatch container build --backend {run.backend.name}"
        ) from None
    except APIError as error:
        raise EngineError(_explain(error)) from None
    except requests.exceptions.RequestException as error:
        raise EngineError(
            f"the engine stopped answering before anything was measured ({_first_line(error)}): "
            "restart it and run it again"
        ) from None


def has_image(client: Any, reference: str) -> None:
    """``EngineError`` where the engine has no image of this name."""
    from docker.errors import ImageNotFound

    try:
        client.images.get(reference)
    except ImageNotFound:
        raise EngineError(f"the engine has no image {reference}: let it pull one first") from None


def remove_left_over(client: Any) -> int:
    """Remove containers whose run has died without cleaning up; how many they were."""
    count = 0
    for container in client.containers.list(all=True, filters={"label": LABEL}):
        owner = container.labels.get(LABEL, "")
        if not (owner.isdigit() and Path(f"/proc/{owner}").exists()):
            container.remove(force=True)
            count += 1
    return count


def _cut_off(run: Run, error: Exception) -> EngineError:
    return EngineError(
        f"the engine stopped answering in mid-run ({_first_line(error)}): results already "
        f"written are in {run.results}; restart the engine and run it again"
    )


def _follow(container: Any, run: Run) -> int:
    """Start it, pass its output on, and give its exit code."""
    import requests
    from docker.errors import APIError, DockerException

    lost = (requests.exceptions.RequestException, APIError)

    def stop() -> None:
        with suppress(DockerException, *lost):  # it may have come to its end just now
            container.kill()

    # Attached before it starts: the engine keeps no log that could fill the host's disk.
    output = container.attach(stream=True, stdout=True, stderr=True)
    try:
        container.start()
    except requests.exceptions.RequestException as error:  # it may run all the same
        raise _cut_off(run, error) from None
    try:
        with Watch(run.results, run.results_gb, run.timeout_s, stop) as watch:
            for chunk in output:
                watch.output(len(chunk))
                if not watch.reason:
                    sys.stdout.buffer.write(chunk)
                    sys.stdout.flush()
            code = int(container.wait()["StatusCode"])
        state = container.client.api.inspect_container(container.id)["State"]
    except lost as error:
        raise _cut_off(run, error) from None
    reason = watch.reason or (full(run.results) if code else "")
    if reason:
        raise EngineError(f"{reason}; results already written are in {run.results}")
    if state.get("OOMKilled") or code == 137:  # not every engine says who killed it
        raise EngineError(
            f"killed, most likely for using more than {run.memory_gb:g} GB: give it more with "
            f"--memory-gb; results already written are in {run.results}"
        )
    return code


def _check_image(client: Any, run: Run) -> None:
    image = client.images.get(run.reference)
    built = image.attrs.get("Architecture", "")
    machine = str(client.info().get("Architecture", ""))
    engine = _ARCHITECTURES.get(machine, machine)
    if built and engine and built != engine:
        raise EngineError(
            f"the image {run.reference} is built for {built}, the engine runs {engine}: build it "
            f"on this machine with warpwatch container build --backend {run.backend.name}"
        )


@contextmanager
def _owned(run: Run) -> Iterator[None]:
    """Where root calls, the image's own user runs, and root owns the results afterwards."""
    if os.getuid() != 0 or run.user != f"{_IMAGE_USER}:{_IMAGE_USER}":
        yield
        return
    _give(run.results, _IMAGE_USER)
    try:
        yield
    finally:
        _give(run.results, 0)


def _give(folder: Path, user: int) -> None:
    # Not a walk of our own: code that ran there may have nested folders deeper than Python goes.
    command = ["chown", "--recursive", "--no-dereference", f"{user}:{user}", "--", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["chown failed"])[-1]
        print(f"warning: not all of {folder} changed its owner: {last}", file=sys.stderr)


@contextmanager
def _swept(run: Run) -> Iterator[None]:
    """Whatever the run left that is no result is gone before anybody here reads the folder."""
    try:
        yield
    finally:
        found = sweep(run.results)
        if found:
            more = f" and {len(found) - 10} more" if len(found) > 10 else ""
            names = ", ".join(map(str, found[:10]))
            print(f"removed from {run.results}: {names}{more}", file=sys.stderr)
    if found:
        raise EngineError(
            "the code that ran left something else than results: it was removed; read that code "
            "before you run it again"
        )


def caller() -> str:
    """Who runs inside: the caller, so that results are theirs; never root."""
    if os.getuid() == 0:
        return f"{_IMAGE_USER}:{_IMAGE_USER}"
    return f"{os.getuid()}:{os.getgid()}"


@contextmanager
def _removed(container: Any) -> Iterator[None]:
    """Whatever happens, the container is gone afterwards."""
    import requests
    from docker.errors import DockerException

    failures = (DockerException, requests.exceptions.RequestException)
    try:
        yield
    except KeyboardInterrupt:
        print("stopping the container", file=sys.stderr)
        # As the first process in its namespace asv heeds only signals it has a handler for.
        # One that does not stop in time is removed below all the same.
        with suppress(*failures):
            container.kill(signal="SIGINT")
            container.wait(timeout=10)
        raise
    finally:
        try:
            container.remove(force=True)
        except failures as error:
            print(
                f"warning: {container.name} could not be removed ({_first_line(error)}): "
                "warpwatch container clean when the engine is back",
                file=sys.stderr,
            )


@contextmanager
def _terminated_as_interrupt() -> Iterator[None]:
    """A runner that cancels a job sends SIGTERM: treat it as Ctrl-C."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def _explain(error: Exception) -> str:
    text = str(error)
    for words, remedy in _REMEDIES:
        if words.lower() in text.lower():
            return f"{remedy} ({_first_line(error)})"
    return f"the engine refused: {_first_line(error)}"


def _first_line(error: Exception) -> str:
    text = str(getattr(error, "explanation", "") or error)  # an APIError's own text is long
    return (text.splitlines() or [type(error).__name__])[0][:300]


def make_run(
    backend: Backend, command: Sequence[str], repository: Path, results: Path | None, **more: Any
) -> Run:
    """A run with the caller's user and the defaults filled in."""
    repository = repository.resolve()
    return Run(
        backend=backend,
        command=tuple(command),
        repository=repository,
        results=(results or repository / RESULTS).resolve(),
        user=caller(),
        **more,
    )
