"""The recording of kernels as other libraries write them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.compiled import foreign_kernels
from warpwatch import __main__ as cli
from warpwatch.commands.compiled import ranking
from warpwatch.config import choices, targets
from warpwatch.instruments.compiled.machine_code import amdgcn
from warpwatch.instruments.compiled.measure import jobs, origins, reading
from warpwatch.instruments.compiled.measure.summary import summarize, torch_us
from warpwatch.instruments.compiled.measure.workload import Measurement, measure_call
from warpwatch.instruments.compiled.record.call import record
from warpwatch.instruments.compiled.record.torch import traffic

HERE = "tests.compiled.foreign_kernels"
HOPPER = targets.get("sm_90")


def measured(name: str, arguments: str, target: str = "sm_90") -> Measurement:
    found = measure_call(f"{HERE}:{name}", targets.get(target), arguments=arguments)
    assert (found.status, found.detail) == ("ok", "")
    return found


@pytest.mark.parametrize("target", ["sm_90", "gfx942"])
def test_atomic_updates_are_counted(target: str) -> None:
    found = measured("by_atomics", "fp32[65536]", target)
    # One for each element, and a scalar one for each of 256 programs.
    assert found.values["atomics"] == 65536 + 256
    (launch,) = found.evidence["launches"]
    assert launch["atomics"] == 65536 + 256


def test_a_kernel_without_atomics_has_none() -> None:
    assert measured("copied", "fp32[4096]").values["atomics"] == 0


def test_the_first_gradient_is_one() -> None:
    """The branch that training takes is the one recorded."""
    recording = record(foreign_kernels.trained, HOPPER)
    assert [one.kernel.name for one in recording.launches] == []
    assert recording.notes == ()


@pytest.mark.parametrize("make", [torch.ones_like, torch.zeros_like])
def test_what_is_made_like_an_unknown_tensor_is_known(make: Any) -> None:
    read: list[float] = []

    def call() -> None:
        unknown = torch.empty(4, device="cuda")
        read.append(make(unknown).sum().item())
        read.append(unknown.new_full((2,), 3.0).sum().item())

    recording = record(call, HOPPER)
    assert read == [4.0 if make is torch.ones_like else 0.0, 6.0]
    assert recording.notes == ()


def test_spills_take_time_in_the_first_cache() -> None:
    recording = record(lambda: foreign_kernels.spilled(torch.empty(65536, device="cuda")), HOPPER)
    (found,) = reading.read(recording.launches)
    assert found.code.spilled_bytes > 0
    assert 0 < found.bound.units_us["spills"] < 1e3
    recording = record(lambda: foreign_kernels.copied(torch.empty(64, device="cuda")), HOPPER)
    (found,) = reading.read(recording.launches)
    assert "spills" not in found.bound.units_us
    without = measured("copied", "fp32[64]").values
    assert without["bound_added_us"] == 0 and without["spilled_bytes"] == 0


def test_the_products_of_torch_take_time() -> None:
    def call() -> None:
        one = torch.empty(4096, 4096, dtype=torch.bfloat16, device="cuda")
        torch.mm(one, one)

    recording = record(call, HOPPER)
    (op,) = recording.torch_ops
    assert (op.flops, op.dtype) == (2 * 4096**3, "bf16")
    from warpwatch import devices

    # 989 TFLOP/s dense in bf16; its traffic takes a tenth of that.
    assert torch_us(recording.torch_ops, devices.load("h200")) == pytest.approx(139, rel=0.02)
    values = summarize(recording, ())
    # The operand, which is one tensor, and the result take 14 us by their traffic.
    assert values["bound_us"] - values["bound_added_us"] == pytest.approx(14, rel=0.02)
    assert traffic.products(torch.ops.aten.add.Tensor, (), {}, None) == 0


def test_the_whole_space_of_a_tuner_is_recorded() -> None:
    found = measured("copied", "fp32[4096]")
    (space,) = found.evidence["tuned"]
    assert space["kernel"] == "tuned_copy" and space["why"] == "the first that fits"
    assert [one.split("num_warps: ")[1][0] for one in space["configurations"]] == list("124")
    assert space["recorded"] == space["configurations"][0]
    assert found.values["configurations"] == 3
    names = ("search_space", "recorded_configuration")
    assert all(0 < found.values[name] < 2**32 for name in names)
    other = measured("copied", "fp32[8192]")  # another key of the tuner, the same space
    assert [other.values[name] for name in names] == [found.values[name] for name in names]
    untuned = measured("by_atomics", "fp32[4096]")
    assert [untuned.values[name] for name in names] == [0, 0]


def test_a_choice_made_on_a_card_is_recorded_in_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choices.project, "folder", lambda: tmp_path)
    first = measured("copied", "fp32[4096]")
    (space,) = first.evidence["tuned"]
    key = "(4096, 'torch.float32', 'torch.float32')"
    chosen = choices.Choice("sm_90", "tuned_copy", key, space["configurations"][2])
    assert choices.write(choices.place(), [chosen]) == 1
    assert choices.write(choices.place(), [chosen]) == 0
    found = measured("copied", "fp32[4096]")
    assert found.values["search_space"] == first.values["search_space"]
    assert found.values["recorded_configuration"] != first.values["recorded_configuration"]
    (launch,) = found.evidence["launches"]
    assert launch["num_warps"] == 4
    (space,) = found.evidence["tuned"]
    assert space["why"] == "the one chosen on a card"
    gone = choices.Choice("sm_90", "tuned_copy", key, "BLOCK: 8")
    choices.write(choices.place(), [gone])
    choices._table.cache_clear()
    (space,) = measured("copied", "fp32[4096]").evidence["tuned"]
    assert space["why"].startswith("the first that fits (the one chosen on a card is not")


def test_what_tuners_chose_is_found_in_this_process() -> None:
    tuner: Any = foreign_kernels.tuned_copy
    tuner.cache[4096, "torch.float32"] = tuner.configs[1]
    try:
        found = [one for one in choices.made_here("sm_90") if one.kernel == "tuned_copy"]
    finally:
        tuner.cache.clear()
    key, configuration = "(4096, 'torch.float32')", str(tuner.configs[1])
    assert found == [choices.Choice("sm_90", "tuned_copy", key, configuration)]


def test_a_broken_lock_file_names_its_remedy(tmp_path: Path) -> None:
    path = tmp_path / choices.FILE_NAME
    path.write_text(json.dumps({"schema": 2, "choices": []}))
    with pytest.raises(ValueError, match=r"is no lock file .*expected schema 1, got 2.*--lock"):
        choices.read(path)


def test_the_files_of_a_call_are_its_kernels_and_what_they_import() -> None:
    recording = record(lambda: foreign_kernels.copied(torch.empty(64, device="cuda")), HOPPER)
    own, imported = origins.of(recording.launches, None, "tests.compiled", "tests/compiled")
    assert (own, imported) == (["tests/compiled/foreign_kernels.py"], [])
    (launch,) = recording.launches
    assert launch.file == foreign_kernels.__file__
    package = "warpwatch.instruments.compiled"
    own, imported = origins.of((), origins.of, package, "src/compiled")
    assert own == ["src/compiled/measure/origins.py"]
    assert imported == ["src/compiled/formats/recording.py"]
    assert origins.of((), None, "not.imported", "x") == ([], [])


@pytest.mark.parametrize("mnemonic", ["v_madmk_f32", "v_madak_f32"])
def test_a_multiply_add_with_a_constant_is_one(mnemonic: str) -> None:
    assert amdgcn.classify(mnemonic) == "fma"


def test_all_configurations_are_ranked_by_their_predicted_time(
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = ["inspect", f"{HERE}:copied", "--args", "fp32[1048576]", "--target", "sm_90"]
    assert cli.main([*command, "--configurations"]) == 0
    heading, *ranked = capsys.readouterr().out.splitlines()
    assert heading == f"{HERE}:copied sm_90 tuned_copy: 3 configurations, by their predicted time"
    *ranked, sure = ranked
    assert len(ranked) == 3 and "us  memory" in ranked[0]
    assert sure.startswith("  the first two cannot be distinguished: the second takes -")
    times = [float(line.split()[0]) for line in ranked]
    assert times == sorted(times)
    assert sorted(line.split("num_warps: ")[1][0] for line in ranked) == list("124")
    assert cli.main([*command, "--configurations", "--json", "-"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["command"] == "inspect --configurations"
    first, *others = document["results"]
    assert "configuration" not in first and [one["configuration"] for one in others] == [0, 1, 2]
    assert [one["evidence"]["launches"][0]["num_warps"] for one in others] == [1, 2, 4]


def test_a_configuration_that_does_not_fit_is_ranked_last() -> None:
    space = {"kernel": "k", "configurations": ["a", "b"], "recorded": "a", "why": ""}
    launch = {
        "kernel": "k",
        "bound": {"us": 3.0, "limited_by": "tensor"},
        "spilled_bytes": 0,
        "occupancy": {"blocks": 2},
    }
    job = jobs.Job("m:f", "sm_80")
    first = jobs.Result(job, "ok", evidence={"tuned": [space], "launches": [launch]})
    assert [one.configuration for one in ranking.others([first])] == [0, 1]
    again = replace(first, job=replace(job, configuration=0))
    failed = jobs.Result(replace(job, configuration=1), "compile failed")
    assert ranking.lines([first, again, failed]) == [
        "m:f sm_80 k: 2 configurations, by their bound",
        "        3.0 us  tensor  0 bytes spilled, 2 blocks  a",
        "          -      does not compile or fit  b",
    ]
    predicted = [{"us": 4.5, "limited_by": "latency"}]
    on_hopper = [
        replace(
            one,
            job=replace(one.job, target="sm_90"),
            evidence=one.evidence | {"predicted": predicted},
        )
        for one in (first, again)
    ]
    assert ranking.lines(on_hopper)[:2] == [
        "m:f sm_90 k: 2 configurations, by their predicted time",
        "        4.5 us  latency 0 bytes spilled, 2 blocks  a",
    ]
    assert ranking.lines(on_hopper)[2:] == ["          -      does not compile or fit  b"]
    slow = {"predicted": [{"us": 9.0, "limited_by": "latency"}]}
    slow |= {"tuned": [space | {"recorded": "b"}]}
    second = replace(
        on_hopper[1],
        job=replace(on_hopper[1].job, configuration=1),
        evidence=on_hopper[1].evidence | slow,
    )
    sure = ranking.lines([*on_hopper, second])[-1]
    assert sure.startswith("  the first is faster: the second takes ") and "90 %" in sure
    plain = jobs.Result(job, "ok", evidence={"launches": [launch]})
    assert "no kernel of these calls is autotuned" in ranking.lines([plain])[0]
