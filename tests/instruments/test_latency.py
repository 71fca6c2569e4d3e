"""The rules of timing, on a GPU made of software: what is sampled, set apart, noted, refused."""

from __future__ import annotations

import statistics

import pytest

from warpwatch.instruments.gpu import latency
from warpwatch.instruments.gpu.card.interface import (
    Clocks,
    DeviceLostError,
    GpuError,
    OutOfMemoryError,
)
from warpwatch.instruments.gpu.card.software import FakeGpu, Script
from warpwatch.instruments.gpu.latency import Limits, Sample

QUICK = Limits(warm_up_seconds=0.005)


def run(script: Script, method: latency.Method = "cold", limits: Limits = QUICK) -> latency.Latency:
    gpu = FakeGpu(script)
    return latency.measure(gpu, gpu.add(script), method, limits)


def test_the_median_is_the_scripted_time_without_what_events_cost():
    measured = run(Script(us=20.0, noise=0.001))
    assert measured.us == pytest.approx(20.0, rel=0.002)
    assert measured.notes == ()
    assert not measured.unstable


def test_cold_and_warm_are_two_methods():
    script = Script(us=100.0, cold_us=130.0)
    assert run(script, "warm").us == pytest.approx(100, rel=0.005)
    assert run(script, "cold").us == pytest.approx(130, rel=0.005)


def test_a_short_call_is_repeated_within_a_warm_sample_and_never_within_a_cold_one():
    script = Script(us=5.0)
    gpu = FakeGpu(script)
    assert 55 <= latency.Sampler(gpu, gpu.add(script), "warm", QUICK).calls <= 60
    assert latency.Sampler(gpu, gpu.add(script), "cold", QUICK).calls == 1


def test_sampling_goes_on_until_the_median_is_known():
    quiet, noisy = run(Script(noise=0.001)), run(Script(noise=0.01))
    assert len(quiet.samples) == QUICK.min_samples
    assert len(noisy.samples) > len(quiet.samples)
    low, high = noisy.interval_us
    assert low < noisy.us < high


def test_running_out_of_time_is_said():
    measured = run(Script(us=200_000, noise=0.2), limits=Limits(seconds=2, warm_up_seconds=0))
    assert measured.timed_out
    assert measured.unstable
    assert "time ran out after" in measured.notes[0]


@pytest.mark.parametrize("tells_reason", [True, False], ids=["driver-says", "clock-shows"])
def test_throttled_samples_are_set_apart_not_averaged(tells_reason: bool):
    script = Script(
        noise=0.001, throttled_runs=range(10, 17), tells_reason=tells_reason, throttled_mhz=1200
    )
    measured = run(script)
    assert len(measured.set_apart) == 7
    assert len(measured.samples) == QUICK.min_samples
    assert measured.us == pytest.approx(100, rel=0.003)
    assert min(sample.us for sample in measured.set_apart) > 150
    assert measured.mhz == 1980


def test_a_card_throttled_throughout_gives_a_number_with_its_reason():
    measured = run(Script(throttled_runs=range(1000)))
    assert measured.throttled == "power cap"
    assert measured.remarks == ("throttled: power cap",)
    assert not measured.unstable, "a card at its power limit runs heavy kernels so"
    assert measured.mhz == 1400
    assert measured.set_apart == ()


def test_two_modes_are_noted():
    measured = run(Script(noise=0.0005, modes=((1.0, 0.5), (1.15, 0.5))))
    assert any(note.startswith("two modes") for note in measured.notes)


def test_drift_is_noted():
    measured = run(Script(noise=0.0005, drift_per_run=0.002))
    assert "the samples drift" in measured.notes


def test_a_call_that_waits_for_the_gpu_is_noted():
    assert "launch gaps are in the time: the call waits for the GPU" in (
        run(Script(waits_for_gpu=True)).notes
    )


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        (Script(fails_at=4), GpuError),
        (Script(lost_at=9), DeviceLostError),
        (Script(out_of_memory_at=0), OutOfMemoryError),
    ],
    ids=["launch-fails", "device-lost", "out-of-memory"],
)
def test_failures_reach_the_caller_as_what_they_are(script: Script, expected: type[Exception]):
    with pytest.raises(expected):
        run(script)


def test_a_call_that_launches_nothing_is_refused():
    with pytest.raises(ValueError, match="launched nothing on this stream"):
        run(Script(us=1e-9, noise=0))


def test_a_time_below_the_roofline_is_an_error():
    latency.check_floor(99.0, 100.0, "matmul")
    with pytest.raises(ValueError, match=r"50\.00 us is below the roofline floor of 100\.00 us"):
        latency.check_floor(50.0, 100.0, "matmul")


def test_interleaving_takes_every_call_equally_often_before_and_after_each_other():
    gpu = FakeGpu()
    calls = {name: gpu.add(Script(us=us)) for name, us in (("a", 50), ("b", 60), ("c", 70))}
    measured = latency.interleave(gpu, calls, "cold", QUICK, seed=1)
    assert {name: round(one.us) for name, one in measured.items()} == {"a": 50, "b": 60, "c": 70}
    sampled = gpu.order[-6 * 8 :]
    for call in calls.values():
        assert sampled.count(call) == 16
    for at in range(0, len(sampled), 6):
        assert sampled[at : at + 3] == sampled[at + 3 : at + 6][::-1]
    assert len({tuple(sampled[at : at + 3]) for at in range(0, len(sampled), 6)}) > 2


def test_identical_calls_interleaved_under_drift_come_out_equal():
    gpu = FakeGpu()
    calls = {name: gpu.add(Script(noise=0.002, drift_per_run=1e-4)) for name in "ab"}
    measured = latency.interleave(gpu, calls, "cold", QUICK)
    assert measured["a"].us == pytest.approx(measured["b"].us, rel=0.002)


def test_false_alarms_of_the_notes_on_clean_noise_are_rare():
    unstable = 0
    for seed in range(100):
        gpu = FakeGpu(seed=seed)
        unstable += latency.measure(gpu, gpu.add(Script(noise=0.01)), "cold", QUICK).unstable
    assert unstable <= 3


def test_the_median_interval_holds_the_truth_about_as_often_as_it_says():
    hits = 0
    for seed in range(200):
        gpu = FakeGpu(seed=seed)
        limits = Limits(min_samples=25, max_samples=25, warm_up_seconds=0)
        low, high = latency.measure(gpu, gpu.add(Script(noise=0.01)), "cold", limits).interval_us
        hits += low <= 100 <= high
    assert 180 <= hits <= 200


def test_the_clock_of_a_sample_is_the_one_counted_on_the_sm():
    clocks = Clocks(sm_mhz=1980)
    assert Sample(1.0, spin_mhz=1700, clocks=clocks).mhz == 1700
    assert Sample(1.0, clocks=clocks).mhz == 1980
    assert Sample(1.0).mhz is None


def test_spread_is_the_standard_deviation_of_normal_noise():
    values = [
        100 * (1 + 0.02 * statistics.NormalDist().inv_cdf((i + 0.5) / 400)) for i in range(400)
    ]
    assert latency.relative_spread(values) == pytest.approx(0.02, rel=0.02)
