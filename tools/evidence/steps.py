"""What must be seen on an H200 before a release, what matters most first.

Checks come first, then what is timed; of the peers each group once, then again.

Seconds of the checks are of one H200 and 16 cores (b8f8934, 23 November 2026): as printed of reach,
graphs, repeats and launches, which ran side by side, and of the sanitizers, alone. Hopper's
tests and random configurations ran all three at once, in 219, 360 (91 % of them) and 395 s (66 %):
theirs are what those processor seconds come to beside what their share allows, had all of it been
compilation. Paths did not run as steps, nor what is timed: of group fa3, the portable path's speed
and planted defects seconds are from docs/, the others guesses.

Checks wait for compilers more than for the card, so that several share one.
"""

from __future__ import annotations

import os
from importlib.util import find_spec

from benchmarks.workloads import select
from tools.evidence.runner import Step

REPETITIONS = 3
# Of a card: what one process takes that compiles and then computes, and what twelve do.
ONE_PROCESS, TWELVE = 0.1, 0.4
SEED = 101  # of random configurations: another, when the table of docs/ has all of its
PYTEST_ENDED = r"^=* ?\d+ (passed|failed|errors?)[, ]"
PYTEST_SPOILS = r"^(FAILED|ERROR|SKIPPED) "
# A line of the peers' table that gives our kernel no time.
OURS_UNTIMED = r"^  ours +[a-z]"
GROUPS: dict[str, tuple[tuple[str, ...], float, str]] = {
    "fa3-forward": (("--group", "fa3", "--kernel", "flash_attention"), 110, "1.08, least 0.98"),
    "fa3-backward": (
        ("--group", "fa3", "--kernel", "flash_attention_backward"),
        110,
        "1.08, least 0.95",
    ),
    "guide-attention": (
        ("--group", "guide", "--kernel", "flash_attention"),
        40,
        "1.10 with sdpa, least 1.00",
    ),
    "sdpa": (("--group", "sdpa"), 25, "1.10 with guide-attention, least 1.00"),
    "guide-matmul": (("--group", "guide", "--kernel", "matmul"), 20, "1.07, least 1.00"),
    "gemm": (
        ("--group", "gemm", "--kernel", "matmul"),
        50,
        "1.05 in 16 bits, 1.03 in fp8, least 0.97",
    ),
    "llm": (("--group", "llm", "--kernel", "flash_attention"), 50, "1.10, least 1.00"),
    "decode": (
        ("--group", "llm", "--kernel", "flash_attention_kvcache"),
        70,
        "one query: 1.10, least 1.00",
    ),
    "decode-few": (
        tuple(
            part
            for one in select(kernel="flash_attention_kvcache")
            if getattr(one, "S", 1) > 1
            for part in ("--workload", one.name)
        ),
        50,
        "2 to 16 queries: 1.5, least 1.00",
    ),
}


def _pytest(*given: str, workers: int = 0) -> tuple[str, ...]:
    """``workers`` processes, where pytest-xdist is installed and the cores are. Each test is named,
    so that a run that is cut off says which had passed."""
    count = min(workers, len(os.sched_getaffinity(0)) - 2)
    more = ("-n", str(count)) if count > 1 and find_spec("xdist") else ()
    return ("-m", "pytest", "-vv", "-rfEs", *more, *given)


def _tests(name: str, seconds: float, *given: str, workers: int = 0, share: float = 1.0) -> Step:
    return Step(
        name,
        _pytest(*given, workers=workers),
        seconds,
        "all passed, none skipped",
        must=PYTEST_ENDED,
        tells=PYTEST_ENDED,
        spoils=PYTEST_SPOILS,
        share=share,
    )


def _sanitized(kind: str, which: str, seconds: float) -> Step:
    module = "tools.kernels.sanitized_paths"
    command = ("-m", module, "--tool", kind, f"--{which}", "--jobs", "24", "--seconds", "{seconds}")
    return Step(
        f"{kind}-{which}",
        command,
        seconds,
        "no path FOUND, WRONG, cut off or not run",
        must=r"^\d+ paths: ",
        tells=r"^\d+ paths: |FOUND|WRONG",
        spoils=r"\b(FOUND|WRONG)\b",
        ends_s=15.0,
    )


def _peers(name: str, repetition: int) -> Step:
    given, seconds, goal = GROUPS[name]
    files = ("--json", "{folder}/peers.json", "--seconds", "{seconds}")
    return Step(
        f"peers-{name}-{repetition}",
        ("-m", "warpwatch", "peers", *given, *files),
        seconds,
        f"best peer's time over ours {goal}",
        must=r"geometric mean: ",
        tells=r"geometric mean: ",
        spoils=OURS_UNTIMED,
        timed=True,
    )


def _speed(name: str, seconds: float, shows: str, *given: str) -> Step:
    hidden = "--hidden" in given
    return Step(
        name,
        ("-m", "tools.kernels.speed.portable", "--seconds", "{seconds}", *given),
        seconds,
        shows,
        must=r"^backward .*varlen" if hidden else r"^flash_attention_backward: .*mean: \d",
        tells=r"window 256|varlen" if hidden else r"geometric mean: \d",
        spoils=r"FAILED|no time left",
        timed=True,
        ends_s=30.0,
    )


