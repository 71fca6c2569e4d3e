"""Shards of one run merge to the same bytes whatever their order; what is missing is named."""

from __future__ import annotations

import itertools
import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

from tests.workflows.stand_in import BENCHMARKS, HEAD, MACHINE, SPILLS, honest, manifest, result
from warpwatch.__main__ import main
from warpwatch.ci.shards import merge
from warpwatch.commands.ci import lane
from warpwatch.config import sharding
from warpwatch.judge.results.asv_results import read_result
from warpwatch.judge.results.strict_json import RejectedError

WHOLE = result(HEAD, [1.0, 2.0, 3.0], [1, 2, 3])


def part(shard: int, shards: int, **more: Any) -> dict[str, Any]:
    """What asv writes when it measured every ``shards``-th point alone."""

    def mine(values: list[float | None]) -> list[float | None]:
        return [v if i % shards == shard - 1 else math.nan for i, v in enumerate(values)]

    document = result(HEAD, mine([1.0, 2.0, 3.0]), mine([1, 2, 3]))
    document["date"] += 1000 * shard
    document["durations"] = {"build": 10.0 / shard}
    for row in document["results"].values():
        row[3] += shard
    return document | more


def write(folder: Path, shard: int, shards: int, files: dict[str, str]) -> Path:
    place = folder / f"results-cpu-{shard}-of-{shards}"
    for name, content in files.items():
        target = place / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(content)
    return place


def shard_folders(folder: Path, shards: int) -> list[Path]:
    return [
        write(folder, n, shards, honest(part(n, shards), part(n, shards), n, shards)
              | {"shard.json": json.dumps(manifest(n, shards))})
        for n in range(1, shards + 1)
    ]  # fmt: skip


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_any_order_gives_the_same_bytes(tmp_path: Path) -> None:
    folders = shard_folders(tmp_path, 3)
    outcomes = []
    for number, order in enumerate(itertools.permutations(folders)):
        out = tmp_path / f"out{number}"
        assert main(["ci", "merge", *map(str, order), "--out", str(out)]) == 0
        outcomes.append(contents(out))
    assert len(outcomes) == 6
    assert all(outcome == outcomes[0] for outcome in outcomes)


def test_the_merged_values_are_those_of_one_run(tmp_path: Path) -> None:
    folders = shard_folders(tmp_path, 3)
    main(["ci", "merge", *map(str, folders), "--out", str(tmp_path / "out")])
    (path,) = (tmp_path / "out" / "cpu" / MACHINE).glob(f"{HEAD[:8]}*.json")
    merged = read_result(path)
    assert merged.values.tolist() == [1, 2, 3, 1, 2, 3]
    assert not merged.problems


def test_merging_in_two_steps_gives_the_same_values(tmp_path: Path) -> None:
    one, two, three = (f / "results" for f in shard_folders(tmp_path, 3))
    merge({1: one, 2: two, 3: three}, 3, tmp_path / "at-once")
    merge({1: one, 2: three}, 2, tmp_path / "first")
    merge({1: tmp_path / "first", 2: two}, 2, tmp_path / "then")
    assert contents(tmp_path / "at-once") == contents(tmp_path / "then")


