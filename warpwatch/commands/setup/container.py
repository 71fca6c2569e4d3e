"""``container``: build the images, run them hardened, and say what the workflows need to know."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from warpwatch.sandbox import containers, delivery, images
from warpwatch.sandbox.settings import (
    CDI_FOLDERS,
    EngineError,
    command_line,
    gpu_access,
    gpu_of_nodes,
)

BACKENDS = ("cpu", "cuda", "rocm")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    run = actions.add_parser("run", help="run a command in the image: no network, read-only")
    run.add_argument("--backend", choices=BACKENDS, required=True)
    run.add_argument("--image", default="", help="another image than the backend's own")
    run.add_argument("--repository", type=Path, default=Path(), metavar="DIR")
    run.add_argument("--results", type=Path, metavar="DIR", help="default: .asv there")
    run.add_argument("--machine", default=containers.default_machine(), metavar="NAME")
    run.add_argument("--gpu", default=os.environ.get("WARPWATCH_GPU", ""), metavar="NAME",
                     help="hand over one GPU of several, by its UUID, @FILE that holds it, or "
                          "@/dev/dri for the AMD GPU whose nodes are there "
                          "(default: $WARPWATCH_GPU, else all)")  # fmt: skip
    run.add_argument("--memory-gb", type=float, default=32.0, metavar="GB")
    run.add_argument("--tmp-gb", type=float, default=8.0, metavar="GB")
    run.add_argument("--results-gb", type=float, default=8.0, metavar="GB",
                     help="stop when it wrote more results (default %(default)s)")  # fmt: skip
    run.add_argument("--pids", type=int, default=4096, metavar="N")
    run.add_argument("--timeout", type=float, metavar="S", help="stop after so many seconds")
    run.add_argument("--read-only", type=Path, action="append", default=[], metavar="DIR",
                     help="one more folder to see, at its own path")  # fmt: skip
    run.add_argument("--trusted-counters", action="store_true",
                     help="add the capability the profiler needs; for code you trust")  # fmt: skip
    run.add_argument("--print", choices=("docker", "podman"), dest="show", metavar="ENGINE",
                     help="print the command line of docker or podman instead; Docker before "
                     "28.2 takes a GPU by CDI only with the feature switched on")  # fmt: skip
    run.add_argument("arguments", nargs=argparse.REMAINDER, metavar="-- COMMAND")
    run.set_defaults(act=_run)

    build = actions.add_parser("build", help="build an image")
    build.add_argument("--backend", choices=BACKENDS, required=True)
    build.add_argument("--builder", choices=("docker", "buildah", "none"), default="docker",
                       help="none: the engine has the image already, which is checked")  # fmt: skip
    build.add_argument("--base", default="", help="a stand-in for the pinned base images")
    build.add_argument("--tag", default="")
    build.add_argument("--volume", action="append", default=[], metavar="HOST:CONTAINER:ro")
    build.set_defaults(act=_build)

    plan = actions.add_parser("plan", help="print a workflow's matrix as JSON")
    plan.add_argument("--backends", nargs="+", choices=BACKENDS, default=["cuda", "rocm"])
    plan.add_argument("--output", type=Path, help="append matrix=JSON to this file (GITHUB_OUTPUT)")
    plan.set_defaults(act=_plan)

    hand = actions.add_parser("deliver", help="copy plain files of a lane's results, for an upload")
    hand.add_argument("--results", type=Path, required=True, metavar="DIR")
    hand.add_argument("--out", type=Path, required=True, metavar="DIR")
    hand.set_defaults(act=_deliver)

    clean = actions.add_parser("clean", help="remove containers of runs that died")
    clean.set_defaults(act=_clean)


def main(args: argparse.Namespace) -> int:
    try:
        code: int = args.act(args)
    except EngineError as error:
        print(f"error: {error}", file=sys.stderr)
        return 3  # nothing was measured, or not all of it
    return code


def _run(args: argparse.Namespace) -> int:
    command = args.arguments[1:] if args.arguments[:1] == ["--"] else args.arguments
    client = None if args.show else containers.connect()
    info = client.info() if client else _offline_info()
    run = containers.make_run(
        images.get(args.backend),
        command,
        args.repository,
        args.results,
        machine=args.machine,
        image=args.image,
        access=gpu_access(args.backend, info, gpu=_one_gpu(args.gpu)),
        memory_gb=args.memory_gb,
        pids=args.pids,
        tmp_gb=args.tmp_gb,
        results_gb=args.results_gb,
        timeout_s=args.timeout,
        trusted_counters=args.trusted_counters,
        read_only=tuple(path.resolve() for path in args.read_only),
    )
    if client is None:
        containers.check(run)
        print(shlex.join(command_line(run, args.show)))
        return 0
    return containers.execute(client, run)


def _offline_info() -> dict[str, object]:
    """What can be known of GPUs without asking an engine: where CDI descriptions usually lie."""
    return {"CDISpecDirs": CDI_FOLDERS}


def _one_gpu(name: str) -> str:
    """The GPU's name; a file holds it where another container was given the GPU, and device nodes
    say it where this one was."""
    if not name.startswith("@"):
        return name
    if Path(name[1:]).is_dir():
        return gpu_of_nodes(Path(name[1:]))
    try:
        found = Path(name[1:]).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise ValueError(f"--gpu {name}: {error.strerror}") from None
    if not found or "," in found:
        raise ValueError(f"--gpu {name}: expected the name of one GPU, got {found!r}")
    return found


def _build(args: argparse.Namespace) -> int:
    backend = images.get(args.backend)
    if args.builder == "none":
        containers.has_image(containers.connect(), args.tag or backend.tag)
        return 0
    revision = subprocess.run(
        ["git", "-C", str(images.root()), "rev-parse", "HEAD"], capture_output=True, text=True
    ).stdout.strip()
    with tempfile.TemporaryDirectory() as folder:
        pip_config = Path(folder) / "pip.conf"
        pip_config.write_text(images.pip_settings(), encoding="utf-8")
        command = images.build_command(
            backend,
            harness=images.copy_harness(Path(folder) / images.HARNESS),
            builder=args.builder,
            base=args.base,
            tag=args.tag,
            revision=revision or "unknown",
            pip_config=pip_config,
            volumes=args.volume,
        )
        try:
            return 0 if subprocess.run(command, cwd=images.root()).returncode == 0 else 3
        except FileNotFoundError:
            raise EngineError(
                f"{command[0]} is not installed: install it, or choose another --builder"
            ) from None


def _plan(args: argparse.Namespace) -> int:
    known = images.load()
    line = json.dumps(images.matrix([known[name] for name in args.backends]))
    if args.output:
        with args.output.open("a", encoding="utf-8") as file:
            file.write(f"matrix={line}{os.linesep}")
    else:
        print(line)
    return 0


def _deliver(args: argparse.Namespace) -> int:
    """Exit 0 when all of it could be copied, 3 when something was refused."""
    refused = delivery.deliver(args.results, args.out)
    for stranger in refused[:20]:
        print(f"refused: {stranger}", file=sys.stderr)
    if refused:
        raise EngineError(
            f"{len(refused)} of {args.results} refused: nothing else than results within limits "
            "is delivered, and no shard that tried counts"
        )
    return 0


def _clean(_: argparse.Namespace) -> int:
    count = containers.remove_left_over(containers.connect())
    print(f"{count} left-over containers removed", file=sys.stderr)
    return 0
