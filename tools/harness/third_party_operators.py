"""Inspects public operators of two Triton libraries, unmodified, for an NVIDIA and an AMD target.

    python -m tools.harness.third_party_operators [--page FILE] [--only TEXT]

Installs the libraries from the package index into a folder under .asv/ and writes the table. Not
part of `make test`: it compiles some 600 kernels and takes minutes.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tools.root import ROOT
from warpwatch.config import isolation
from warpwatch.instruments.compiled.measure import jobs

PACKAGES = ("liger-kernel==0.8.5", "fla-core==0.6.0", "einops==0.8.2")
TARGETS = ("sm_90", "gfx942")

HEADS = "bf16[2,2048,8,64]"  # batch, tokens, heads, head dim
GATES = "fp32[2,2048,8]"
ROWS = "bf16[4096,4096]"

# label, package.module:callable, arguments
LIGER = (
    ("rms_norm", "liger_kernel.ops.rms_norm:LigerRMSNormFunction.apply", f"{ROWS} bf16[4096] 1e-6"),
    (
        "layer_norm",
        "liger_kernel.ops.layer_norm:LigerLayerNormFunction.apply",
        f"{ROWS} bf16[4096] bf16[4096] 1e-6",
    ),
    (
        "fused_add_rms_norm",
        "liger_kernel.ops.fused_add_rms_norm:LigerFusedAddRMSNormFunction.apply",
        f"{ROWS} {ROWS} bf16[4096] 1e-6",
    ),
    (
        "group_norm",
        "liger_kernel.ops.group_norm:LigerGroupNormFunction.apply",
        "fp32[8,64,1024] fp32[64] fp32[64] 64 8 1e-6",
    ),
    ("swiglu", "liger_kernel.ops.swiglu:LigerSiLUMulFunction.apply", f"{ROWS} {ROWS}"),
    ("geglu", "liger_kernel.ops.geglu:LigerGELUMulFunction.apply", f"{ROWS} {ROWS}"),
    ("softmax", "liger_kernel.ops.softmax:LigerSoftmaxFunction.apply", ROWS),
    ("sparsemax", "liger_kernel.ops.sparsemax:LigerSparsemaxFunction.apply", f"{ROWS} -1"),
    (
        "dynamic_tanh",
        "liger_kernel.ops.dyt:LigerDyTFunction.apply",
        f"{ROWS} fp32[1] bf16[4096] bf16[4096]",
    ),
    (
        "rope",
        "liger_kernel.ops.rope:LigerRopeFunction.apply",
        "bf16[2,32,2048,128] bf16[2,8,2048,128] bf16[1,2048,128] bf16[1,2048,128]",
    ),
    (
        "cross_entropy",
        "liger_kernel.transformers.functional:liger_cross_entropy",
        "bf16[2048,32000] i64[2048]",
    ),
    (
        "fused_linear_cross_entropy",
        "liger_kernel.transformers.functional:liger_fused_linear_cross_entropy",
        "bf16[2048,2048] bf16[32000,2048] i64[2048]",
    ),
    (
        "kl_div",
        "liger_kernel.ops.kl_div:LigerKLDivLossFunction.apply",
        "fp32[2048,8192] fp32[2048,8192]",
    ),
    ("jsd", "liger_kernel.ops.jsd:LigerJSDFunction.apply", "fp32[2048,8192] fp32[2048,8192]"),
    ("tvd", "liger_kernel.ops.tvd:LigerTVDLossFunction.apply", "fp32[2048,8192] fp32[2048,8192]"),
)
FLA = (
    ("chunk_gla", "fla.ops.gla:chunk_gla", f"{HEADS} {HEADS} {HEADS} fp32[2,2048,8,64]"),
    (
        "fused_recurrent_gla",
        "fla.ops.gla:fused_recurrent_gla",
        f"{HEADS} {HEADS} {HEADS} fp32[2,2048,8,64]",
    ),
    ("chunk_linear_attn", "fla.ops.linear_attn:chunk_linear_attn", f"{HEADS} {HEADS} {HEADS}"),
    ("chunk_retention", "fla.ops.retention:chunk_retention", f"{HEADS} {HEADS} {HEADS}"),
    ("parallel_retention", "fla.ops.retention:parallel_retention", f"{HEADS} {HEADS} {HEADS}"),
    ("chunk_simple_gla", "fla.ops.simple_gla:chunk_simple_gla", f"{HEADS} {HEADS} {HEADS} {GATES}"),
    (
        "chunk_delta_rule",
        "fla.ops.delta_rule:chunk_delta_rule",
        f"{HEADS} {HEADS} {HEADS} bf16[2,2048,8]",
    ),
    (
        "chunk_gated_delta_rule",
        "fla.ops.gated_delta_rule:chunk_gated_delta_rule",
        f"{HEADS} {HEADS} {HEADS} {GATES} bf16[2,2048,8]",
    ),
    ("parallel_attn", "fla.ops.attn:parallel_attn", f"{HEADS} {HEADS} {HEADS}"),
    (
        "parallel_forgetting_attn",
        "fla.ops.forgetting_attn:parallel_forgetting_attn",
        f"{HEADS} {HEADS} {HEADS} {GATES}",
    ),
    (
        "parallel_based",
        "fla.ops.based:parallel_based",
        "bf16[2,2048,8,16] bf16[2,2048,8,16] bf16[2,2048,8,64]",
    ),
    ("chunk_hgrn", "fla.ops.hgrn:chunk_hgrn", "fp32[2,2048,512] fp32[2,2048,512]"),
    (
        "chunk_rwkv6",
        "fla.ops.rwkv6:chunk_rwkv6",
        f"{HEADS} {HEADS} {HEADS} fp32[2,2048,8,64] fp32[8,64]",
    ),
)


def install(folder: Path) -> None:
    """The libraries and nothing they depend on: torch and Triton are those of this Python."""
    stamp = folder / "-".join(PACKAGES)
    if stamp.exists():
        return
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--upgrade"]
    subprocess.run([*command, "--target", str(folder), *PACKAGES], check=True, timeout=1800)
    stamp.touch()


def measure(only: str) -> tuple[list[tuple[str, str, jobs.Job]], dict[jobs.Job, jobs.Result]]:
    """(library, label, job) in the order of the table, and what came of each job."""
    folder = ROOT / ".asv" / "third-party"
    install(folder)
    environment = isolation.subprocess_environment()
    environment["PYTHONPATH"] += os.pathsep + str(folder)
    rows = [
        (library, label, jobs.Job(name, target, arguments, backward))
        for library, operators in (("Liger-Kernel", LIGER), ("flash-linear-attention", FLA))
        for label, name, arguments in operators
        for backward in (False, True)
        for target in TARGETS
        if only in label
    ]
    results: dict[jobs.Job, jobs.Result] = {}
    for one in jobs.run([job for _, _, job in rows], environment):
        results[one.job] = one
        print(f"{len(results)}/{len(rows)} {one.job.name} {one.status}", file=sys.stderr)
    return rows, results


def cell(result: jobs.Result) -> str:
    """What one target makes of one operator, in a few words."""
    if result.status != "ok":
        return f"{result.status}: {result.detail}".replace("|", "\\|")
    launches = result.evidence["launches"]
    values = result.values
    parts = [f"{len(launches)} launches, bound {values['bound_us'] or 0:.1f} us"]
    operations = len(result.evidence["torch_ops"])
    if operations:
        parts.append(f"{operations} torch operations")
    for key, words in (("copied_bytes", "bytes copied"), ("spilled_bytes", "bytes spilled")):
        if values.get(key):
            parts.append(f"{values[key]:,.0f} {words}")
    if values.get("advisories"):
        parts.append(f"{values['advisories']:.0f} advisories")
    return ", ".join(parts)


def page(rows: Sequence[tuple[str, str, jobs.Job]], results: dict[jobs.Job, jobs.Result]) -> str:
    found = {(label, job.backward, job.target): results[job] for _, label, job in rows}
    ok = sum(one.status == "ok" for one in results.values())
    operators = len({label for _, label, _ in rows})
    whole = sum(
        all(
            found[label, backward, target].status == "ok"
            for backward in (False, True)
            for target in TARGETS
        )
        for label in {label for _, label, _ in rows}
    )
    unknown = {
        mnemonic
        for one in results.values()
        for launch in one.evidence.get("launches", [])
        for mnemonic in launch["unknown_instructions"]
    }
    text = [
        "# Other people's kernels, inspected unmodified",
        "",
        f"{operators} public operators of two libraries were read, unmodified, without a GPU.",
        f"The libraries are {' and '.join(PACKAGES[:2])}, the targets {' and '.join(TARGETS)}.",
        f"{ok} of {len(results)} calls were read, {whole} operators in full.",
        f"Instructions that no reader knows: {', '.join(sorted(unknown)) or 'none'}.",
        "",
        "`python -m tools.harness.third_party_operators` writes this page. One call by hand:",
        "",
        "```console",
        "$ warpwatch inspect fla.ops.gla:chunk_gla --backward --target sm_90 \\",
        f"    --args '{HEADS} {HEADS} {HEADS} fp32[2,2048,8,64]'",
        "```",
        "",
        "*Bound* sums up, over launches, the time that the busiest unit needs at least.",
        "An autotuned kernel is read in the first configuration that fits. So the numbers",
        "describe the code, and do not rank the libraries. *Backward* includes the forward pass.",
        "",
        "| library | operator | pass | " + " | ".join(TARGETS) + " |",
        "|---|---|---|" + "---|" * len(TARGETS),
    ]
    seen: set[tuple[str, bool]] = set()
    for library, label, job in rows:
        if (label, job.backward) in seen:
            continue
        seen.add((label, job.backward))
        cells = [cell(found[label, job.backward, target]) for target in TARGETS]
        which = "backward" if job.backward else "forward"
        text.append(f"| {library} | {label} | {which} | {' | '.join(cells)} |")
    return "\n".join([*text, ""])


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tools.harness.third_party_operators",
        description="inspect public operators of two Triton libraries, unmodified",
    )
    parser.add_argument("--page", default=str(ROOT / "docs" / "results" / "third-party.md"))
    parser.add_argument("--only", default="", metavar="TEXT", help="operators that hold TEXT")
    args = parser.parse_args()
    started = time.monotonic()
    rows, results = measure(args.only)
    Path(args.page).write_text(page(rows, results), encoding="utf-8")
    print(f"{args.page}: {len(results)} calls in {time.monotonic() - started:.0f} s")
    return 0 if any(one.status == "ok" for one in results.values()) else 3


if __name__ == "__main__":
    sys.exit(main())
