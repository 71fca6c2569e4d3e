"""Merges the shards of one run into one results folder a lane."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from warpwatch.ci.artifact import name_of, parse_name
from warpwatch.ci.shards import merge
from warpwatch.judge.results.asv_results import read_result
from warpwatch.judge.results.strict_json import RejectedError

from .judge import expected_shards


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shards", type=Path, nargs="+", metavar="DIR",
                        help="folders called results-LANE-I-of-N, each with results/, or a folder "
                             "that holds such folders")  # fmt: skip
    parser.add_argument("--out", type=Path, required=True, metavar="DIR",
                        help="gets a results folder for each lane")  # fmt: skip
    parser.add_argument("--expect", default="", metavar="LANES",
                        help="lanes that were to deliver, separated by spaces; shards of others "
                             "are somebody else's to record")  # fmt: skip
    parser.add_argument("--versions", type=Path, default=Path("docker/versions.toml"),
                        metavar="FILE", help="how many shards each lane has")  # fmt: skip
    parser.add_argument("--output", type=Path, metavar="FILE",
                        help="append missing=… to this file (GITHUB_OUTPUT) and exit 0 when "
                             "anything came, for whoever records what came first")  # fmt: skip


def main(args: argparse.Namespace) -> int:
    """Exit 0 when every shard is there, 3 when one is missing; what came is merged all the same."""
    lanes: dict[tuple[str, int], dict[int, Path]] = {
        (lane.lane, lane.shards): {} for lane in expected_shards(args.versions, args.expect.split())
    }
    for folder in _folders(args.shards):
        parsed = parse_name(folder.name)
        if parsed is None:
            raise ValueError(f"{folder}: expected a folder called results-LANE-I-of-N")
        lane, shard, shards = parsed
        if args.expect and lane not in args.expect.split():
            continue
        found = lanes.setdefault((lane, shards), {})
        if not (folder / "shard.json").is_file() or not (folder / "results").is_dir():
            print(f"{folder.name} died before its end", file=sys.stderr)
        else:
            found[shard] = folder / "results"
    if len({lane for lane, _ in lanes}) != len(lanes):
        raise ValueError("shards of two runs: a lane has two numbers of shards")
    missing: list[str] = []
    for (lane, expected), found in sorted(lanes.items()):
        missing += _merge_lane(lane, expected, found, args.out)
    if args.output:
        with args.output.open("a", encoding="utf-8") as file:
            file.write(f"missing={' '.join(missing)}\n")
    if args.output and len(missing) < sum(expected for _, expected in lanes):
        return 0
    return 3 if missing else 0


def _folders(given: Sequence[Path]) -> list[Path]:
    found: list[Path] = []
    for folder in given:
        if parse_name(folder.name) is None and folder.is_dir():
            found += sorted(f for f in folder.iterdir() if parse_name(f.name) is not None)
        elif parse_name(folder.name) is None and not folder.exists():
            print(f"{folder} is not there: no shard delivered anything", file=sys.stderr)
        else:
            found.append(folder)
    return found


def _merge_lane(lane: str, expected: int, found: dict[int, Path], out: Path) -> list[str]:
    """Merge one lane; the names of its shards that are missing, all where they do not agree."""
    everything = [name_of(lane, number, expected) for number in range(1, expected + 1)]
    try:
        for folder in found.values():
            for path in sorted(folder.rglob("*.json")):
                if path.name not in ("machine.json", "benchmarks.json"):
                    read_result(path)  # refuses what merging would stumble over
        merged = merge(found, expected, out / lane)
    except RejectedError as error:
        # Other lanes ran on other machines: their results are none the worse.
        print(f"refused: {lane}: {error}", file=sys.stderr)
        shutil.rmtree(out / lane, ignore_errors=True)
        return everything
    if merged.present:
        (out / lane).mkdir(parents=True, exist_ok=True)  # all of it may have been known before
    for number in merged.missing:
        print(f"missing: {lane} shard {number} of {expected}", file=sys.stderr)
    print(f"{lane}: {len(merged.present)} of {expected} shards, {len(merged.files)} files")
    return [name_of(lane, number, expected) for number in merged.missing]
