"""Tuning: the package's own choice is found, replaced and judged by the compilers."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from tests.processes import ends
from tests.root import ROOT
from warpwatch.__main__ import main
from warpwatch.commands.gpu import profile, tune
from warpwatch.config import targets
from warpwatch.config.package import workloads as load_workloads
from warpwatch.instruments import presence
from warpwatch.instruments.gpu import accuracy, latency, measuring
from warpwatch.instruments.gpu.latency import Sample
from warpwatch.instruments.outcome import Outcome
from warpwatch.session import series_versions, tuning
from warpwatch.session.session import Session

NAME = "matmul-fp16-1024x1024x1024"
SM_90 = targets.get("sm_90")


@dataclass(frozen=True)
class Config:
    """As a package would define it."""

    block_m: int
    block_n: int
    num_warps: int
    num_stages: int
    group_m: int = 8


def test_the_space_starts_with_the_packages_choice_and_varies_only_what_is_tunable():
    base = Config(64, 128, 4, 3)
    found = tuning.space(base, limit=30, seed=1)
    assert found[0] == base
    assert len(set(found)) == 30
    assert {config.group_m for config in found} == {8}
    assert found == tuning.space(base, limit=30, seed=1) != tuning.space(base, limit=30, seed=2)
    assert len(tuning.space(base, limit=10_000)) == 5 * 5 * 2 * 4


def test_a_field_says_which_values_it_has_and_the_class_what_does_not_go_together():
    @dataclass(frozen=True)
    class Named:
        consumers: int = field(metadata={"values": (2, 3)})
        block_k: int = field(metadata={"values": (128,)})
        pairs: bool = field(default=False, metadata={"values": (False, True)})
        spread: bool = False

        def __post_init__(self) -> None:
            if self.pairs and self.consumers == 3:
                raise ValueError("pairs: of two consumers, got 3")

    found = tuning.space(Named(2, 256), limit=100)
    assert found[0] == Named(2, 256)
    assert len(found) == 2 * 3 and not any(config.spread for config in found)
    changed = [
        sum(getattr(config, name) != getattr(found[0], name) for name in vars(config))
        for config in found
    ]
    assert changed == sorted(changed), "the nearest first"


@pytest.mark.parametrize(
    ("head_dim", "length", "values"),
    [(64, 2048, 1), (128, 512, 3), (128, 4096, 3), (256, 4096, 3)],
    ids=["D64", "D128-short", "D128", "D256"],
)
def test_hoppers_gradients_are_launched_as_they_are_chosen(
    monkeypatch: pytest.MonkeyPatch, head_dim: int, length: int, values: int
):
    import torch

    from kernels import flash_attention_backward
    from kernels.attention.hopper.backward import launch as launches
    from warpwatch.instruments.compiled.record import driver

    class Kernel:
        """Notes in which ring of how many stages it was launched."""

        def __getitem__(self, grid: tuple[int, ...]) -> Any:
            return lambda *_, **given: stages.append(given.get("STAGES"))

    modules = (launches, launches.short, launches.wide)
    for module in modules:
        for name in vars(module).copy():
            if name.startswith("attention_backward_hopper"):
                monkeypatch.setattr(module, name, Kernel())
    q = torch.empty((1, length, 32, head_dim), dtype=torch.bfloat16)
    lse = torch.empty((1, 32, length))

    def launched(choice: Any) -> tuple[list[int | None], list[Any]]:
        stages.clear()
        with tuning.choosing(choice) as seen:
            flash_attention_backward(q, q, q, q, q, lse)
        return list(stages), seen

    stages: list[int | None] = []
    with driver.active(SM_90):
        as_chosen, (own,) = launched(lambda config: config)
        space = tuning.space(own, limit=100)
        assert len(space) == values
        assert own.stages in as_chosen or not own.two_kernels
        for config in space:
            found, _ = launched(lambda _, config=config: config)
            # One pass has two in any case.
            assert config.stages in found or not config.two_kernels
            # prepare, the pass and dq from its sums, or a kernel for each side
            short = config.two_kernels and config.columns == 128
            assert len(found) == (2 if short else 3)


@pytest.mark.parametrize(
    ("name", "target", "has", "sizes"),
    [
        (NAME, "sm_80", "a100 has 166912", {"block_m": 128, "block_k": 128, "num_stages": 6}),
        (NAME, "sm_90", "h200 has 232448", {"stages": 16}),  # Hopper's kernel has its own table
        # Whether Hopper's kernel serves these follows from its choice, which a sweep replaces.
        ("matmul-bf16-4096x4096x14336-nt-residual", "sm_90", "h200 has 232448", {"stages": 8}),
        ("matmul-bf16-16x4096x4096-nt", "sm_90", "h200 has 232448", {"stages": 16}),
    ],
)
def test_our_own_choice_is_found_replaced_and_put_back(
    name: str, target: str, has: str, sizes: dict[str, int]
):
    workload = load_workloads().get(name)
    own = tuning.own_choice(workload, targets.get(target))
    told: list[tuning.Candidate] = []
    large = replace(own, **sizes)
    fits, refused = tuning.judge(workload, targets.get(target), [own, large], told.append)
    assert (fits.config, fits.condemned) == (own, "") and fits.bound_us > 0
    assert refused.config == large
    assert f"bytes of shared memory a block, {has}" in refused.condemned
    assert sorted(one.condemned for one in told) == ["", refused.condemned]
    assert tuning.own_choice(workload, targets.get(target)) == own


def test_a_sweep_without_a_gpu_ranks_what_the_compilers_let_pass(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(presence, "has_gpu", lambda: False)
    assert main(["tune", NAME, "--target", "gfx942", "--limit", "3", "--json", "-"]) == 0
    printed = capsys.readouterr()
    document = json.loads(printed.out)
    assert (document["schema_version"], document["target"]) == (1, "gfx942")
    assert len(document["rows"]) == 3
    assert sum(row["own"] for row in document["rows"]) == 1
    condemned = [bool(row["condemned"]) for row in document["rows"]]
    assert condemned == sorted(condemned)
    assert printed.err.count("MatmulConfig(") == 3
    # JSON knows no NaN: readers stricter than Python's take no file that has one.
    assert {row["us"] for row in document["rows"]} == {None} and "NaN" not in printed.out


def sweep_of(configs: Sequence[Config]) -> tune.Sweep:
    """All compiled, the first the package's choice, their bounds in this order."""
    candidates = [tuning.Candidate(one, {"bound_us": at + 1.0}) for at, one in enumerate(configs)]
    return tune.Sweep(load_workloads().get(NAME), SM_90, configs[0], candidates)


