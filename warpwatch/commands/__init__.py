"""The subcommands of ``warpwatch``: each is a module, imported when it is requested."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Command:
    """One subcommand.

    Attributes:
        module: Its module below this package.
        help: One line.
        example: A line that can be typed.
        recorded: The module that serves with ``--recorded``: it reads results and runs nothing.
    """

    module: str
    help: str
    example: str
    recorded: str = ""


COMMANDS: Mapping[str, Command] = {
    "init": Command(
        "setup.init",
        "propose a configuration for the package in this folder, and write it",
        "warpwatch init",
    ),
    "doctor": Command(
        "setup.doctor",
        "list the measurements that this machine can make, and how to get the missing ones",
        "warpwatch doctor",
    ),
    "run": Command(
        "measure.run",
        "measure one workload now, uncommitted edits included",
        "warpwatch run gelu-bf16",
    ),
    "history": Command(
        "measure.history",
        "run asv over the newest commits that touch the measured package",
        "warpwatch history --commits 5",
    ),
    "compare": Command(
        "gpu.compare",
        "judge two commits: measured interleaved now, or from recorded results",
        "warpwatch compare main .",
        recorded="results.compare",
    ),
    "report": Command(
        "results.report",
        "read results and write the site",
        "warpwatch report --out reports/html",
    ),
    "inspect": Command(
        "compiled.inspect",
        "show the compilers' reading of a Triton function or a workload, without a GPU",
        "warpwatch inspect fastops:gelu --args 'bf16[4096,4096]'",
    ),
    "record": Command(
        "compiled.record",
        "run an existing script or pytest without a GPU, and make each call a workload",
        "warpwatch record -- python bench/rms_norm.py",
    ),
    "simulate": Command(
        "compiled.simulate",
        "run Gluon kernels on this CPU and find races, missing fences and deadlocks",
        "warpwatch simulate fastops.hopper:attention --seeds 5",
    ),
    "upgrade": Command(
        "compiled.upgrade",
        "compare the kernels under another Triton version, one by one",
        "warpwatch upgrade 3.9.0",
    ),
    "lint": Command(
        "compiled.lint",
        "name tuned configurations that fall off a cliff on another target or Triton",
        "warpwatch lint tuned.json --target sm_90 --triton 3.6.0 3.9.0",
    ),
    "peers": Command(
        "gpu.peers",
        "measure workloads next to every other implementation that can be imported here",
        "warpwatch peers --workload gelu-bf16",
    ),
    "tune": Command(
        "gpu.tune",
        "sweep the configurations of a workload: compilers condemn, the GPU times the rest",
        "warpwatch tune gelu-bf16",
    ),
    "profile": Command(
        "gpu.profile",
        "run a workload under ncu, nsys, torch's profiler or proton",
        "warpwatch profile gelu-bf16 --with ncu",
    ),
    "bisect": Command(
        "gpu.bisect",
        "find the commit that made a workload worse, or say that it cannot be found",
        "warpwatch bisect 1f2e3d4c5b6a",
    ),
    "accept": Command(
        "results.accept",
        "accept a finding with an owner, a reason and an expiry",
        "warpwatch accept 1f2e3d4c5b6a --owner kernels --reason 'more memory for speed'",
    ),
    "suspects": Command(
        "results.suspects",
        "name the commits that are worth measuring again",
        "warpwatch suspects",
    ),
    "container": Command(
        "setup.container",
        "build the images and run them: no network, read-only, unprivileged",
        "warpwatch container build --backend cpu",
    ),
    "ci": Command(
        "ci.group",
        "the steps of workflows: measure a pull request, judge it, extend the history",
        "warpwatch ci lane --lane cpu --base main --head HEAD",
    ),
    "evidence": Command(
        "compiled.evidence",
        "list the evidence that is kept next to results, and how much of it can go",
        "warpwatch evidence",
    ),
    "calibrate": Command(
        "gpu.calibrate",
        "say how far this machine's readings agree with themselves and with ncu",
        "warpwatch calibrate --processes 10",
    ),
    "bounds": Command(
        "gpu.bounds",
        "compare the compiled bound on utilization with hardware counters",
        "warpwatch bounds",
    ),
    "scorecard": Command(
        "results.scorecard",
        "measure the judge itself, next to other detectors",
        "warpwatch scorecard --series 200",
    ),
}

# Of ``warpwatch ci``.
STEPS: Mapping[str, Command] = {
    "lane": Command(
        "ci.lane",
        "measure base and head of a pull request, or one shard of them",
        "warpwatch ci lane --lane cpu --base main --head HEAD",
    ),
    "gate": Command(
        "ci.gate",
        "say whether a GPU machine may measure for this event, and against which base",
        "warpwatch ci gate --environment gpu",
    ),
    "judge": Command(
        "ci.judge",
        "judge the artifacts of a pull request's run and say so on GitHub",
        "warpwatch ci judge --lane cpu --run 1 --trusted results",
    ),
    "comment": Command(
        "ci.comment",
        "write two commits' verdict as Markdown, step summary or check run",
        "warpwatch ci comment main HEAD",
    ),
    "merge": Command(
        "ci.merge",
        "merge the shards of one run into one results folder",
        "warpwatch ci merge .artifacts --out .merged",
    ),
    "needs": Command(
        "ci.needs",
        "say whether every job of a workflow succeeded",
        'warpwatch ci needs "$NEEDS"',
    ),
    "record": Command(
        "ci.record",
        "extend the history on the data branch, or say which machine went silent",
        "warpwatch ci record fetch --out .trusted",
    ),
}
