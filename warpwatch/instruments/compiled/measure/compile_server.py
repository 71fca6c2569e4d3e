"""One process that has imported torch and Triton, for all that is compiled during a command.

To import both takes seconds of a processor, and each commit of a history is compiled by processes
of its own. The command opens a socket and names it in its environment. Whoever inherits the name
connects to it instead of starting a process. The server forks one for each request. The fork takes
the environment, the folder and the standard error of its sender, and goes on as a process started
for it would (see :mod:`.job_process`).

A sender whose own process would import other tools, or under other settings, starts that process.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator, Mapping
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from warpwatch.config import isolation
from warpwatch.config.end_with_parent import end_with
from warpwatch.config.package import COMPILE_SERVER_VARIABLE

# A fork copies no threads, and the children share the cores among themselves.
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
# What the tools and Python read of the environment when they are imported.
_READ_AT_IMPORT = (
    *("TRITON", "TORCH", "PYTORCH", "OMP_", "OPENBLAS_", "MKL_", "CUDA", "HIP", "ROC"),
    *("LD_", "PYTHON"),
)
# A fork takes the first two from its sender; the third says what both processes are started with.
_OF_THE_FORK = {"PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "PYTHONSAFEPATH"}
# Read when something is compiled. torch names such a folder in its own environment, too.
_OF_A_COMPILATION = "_CACHE_DIR"
_LOOKS_SECONDS = 1.0
_SENDS_SECONDS = 10.0  # a request, which its sender has ready
_WAITING = 64  # connections that wait for their turn
_FAILED = 70


@contextlib.contextmanager
def serving() -> Iterator[None]:
    """Inside, all that this process and those it starts compile is served by one process.

    It imports its tools at the first request, and ends with the block or with its owner. Nothing
    happens where such a server is there already, or where the system has no such sockets.
    """
    if os.environ.get(COMPILE_SERVER_VARIABLE) or not hasattr(socket, "send_fds"):
        yield
        return
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="warpwatch-"))
        listening = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        place = Path(folder, "compile")
        try:
            listening.bind(str(place))
        except OSError:  # such as a folder for temporary files whose name is too long
            yield
            return
        listening.listen(_WAITING)
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", __name__, str(listening.fileno())],
            stdin=subprocess.PIPE,
            pass_fds=[listening.fileno()],
            env=_environment(os.environ) | {"PYTHONPATH": isolation.path_of_the_harness()},
        )
        listening.close()
        assert process.stdin is not None
        os.environ[COMPILE_SERVER_VARIABLE] = str(place)
        try:
            yield
        finally:
            os.environ.pop(COMPILE_SERVER_VARIABLE, None)
            process.stdin.close()
            process.wait()


def connected(
    request: Mapping[str, object], environment: Mapping[str, str], words: int
) -> socket.socket | None:
    """Send a request to the server that ``environment`` names.

    Args:
        request: As :mod:`.job_process` reads it.
        environment: What the process that measures is to have.
        words: An open file, which becomes its standard error.

    Returns:
        What its answers come from; to close it ends the request. ``None`` where no server is, or
        where it has imported other tools than a process of this environment would.
    """
    place = environment.get(COMPILE_SERVER_VARIABLE)
    if not place:
        return None
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    own = {"environment": _environment(environment), "folder": str(Path.cwd())}
    own["executable"] = sys.executable
    try:
        connection.connect(place)
        socket.send_fds(connection, [b"\n"], [words])
        connection.sendall(json.dumps({**request, **own}).encode() + b"\n")
        if connection.recv(1) == b"+":
            return connection
    except OSError:  # it has ended, or is another user's
        pass
    connection.close()
    return None


def _environment(base: Mapping[str, str]) -> dict[str, str]:
    return dict(base) | ONE_THREAD


def main() -> int:
    """Answer until standard input ends, which the owner holds open."""
    # Imported here and by this name: run as a program, this module is called otherwise.
    from . import job_process

    listening = socket.socket(fileno=int(sys.argv[1]))
    owner = os.getppid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the owner hears it, and ends this
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with selectors.DefaultSelector() as selector:
        selector.register(listening, selectors.EVENT_READ)
        selector.register(sys.stdin, selectors.EVENT_READ)
        while os.getppid() == owner:
            ready = [key.fileobj for key, _ in selector.select(_LOOKS_SECONDS)]
            if sys.stdin in ready:
                return 0
            if listening not in ready:
                continue
            connection, _ = listening.accept()
            with connection, contextlib.suppress(OSError, ValueError):  # a sender that ended
                request, words = _received(connection)
                job_process.import_tools(sum(map(len, request["batches"])))
                gc.freeze()  # a fork that looks through them would copy them
                if _would_import_the_same(request) and os.fork() == 0:
                    listening.close()
                    _answer(connection, request, words, job_process)
                os.close(words)
    return 0


def _received(connection: socket.socket) -> tuple[dict[str, Any], int]:
    """A request, and the open file that takes the words of who answers it."""
    connection.settimeout(_SENDS_SECONDS)
    _, (words,), _, _ = socket.recv_fds(connection, 1, 1)
    with connection.makefile("r", encoding="utf-8") as given:
        request: dict[str, Any] = json.loads(given.readline())
    connection.settimeout(None)
    return request, words


def _answer(
    connection: socket.socket, request: Mapping[str, Any], words: int, job_process: ModuleType
) -> NoReturn:
    """Serve one sender in this fork. It ends where the sender closes its end of the connection."""
    code = _FAILED
    try:
        end_with(os.getppid())
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        connection.sendall(b"+")
        os.dup2(words, 1)
        os.dup2(words, 2)
        os.close(words)
        _become(request)
        with connection.makefile("w", encoding="utf-8") as answers:
            code = job_process.answer(request, answers, connection.fileno())
    except (SystemExit, BrokenPipeError):  # nobody wants the rest
        pass
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _would_import_the_same(request: Mapping[str, Any]) -> bool:
    """Whether a process of its own, for this request, would have the tools that are here."""
    environment = request["environment"]
    names = {
        name
        for name in (*environment, *os.environ)
        if name.startswith(_READ_AT_IMPORT)
        and name not in _OF_THE_FORK
        and not name.endswith(_OF_A_COMPILATION)
    }
    if request["executable"] != sys.executable or any(
        environment.get(name) != os.environ.get(name) for name in names
    ):
        return False
    imported = {name for name in sys.modules if "." not in name}
    for entry in _entries(environment):
        for name in imported & _names(entry):
            here = getattr(sys.modules[name], "__file__", None)
            found = PathFinder.find_spec(name, [entry])
            if found is None or found.origin is None or here is None:
                continue
            if Path(found.origin).resolve() != Path(here).resolve():
                return False
    return True


def _entries(environment: Mapping[str, str]) -> list[str]:
    return [one for one in environment.get("PYTHONPATH", "").split(os.pathsep) if one]


def _names(entry: str) -> set[str]:
    try:
        return {path.name.partition(".")[0] for path in Path(entry).iterdir()}
    except OSError:
        return set()


def _become(request: Mapping[str, Any]) -> None:
    """Take the environment, the path and the folder of the sender."""
    own = set(_entries(os.environ))
    environment = request["environment"]
    os.environ.clear()
    os.environ.update(environment)
    sys.path[:] = [*_entries(environment), *(one for one in sys.path if one not in own)]
    sys.dont_write_bytecode = bool(environment.get("PYTHONDONTWRITEBYTECODE"))
    sys.path_importer_cache.clear()
    importlib.invalidate_caches()
    os.chdir(request["folder"])


if __name__ == "__main__":
    from warpwatch.instruments.compiled.measure.job_process import leave

    leave(main())