def test_a_timed_configuration_ranks_by_time_before_any_bound():
    slow, fast, wrong = (Config(size, 64, 4, 2) for size in (64, 128, 256))
    found = sweep_of([slow, fast, wrong])
    for config, us in ((slow, 20.0), (fast, 10.0)):
        measured = latency.summarize("cold", [Sample(us)] * 9)
        found.timed[tuning.describe(config)] = Outcome(
            tuning.describe(config),
            "ok",
            samples={"latency_cold": (us,) * 9},
            evidence={"latency_cold": measuring.summary(measured)},
        )
    why = "WrongAnswerError: relative error 0.5"
    found.timed[tuning.describe(wrong)] = Outcome(tuning.describe(wrong), "wrong answer", why)
    rows = found.rows()
    assert [row.us for row in rows[:2]] == [10, 20]
    assert (rows[0].interval_us, rows[0].samples_us) == ((10, 10), (10,) * 9)
    assert rows[2].condemned == f"wrong answer: {why}" and math.isnan(rows[2].us)
    text = tune.lines(rows, SM_90)
    assert text[-1].startswith("best on sm_90 (timed): Config(block_m=128, block_n=64")
    assert "(chosen now)" in text[2]


def test_configurations_are_timed_in_a_process_and_fail_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """Calls: the first is checked, then all are timed in turns, while no other sweep is."""
    configs = [Config(size, 64, 4, 2) for size in (16, 32, 64, 128, 256)]
    behaviour = [{"us": 20}, {"us": 10}, {"hangs": 4}, {"crashes": 1}, {"fails_at": 0}]
    scripts = dict(zip(map(tuning.describe, configs), behaviour, strict=True))
    file = tmp_path / "rows.json"
    timed: list[int] = []
    turns: list[str] = []

    @contextmanager
    def turn(_: object) -> Iterator[None]:
        turns.append("begins")
        yield
        turns.append(f"ends after {timed[-1]} were timed")

    class Scripted(Session):
        def __init__(self, request: dict[str, Any]) -> None:
            assert set(request["choices"]) == set(scripts)
            limits = {"warm_up_seconds": 0.002, "max_samples": 8}
            super().__init__({**request, "scripts": scripts, "limits": limits}, seconds_each=2.0)

    def say(_: str) -> None:
        rows = json.loads(file.read_text())["rows"]
        timed.append(sum(row["us"] is not None for row in rows))

    monkeypatch.setattr(tune, "Session", Scripted)
    monkeypatch.setattr(tune, "_say", say)
    monkeypatch.setattr(tune, "gpu_turn", turn)
    monkeypatch.setattr(tune, "here", lambda: SM_90)
    monkeypatch.setattr(tuning, "own_choice", lambda *_: configs[0])
    monkeypatch.setattr(tuning, "space", lambda *_, **__: configs)
    monkeypatch.setattr(tuning, "judge", lambda *_, **__: sweep_of(configs).candidates)
    assert main(["tune", NAME, "--json", str(file)]) == 0
    document = json.loads(file.read_text())
    assert document["method"] == series_versions.TIMES
    rows = {row["config"]: row for row in document["rows"]}
    ours, fast, hangs, crashes, fails = (rows[name] for name in scripts)
    assert [row["config"] for row in document["rows"][:2]] == [fast["config"], ours["config"]]
    assert ours["us"] == pytest.approx(20, rel=0.02) and fast["us"] == pytest.approx(10, rel=0.02)
    assert ours["interval_us"][0] <= ours["us"] <= ours["interval_us"][1]
    assert len(ours["samples_us"]) == 8
    assert hangs["condemned"] == "hung: no answer within 2 s: ended"
    assert crashes["condemned"].startswith("failed: the measuring process ended: ")
    assert fails["condemned"] == "failed: GpuError: too many resources requested for launch"
    assert timed[-1] == 1, "each is on disk before the next"
    assert turns == ["begins", "ends after 1 were timed"]
    assert "best on sm_90 (timed)" in capsys.readouterr().out


