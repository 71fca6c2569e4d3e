"""A card without a datasheet: what is measured takes its place, for shares, never for a floor."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from warpwatch.commands.gpu import peers as command
from warpwatch.config import isolation
from warpwatch.config.package import workloads
from warpwatch.devices import Ceiling, Ceilings
from warpwatch.instruments.gpu import ceilings, evidence, measuring
from warpwatch.instruments.gpu.card.interface import Call, DeviceLostError, GpuError
from warpwatch.instruments.gpu.card.software import FakeGpu, Script
from warpwatch.instruments.gpu.latency import Limits, measure
from warpwatch.instruments.outcome import Outcome
from warpwatch.session import session as sessions
from warpwatch.session.session import Session

UNKNOWN = "NVIDIA H200 NVL"
QUICK = Limits(warm_up_seconds=0.002, max_samples=16)
NAME = "matmul-fp16-1024x1024x1024"
FOUND = Ceilings(UNKNOWN, {"fp16": Ceiling(600.0, 1.5), "fp32": Ceiling(50.0)}, 4000.0)


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(ceilings, "_measured", {})
    monkeypatch.setattr(sessions, "_SAID", set())
    yield


def product(gpu: FakeGpu, us_of: dict[int, float]) -> ceilings.Product:
    """Takes so long by size; a size that is not listed fails."""

    def make(n: int) -> Call:
        if n not in us_of:
            raise GpuError("no such product")
        return gpu.add(Script(us=us_of[n], noise=0, mhz=1500))

    return make


def stream(gpu: FakeGpu, us: float) -> ceilings.Stream:
    return lambda size: (gpu.add(Script(us=1.0, cold_us=us, noise=0)), size)


def test_the_fastest_product_and_stream_are_the_ceilings():
    gpu = FakeGpu(name=UNKNOWN)
    products = {
        "fp16": product(gpu, {2048: 40, 4096: 200, 8192: 2000}),
        "bf16": product(gpu, {2048: 40}),  # the next fails: what there is counts
        "fp8": product(gpu, {}),
    }
    streams = [stream(gpu, 400), stream(gpu, 300), lambda _: (_ for _ in ()).throw(MemoryError())]
    found = ceilings.measured_on(gpu, products, streams)
    assert found is not None and found.card == UNKNOWN
    assert set(found.peaks) == {"fp16", "bf16"}
    assert found.peak("torch.float16") == pytest.approx(2 * 4096**3 / 200e6)
    assert found.peak("bf16") == pytest.approx(2 * 2048**3 / 40e6)
    assert found.bandwidth_gbps == pytest.approx((1 << 30) / 300e3)
    # At another clock than the one it was measured at.
    assert found.peak("bf16", clock_ghz=0.75) == pytest.approx(found.peak("bf16") / 2)
    with pytest.raises(ValueError, match=f"no ceiling of fp8 on '{UNKNOWN}': measured were fp16"):
        found.peak("fp8")


def test_a_slow_card_is_spared_the_large_products():
    gpu = FakeGpu(name=UNKNOWN)
    slow = {"fp32": product(gpu, {2048: 9000, 4096: 70_000, 8192: 560_000})}
    found = ceilings.measured_on(gpu, slow, [])
    assert found is not None and found.bandwidth_gbps is None
    assert found.peak("fp32") == pytest.approx(2 * 4096**3 / 70_000e6)
    assert gpu.runs == 2 * (1 + ceilings.SAMPLES)


def test_they_are_measured_once_in_a_process_and_not_where_there_is_a_datasheet():
    gpu = FakeGpu(name=UNKNOWN)
    given = {"fp16": product(gpu, {2048: 40})}
    first = ceilings.measured_on(gpu, given, [])
    runs = gpu.runs
    assert ceilings.measured_on(gpu, given, []) is first and gpu.runs == runs
    assert ceilings.roof(UNKNOWN) is first
    assert ceilings.measured_on(FakeGpu(name="NVIDIA H200"), given, []) is None
    assert ceilings.measured_on(gpu, given, [], Ceilings("another card")) is first
    assert ceilings.measured_on(gpu, given, [], FOUND) is FOUND and gpu.runs == runs
    assert ceilings.roof(UNKNOWN) is FOUND


def test_a_product_that_raises_leaves_tf32_as_it_was(monkeypatch: pytest.MonkeyPatch):
    new = torch.empty(2, 2)
    monkeypatch.setattr(torch, "Generator", lambda _: SimpleNamespace(manual_seed=lambda _: None))
    monkeypatch.setattr(torch, "randn", lambda *_, **__: new)
    monkeypatch.setattr(torch, "empty", lambda *_, **__: new.int())  # no place for the result
    allowed = torch.backends.cuda.matmul.allow_tf32
    with pytest.raises(RuntimeError, match="dtype"):
        ceilings.torch_products()["tf32"](2)()
    assert torch.backends.cuda.matmul.allow_tf32 == allowed


def test_a_lost_device_is_no_missing_product():
    gpu = FakeGpu(name=UNKNOWN)
    call = gpu.add(Script(lost_at=0))
    with pytest.raises(DeviceLostError, match="fallen off the bus"):
        ceilings.measured_on(gpu, {"fp16": lambda _: call}, [])


def test_shares_are_of_the_ceilings_and_no_time_is_refused_for_them(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setitem(ceilings._measured, UNKNOWN, FOUND)
    workload = workloads().get(NAME)
    for us, share in ((10.0, 28.633), (1.0, 286.33)):  # the second is faster than any ceiling
        gpu = FakeGpu(Script(us=us, noise=0, mhz=1875), name=UNKNOWN)
        taken = {"cold": measure(gpu, lambda: None, "cold", QUICK)}
        outcome = measuring.checked(gpu, workload, lambda: None, taken, 1e-3, lambda: 1e-3)
        assert outcome.status == "ok"
        assert outcome.samples["peak_share"][0] == pytest.approx(share, rel=1e-3)
        assert outcome.detail == (
            f"no datasheet of '{UNKNOWN}': share of a measured ceiling of 600 TFLOP/s, no floor"
        )
    monkeypatch.setitem(ceilings._measured, UNKNOWN, Ceilings(UNKNOWN))
    outcome = measuring.checked(gpu, workload, lambda: None, taken, 1e-3, lambda: 1e-3)
    assert "peak_share" not in outcome.samples
    assert outcome.detail == f"no datasheet of '{UNKNOWN}': no share of a peak, no floor"


def test_a_card_without_a_path_for_the_dtype_is_timed_without_a_share():
    workload = workloads().get("matmul-fp8-4096x4096x4096-nt-tensor")
    # fp8 is decoded there: no time is below what products of 16 bits allow.
    for us, status in ((600.0, "ok"), (200.0, "below the roofline floor of")):
        gpu = FakeGpu(Script(us=us, noise=0), name="NVIDIA A100-SXM4-80GB")
        taken = {"cold": measure(gpu, lambda: None, "cold", QUICK)}
        given = (gpu, workload, lambda: None, taken, 1e-3, lambda: 1e-3)
        if status != "ok":
            with pytest.raises(ValueError, match=status):
                measuring.checked(*given)
            continue
        outcome = measuring.checked(*given)
        assert outcome.status == "ok" and "peak_share" not in outcome.samples


def test_a_session_has_them_of_its_worker_and_says_what_they_are_once(
    capsys: pytest.CaptureFixture[str],
):
    session = Session({"mode": "latency", "scripts": {"w": {}}, "ceilings": 1000.0})
    assert session.run(["w"])["w"].status == "ok"
    found = session.ceilings
    assert found is not None and set(found.peaks) == {"fp16"}
    assert found.peak("fp16") == pytest.approx(2 * 8192**3 / 1e9, rel=0.02)
    assert capsys.readouterr().err == (
        f"no datasheet of 'Fake GPU': shares are of ceilings measured on it (TFLOP/s of large "
        f"products: fp16 {found.peak('fp16'):.0f}; {found.bandwidth_gbps:.0f} GB/s of a stream), "
        "times have no floor\n"
    )
    # Another session measures its own, a little different; a worker after the first does not.
    session.ceilings = Ceilings("Fake GPU", found.peaks, 1.0)
    assert session.run(["w"])["w"].status == "ok"
    assert session.ceilings == Ceilings("Fake GPU", found.peaks, 1.0)
    assert capsys.readouterr().err == ""


def test_they_are_kept_beside_the_results(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    measured = isolation.Measured("test", "c" * 40, "t" * 40, "")
    monkeypatch.setattr(isolation, "measured", lambda: measured)
    monkeypatch.setenv(isolation.RESULTS_VARIABLE, str(tmp_path))
    file = evidence.write({}, {}, {"name": UNKNOWN}, {}, ceilings=FOUND)
    assert file is not None
    kept = json.loads(gzip.decompress(file.read_bytes()))["ceilings"]
    assert kept["source"] == "measured"
    assert Ceilings.from_json(kept) == FOUND


@pytest.mark.parametrize(
    "wrong",
    [
        {"source": "datasheet"},
        {"card": 3},
        {"peaks": {"fp16": {"tflops": -1.0, "clock_ghz": None}}},
        {"peaks": {"fp16": {"tflops": 600.0}}},
        {"peaks": []},
        {"bandwidth_gbps": float("nan")},
    ],
)
def test_what_is_not_ceilings_is_refused(wrong: dict[str, object]):
    with pytest.raises(ValueError, match="expected ceilings as they were measured"):
        Ceilings.from_json({**FOUND.to_json(), **wrong})


def test_peers_takes_shares_of_them_and_its_file_says_so():
    base = workloads().get(NAME)
    ours = Outcome(NAME, "ok", samples={"latency_cold": (10.0, 10.0), "peak_share": (30.0,)})
    rows = command.table([base], {NAME: ours}, {}, FOUND)
    assert rows[0].peak_percent == pytest.approx(100 * 2 * 1024**3 / 10e6 / 600)
    assert command.document(rows, {}, FOUND)["ceilings"]["source"] == "measured"
    assert "ceilings" not in command.document(rows, {})
    (without,) = command.table([base], {NAME: ours}, {}, Ceilings(UNKNOWN))
    assert without.peak_percent is None