CHECKS: tuple[Step, ...] = (
    *(
        Step(
            f"paths-{part}",
            ("-m", "tools.kernels.each_path_once", "--part", f"{part}/4"),
            70,
            "every path through the kernels right",
            must=r"^\d+ paths, \d+ failed$",
            share=ONE_PROCESS,
        )
        for part in range(1, 5)
    ),
    _tests("reach", 65, "tests/gpu/test_reach_on_gpu.py", share=ONE_PROCESS),
    _tests(
        "hopper-forward-matmul",
        140,
        "tests/hopper/test_hopper_attention_on_gpu.py",
        "tests/hopper/test_hopper_matmul_on_gpu.py",
        workers=12,
        share=TWELVE,
    ),
    _tests(
        "hopper-gradients",
        270,
        "tests/hopper/test_hopper_gradients_on_gpu.py",
        workers=12,
        share=TWELVE,
    ),
    _tests(
        "graphs-infinities",
        90,
        "tests/gpu/test_graphs.py",
        "tests/gpu/test_far_scores_on_gpu.py",
        "tests/gpu/test_infinities_on_gpu.py",
        workers=12,
        share=TWELVE,
    ),
    _tests(
        "exact-gradients",
        120,
        "tests/gpu/test_exact_gradients_on_gpu.py",
        workers=12,
        share=TWELVE,
    ),
    *(
        Step(
            f"repeats-{part}",
            ("-m", "tools.kernels.repeats", "--count", "1000", "--part", f"{part}/4"),
            90,
            "all alike, no NaN",
            must=r"^\d+ failed$",
            spoils=r" [1-9]\d* of \d+ unlike| [1-9]\d* NaN|FAILED",
            share=ONE_PROCESS,
        )
        for part in range(1, 5)
    ),
    Step(
        "launches",
        ("-m", "tools.kernels.many_launches"),
        70,
        "10,000 calls of each kernel end with the same bits",
        must=r"^matmul-fp8-split beside: same bits",
        spoils=r": (hung|other bits|failed)",
        tells=r"beside: ",
        share=ONE_PROCESS,
    ),
    Step(
        "random",
        (
            *("-m", "tools.kernels.random_configurations", "--count", "3000", "--jobs", "14"),
            *("--seed", str(SEED), "--seconds", "{seconds}", "--log", "{folder}/answers.txt"),
        ),
        280,
        "3000 of 3000, none failed",
        must=r"3000 of 3000 in",
        tells=r"^FAILED|^all |of 3000 in",
        ends_s=15.0,
    ),
    _sanitized("memcheck", "hopper", 80),
    _sanitized("memcheck", "portable", 75),
    # One path was cut off when it had taken 157 s of 209; it has 300 now.
    _sanitized("racecheck", "hopper", 260),
    _sanitized("racecheck", "portable", 95),
)

TIMED: tuple[Step, ...] = (
    *(_peers(name, 1) for name in GROUPS),
    _speed(
        "speed-portable",
        130,
        "FlashAttention-2's time over ours 1.25 forward, 1.10 backward; decoding 0.85 of a read "
        "at 256 MB, 0.65 at 64",
    ),
    _speed("speed-hidden", 60, "a block at most 1.10 of one of full attention", "--hidden"),
    _speed("speed-hidden-any", 60, "the same as it serves", "--hidden", "--any"),
    Step(
        "counters",
        ("-m", "tools.harness.ncu_by_hand"),
        120,
        "tensor pipe as ncu's by hand within 0.1 points",
        must=r"^workload .*by hand",
        tells=r"tensor_pipe",
        timed=True,
    ),
    Step(
        "utilization",
        (
            *("-m", "warpwatch", "peers", "--group", "tensor-core", "--counters"),
            *("--json", "{folder}/peers.json", "--seconds", "{seconds}"),
        ),
        90,
        "tensor pipe forward 60, 80 and 88 % at head dims 64, 128 and 256",
        must=r"geometric mean: ",
        tells=r"^  ours",
        spoils=OURS_UNTIMED,
        timed=True,
    ),
    Step(
        "planted",
        (
            *("-m", "tools.planted.on_gpu", "--seconds", "{seconds}"),
            *("--out", "{folder}"),
        ),
        450,
        "22 of 24 defects found with their causes at least, 8 of 8 harmless commits unchanged",
        must=r"\d+ of \d+ defects found",
        tells=r"defects found|^not as expected",
        timed=True,
        ends_s=45.0,
    ),
    *(_peers(name, again) for again in range(2, REPETITIONS + 1) for name in GROUPS),
    Step(
        "speed-scores",
        ("-m", "tools.kernels.speed.scores"),
        60,
        "what options of scores cost, as docs/log/kernels/performance.md has them",
        must=r"^backward block mask",
        tells=r"^(forward|backward) +(softcap|dropout)",
        timed=True,
    ),
    Step(
        "instrument",
        _pytest("-s", "tests/gpu/test_torch_gpu.py"),
        40,
        "all passed, none skipped",
        must=PYTEST_ENDED,
        tells=r"TFLOP/s|" + PYTEST_ENDED,
        spoils=PYTEST_SPOILS,
        timed=True,
    ),
)

STEPS = (*CHECKS, *TIMED)