def test_a_choice_is_timed_as_the_workload_it_is_of():
    workload = load_workloads().get(NAME)
    config = Config(64, 64, 4, 2)
    request = json.loads(json.dumps(tuning.timing_request(workload, [config], 3)))
    chosen = tuning.chosen_here(request, tuning.describe(config))
    assert chosen.name == tuning.describe(config) and measuring.missing(chosen) is None
    assert (chosen.flops, chosen.bytes_moved) == (workload.flops, workload.bytes_moved)
    assert accuracy.tolerance(chosen) == accuracy.tolerance(workload)
    assert measuring.dtype_of(chosen) == "fp16"


def test_a_workload_that_chooses_nothing_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tuning, "_modules", lambda: [])
    with pytest.raises(ValueError, match="chooses no configuration on sm_90"):
        tuning.own_choice(load_workloads().get(NAME), SM_90)


def test_every_kept_sweep_is_told_of_and_holds_against_what_was_chosen():
    folder = ROOT / "docs" / "log" / "kernels" / "tuning"
    page = (folder / "README.md").read_text(encoding="utf-8")
    kept = sorted(folder.glob("*.json"))
    assert len(kept) >= 2
    for file in kept:
        assert f"| `{file.name}` |" in page
        text = file.read_text(encoding="utf-8")
        document = json.loads(text)
        assert "NaN" not in text
        assert document["schema_version"] == tune.SCHEMA_VERSION
        assert load_workloads().get(document["workload"]).name == file.stem
        (own,) = (row for row in document["rows"] if row["own"])
        timed = [row for row in document["rows"] if not row["condemned"]]
        assert own in timed and len(timed) > 1
        assert all(len(row["samples_us"]) >= 8 for row in timed)
        numbers = (
            f"| {len(document['rows'])}, {len(timed)} | {own['us']:.1f} | {timed[0]['us']:.1f} |"
        )
        assert numbers in page, file.name


def test_bad_arguments_are_one_line(capsys: pytest.CaptureFixture[str]):
    assert main(["tune", NAME, "--limit", "1"]) == 2
    assert main(["tune", "matmul-fp16-1024"]) == 2
    assert "did you mean matmul-fp16-1024x1024x1024" in capsys.readouterr().err


def test_profilers_are_started_on_one_call(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(profile.ncu, "find", lambda: "/opt/ncu")
    ncu = profile.command("ncu", NAME, Path("out.ncu-rep"))
    assert ncu[0] == "/opt/ncu" and "--profile-from-start=off" in ncu
    assert ncu[ncu.index("-o") + 1] == "out"
    assert ncu[-3:] == [NAME, "ncu", "out.ncu-rep"]
    monkeypatch.setattr(profile.shutil, "which", lambda _: None)
    with pytest.raises(ValueError, match="install Nsight Systems"):
        profile.command("nsys", NAME, Path("out.nsys-rep"))
    assert profile.command("torch", NAME, Path("t.json"))[-2:] == ["torch", "t.json"]


@pytest.mark.parametrize("tool", profile.SUFFIXES)
def test_a_report_is_sought_where_its_profiler_writes_it(tool: str) -> None:
    suffix = profile.SUFFIXES[tool]
    for given in ("out", "out.v2", f"out{suffix}"):
        wanted = Path("there", given.removesuffix(suffix) + suffix)
        assert profile.named(Path("there", given), tool) == wanted


def test_profile_without_a_gpu_profiles_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(presence, "has_gpu", lambda: False)
    assert main(["profile", NAME]) == 3
    assert capsys.readouterr().err == "no GPU: nothing profiled\n"


def test_a_profile_that_hangs_is_ended_with_all_that_it_started(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    # As under a profiler: the workload is the child of what was started, in its session.
    script = f"sleep 60 & echo $! > {tmp_path}/child; wait"
    monkeypatch.setattr(presence, "has_gpu", lambda: True)
    monkeypatch.setattr(profile, "command", lambda *_: ["sh", "-c", script])
    assert main(["profile", NAME, "--with", "torch", "--seconds", "0.5"]) == 3
    said = capsys.readouterr().err
    assert said.startswith(f"torch did not end within 0.5 s: it was ended with {NAME} (")
    assert said.count("\n") == 1
    child = int((tmp_path / "child").read_text())
    assert ends(child), "the workload still runs"


def test_a_profile_of_no_seconds_is_refused(capsys: pytest.CaptureFixture[str]):
    assert main(["profile", NAME, "--seconds", "0"]) == 2
    assert "--seconds: expected more than 0, got 0" in capsys.readouterr().err