def test_a_missing_shard_is_named_and_not_green(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = shard_folders(tmp_path, 3)
    (folders[1] / "shard.json").unlink()  # it died before its end
    code = main(["ci", "merge", *map(str, folders), "--out", str(tmp_path / "out")])
    assert code == 3
    assert "missing: cpu shard 2 of 3" in capsys.readouterr().err
    (path,) = (tmp_path / "out" / "cpu" / MACHINE).glob(f"{HEAD[:8]}*.json")
    row = json.loads(path.read_text())["results"][SPILLS]
    assert row[0] == [1.0, None, 3.0], "what the dead shard had measured must not count"


def test_what_failed_in_its_shard_stays_failed(tmp_path: Path) -> None:
    """Null says failed; NaN, which the other shards write for it, must not cover that up."""
    broken = part(2, 3)
    broken["results"][SPILLS][0][1] = None
    folders = shard_folders(tmp_path, 3)
    (path,) = (folders[1] / "results" / MACHINE).glob(f"{HEAD[:8]}*.json")
    path.write_text(json.dumps(broken))
    main(["ci", "merge", *map(str, folders), "--out", str(tmp_path / "out")])
    (path,) = (tmp_path / "out" / "cpu" / MACHINE).glob(f"{HEAD[:8]}*.json")
    assert json.loads(path.read_text())["results"][SPILLS][0] == [1.0, None, 3.0]


def test_what_does_not_apply_stays_so(tmp_path: Path) -> None:
    folders = shard_folders(tmp_path, 2)
    for folder in folders:
        (path,) = (folder / "results" / MACHINE).glob(f"{HEAD[:8]}*.json")
        document = json.loads(path.read_text())
        document["results"][SPILLS][0][2] = math.nan
        path.write_text(json.dumps(document))
    main(["ci", "merge", *map(str, folders), "--out", str(tmp_path / "out")])
    (path,) = (tmp_path / "out" / "cpu" / MACHINE).glob(f"{HEAD[:8]}*.json")
    assert str(json.loads(path.read_text())["results"][SPILLS][0]) == "[1.0, 2.0, nan]"


def test_two_shards_that_disagree_are_refused(tmp_path: Path) -> None:
    files = honest(WHOLE, WHOLE)
    other = honest(result(HEAD, [1.0, 2.0, 4.0], [1, 2, 3]), WHOLE)
    one = write(tmp_path, 1, 2, files) / "results"
    two = write(tmp_path, 2, 2, other) / "results"
    with pytest.raises(RejectedError, match="two shards measured point 2 differently"):
        merge({1: one, 2: two}, 2, tmp_path / "out")


def test_runners_that_share_a_key_but_not_a_harness_are_refused(tmp_path: Path) -> None:
    one = write(tmp_path, 1, 2, honest(part(1, 2), part(1, 2))) / "results"
    changed = json.loads(json.dumps(BENCHMARKS))
    changed[SPILLS]["version"] = "2"
    files = honest(part(2, 2), part(2, 2)) | {"results/benchmarks.json": json.dumps(changed)}
    two = write(tmp_path, 2, 2, files) / "results"
    with pytest.raises(RejectedError, match="differs between shards"):
        merge({1: one, 2: two}, 2, tmp_path / "out")


NAMES = ["attention-b4 h8", "matmul-1024", "matmul-1024-nt", "matmul-4096", "peer.x(1)"]
CALLS = [
    *(f"compiled.Matmul.track_spills('{name}', 'sm_90')" for name in NAMES),
    *(f"latency.Matmul.track_us('{name} @ sm_90')" for name in NAMES),
    "host.track_import",
    "host.track_calls('nothing known')",
]


@pytest.mark.parametrize("shards", [2, 3, 7])
def test_every_benchmark_belongs_to_exactly_one_shard(shards: int) -> None:
    owners = {
        call: [
            shard
            for shard in range(1, shards + 1)
            if any(re.search(pattern, call) for pattern in sharding.patterns(NAMES, shard, shards))
        ]
        for call in CALLS
    }
    assert all(len(found) == 1 for found in owners.values()), owners
    assert len({found[0] for found in owners.values()}) == min(shards, len(NAMES))


@pytest.mark.parametrize("shards", [1, 2, 3, 7])
def test_a_shard_measures_what_it_hands_over_and_nothing_else(
    shards: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A peer goes with its workload; what nobody knows is measured once, by the first."""
    asked = [*NAMES, "matmul-1024 @ cublas", "unknown @ cublas"]
    found = []
    for shard in range(1, shards + 1):
        monkeypatch.setenv(sharding.VARIABLE, f"{shard}/{shards}")
        mine = sharding.measured_here(asked, NAMES)
        found += mine
        calls = [f"latency.Matmul.track_us('{name}')" for name in mine]
        patterns = sharding.patterns(NAMES, shard, shards) or [""]
        assert all(any(re.search(p, call) for p in patterns) for call in calls)
        assert ("matmul-1024 @ cublas" in mine) == ("matmul-1024" in mine)
    assert sorted(found) == sorted(asked), "each once"


@pytest.mark.parametrize("shards", [1, 2, 3, 7])
def test_base_and_head_take_turns_and_what_is_exact_is_measured_once(shards: int) -> None:
    """Base, head, head, base: a card that drifts drifts for both."""
    calls = [*CALLS, *(f"compiled.Matmul.track_launches('{name}', 'sm_90')" for name in NAMES)]
    for shard in range(1, shards + 1):
        chosen = sharding.patterns(NAMES, shard, shards)
        turns = lane.in_turns(["base", "head"], chosen)
        assert [turn.commits for turn in turns] == [["base"], ["head"], ["head"], ["base"]]
        appended = ["--append-samples" in turn.options for turn in turns]
        assert appended == [False, False, True, True], "the first turn of each begins anew"
        first, again = (
            {call for call in calls if any(re.search(p, call) for p in turn.patterns or [""])}
            for turn in (turns[0], turns[-1])
        )
        assert again == {call for call in first if not call.startswith("compiled.")}


@pytest.mark.parametrize("text", ["0/1", "2/1", "1", "1/65", "a/b", "1/2/3"])
def test_a_wrong_shard_is_one_clear_message(text: str) -> None:
    with pytest.raises(ValueError, match="expected I/N"):
        sharding.parse(text)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--base", "HEAD"], "expected --base and --head, or --commits"),
        (["--commits", "0"], "--commits: expected 1 or more"),
        (["--commits", "2", "--head", "HEAD"], "without --base and --head"),
        (["--base", "HEAD", "--head", "--upload-pack=x"], "expected one argument"),
        (["--base", "HEAD", "--head", "$(reboot)"], "expected a commit, got"),
        (["--base", "nope", "--head", "HEAD"], "nope: no such commit in "),
        (["--base", "HEAD", "--head", "HEAD", "--shard", "1/2", "--bench", "x"], "one shard only"),
    ],
)
def test_a_lane_that_cannot_be_is_one_clear_message(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = main(["ci", "lane", "--lane", "cpu", *arguments])
    except SystemExit as stopped:  # argparse's own refusal
        code = stopped.code if isinstance(stopped.code, int) else 1
    assert code == 2
    assert words in capsys.readouterr().err
