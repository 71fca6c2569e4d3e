"""CUPTI's range profiler against a library that plays it: what is asked, in which order, what a
refusal says, and what is given back."""

from __future__ import annotations

import pytest

from tests.instruments.played_cupti import (
    BYTES,
    CLOSING,
    CONTEXT,
    HOST,
    LAYOUTS,
    OPENING,
    PIPE,
    PROFILER,
    Card,
    Library,
)
from warpwatch.instruments.counters import cupti, ncu, range_profiler
from warpwatch.instruments.counters.ncu import REMEDY, CountersRefusedError
from warpwatch.instruments.counters.range_profiler import METRICS, RangeProfiler, read
from warpwatch.instruments.method import method_hash


@pytest.fixture
def card() -> Card:
    return Card()


@pytest.fixture
def library(card: Card) -> Library:
    return Library(card)


def opened(library: Library) -> RangeProfiler:
    return RangeProfiler(cupti.Cupti(library, "given"), library.card)


def test_structs_lie_as_in_the_headers():
    begin = {"structSize": 0, "pPriv": 8}
    found = {}
    for function, kind in cupti.FUNCTIONS.items():
        names = [field[0] for field in kind._fields_ if field[0] not in begin]
        assert {name: getattr(kind, name).offset for name in begin} == begin
        offsets = {name: getattr(kind, name).offset for name in names}
        found[function] = (cupti.struct_size(kind), offsets)
    assert found == LAYOUTS


def test_a_call_is_counted_alone_and_its_first_repeat_is_dropped(card: Card, library: Library):
    cycles = iter([4288, 2987, 2983])
    counted = opened(library).count(
        lambda: card.launch(next(cycles)), 2, before=lambda: card.launch(99_999)
    )
    rest = {"instructions": 64, "dram_bytes": 4096, "tensor_pipe": 50}
    assert counted == [{"sm_cycles": one, "kernel_cycles": 2 * one, **rest} for one in (2987, 2983)]


def test_kernels_of_one_call_are_counted_together(card: Card, library: Library):
    def call() -> None:
        card.launch(cycles=1000)
        card.launch(cycles=500)

    assert [one["sm_cycles"] for one in opened(library).count(call, 1)] == [1500]


def test_one_session_stands_around_all_repeats(card: Card, library: Library):
    profiler = opened(library)
    assert library.asked == OPENING
    library.asked.clear()
    profiler.count(card.launch, 1)
    of_range = ["RangeProfilerCounterDataGetRangeInfo", "ProfilerHostEvaluateToGpuValues"]
    assert library.asked == [
        "RangeProfilerGetCounterDataSize",
        "RangeProfilerCounterDataImageInitialize",
        "RangeProfilerSetConfig",
        "RangeProfilerStart",
        *["RangeProfilerPushRange", "RangeProfilerPopRange"] * 2,
        "RangeProfilerStop",
        "RangeProfilerDecodeData",
        "RangeProfilerGetCounterDataInfo",
        *of_range * 2,
    ]


def test_cupti_is_given_the_card_the_schedule_and_room_for_each_range(card: Card, library: Library):
    opened(library).count(card.launch, 3)
    assert library.fields["DeviceGetChipName"]["deviceIndex"] == 3
    host = library.fields["ProfilerHostInitialize"]
    assert (host["profilerType"], host["pChipName"]) == (0, b"GH100")
    assert library.fields["RangeProfilerEnable"]["ctx"] == CONTEXT
    assert library.config == b"sched"
    size, image = (
        library.fields["RangeProfilerCounterDataImageInitialize"][one]
        for one in ("counterDataSize", "pCounterData")
    )
    config = library.fields["RangeProfilerSetConfig"]
    del config["pConfig"]
    assert config == {
        "pRangeProfilerObject": PROFILER,
        "configSize": 5,
        "counterDataImageSize": size,
        "pCounterDataImage": image,
        "range": 2,  # CUPTI_UserRange
        "replayMode": 3,  # CUPTI_UserReplay
        "maxRangesPerPass": 4,
        "numNestingLevels": 1,
        "minNestingLevel": 1,
        "passIndex": 0,
        "targetNestingLevel": 1,
    }
    assert size == 28
    assert library.fields["RangeProfilerGetCounterDataSize"]["maxNumRangeTreeNodes"] == 4
    assert library.fields["ProfilerHostEvaluateToGpuValues"]["pHostObject"] == HOST


@pytest.mark.parametrize(
    ("refusing", "given_back"),
    [
        ("ProfilerInitialize", []),
        ("DeviceGetChipName", CLOSING[2:]),
        ("ProfilerHostInitialize", CLOSING[2:]),
        ("ProfilerHostConfigAddMetrics", CLOSING[1:]),
        ("RangeProfilerEnable", CLOSING[1:]),
    ],
)
def test_what_was_opened_before_a_refusal_is_given_back(
    library: Library, refusing: str, given_back: list[str]
):
    library.errors[refusing] = 999
    with pytest.raises(CountersRefusedError, match=rf"^cupti{refusing}: unknown error \(999\)$"):
        opened(library)
    assert library.asked == [*OPENING[: OPENING.index(refusing) + 1], *given_back]


def test_closing_gives_back_everything_once(library: Library):
    profiler = opened(library)
    library.asked.clear()
    library.errors = dict.fromkeys(CLOSING, 999)
    profiler.close()
    assert library.asked == CLOSING
    profiler.close()
    assert library.asked == CLOSING


def test_a_missing_right_says_what_the_administrator_can_do(library: Library):
    library.errors["RangeProfilerEnable"] = 35
    with pytest.raises(CountersRefusedError) as refused:
        opened(library)
    name = "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES"
    assert str(refused.value) == f"cuptiRangeProfilerEnable: {name} (35): {REMEDY}"


@pytest.mark.parametrize(
    ("function", "code", "advice"),
    [
        ("ProfilerHostInitialize", 1, "older than the card"),
        ("ProfilerHostInitialize", 46, "older than the card"),
        ("ProfilerHostInitialize", 15, "libnvperf_host.so of the same release"),
        ("ProfilerInitialize", 15, "CUPTI was finalized in this process"),
        ("ProfilerHostConfigAddMetrics", 1, "this card lacks one of the metrics"),
        ("RangeProfilerEnable", 26, "another process holds the counters"),
        ("RangeProfilerStart", 1, "close every other RangeProfiler"),
        ("RangeProfilerStart", 26, "another process holds the counters"),
    ],
)
def test_the_same_number_means_another_thing_to_another_function(
    card: Card, library: Library, function: str, code: int, advice: str
):
    library.errors[function] = code
    with pytest.raises(CountersRefusedError, match=rf"^cupti{function}: .* \({code}\): .*{advice}"):
        opened(library).count(card.launch, 1)


def test_a_refused_start_leaves_the_profiler_usable(card: Card, library: Library):
    profiler = opened(library)
    library.errors["RangeProfilerStart"] = 1
    with pytest.raises(CountersRefusedError):
        profiler.count(card.launch, 1)
    assert card.queued == []
    library.errors.clear()
    assert len(profiler.count(card.launch, 2)) == 2


@pytest.mark.parametrize("where", ["call", "before"])
@pytest.mark.parametrize("cleanup", [0, 999])
def test_what_a_call_raises_is_not_hidden_and_leaves_the_profiler_usable(
    card: Card, library: Library, where: str, cleanup: int
):
    def bad() -> None:
        card.launch(7)
        if cleanup:
            library.errors = {"RangeProfilerPopRange": cleanup, "RangeProfilerStop": cleanup}
        raise KeyError("planted")

    profiler = opened(library)
    library.asked.clear()
    with pytest.raises(KeyError, match="planted"):
        profiler.count(**{"call": card.launch, "repeats": 2, "before": None, where: bad})
    ended = ["RangeProfilerPopRange", "RangeProfilerStop"]
    assert library.asked[4:] == (
        ["RangeProfilerPushRange", *ended] if where == "call" else ["RangeProfilerStop"]
    )
    if not cleanup:
        assert [one["sm_cycles"] for one in profiler.count(card.launch, 2)] == [1000, 1000]


def test_a_device_that_fails_is_no_lack_of_counters(card: Card, library: Library):
    def fault() -> None:
        card.failed = 700

    with pytest.raises(RuntimeError, match="CUDA error 700") as failed:
        opened(library).count(fault, 1)
    assert not isinstance(failed.value, CountersRefusedError)
    assert library.state == "stopped"


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("passes", "more than one pass"),
        ("dropped", "dropped 2 of 4 ranges"),
        ("lost", "kept 2 of 4 ranges"),
    ],
)
def test_ranges_that_are_not_whole_are_no_measurement(
    card: Card, library: Library, what: str, message: str
):
    setattr(library, what, 2)
    with pytest.raises(CountersRefusedError, match=message):
        opened(library).count(card.launch, 3)


def test_samples_are_called_as_those_of_ncu(card: Card, library: Library):
    cycles = iter([4288, 2987, 2983, 2990])
    found = read(opened(library), lambda: card.launch(next(cycles)), None)
    assert found == {
        "sm_cycles": (2987, 2983, 2990),
        "kernel_cycles": (5974, 5966, 5980),
        "instructions": (64, 64, 64),
        "dram_bytes": (4096, 4096, 4096),
        "tensor_pipe": (50, 50, 50),
    }
    assert set(found) == set(ncu.of_calls([]))
    # ``ncu`` starts and ends with each kernel, and says how long it took.
    own = {"sm__cycles_active.max": "kernel_cycles"}
    assert METRICS.items() - own.items() <= ncu.COLUMNS.items()


def test_before_is_called_before_each_call_and_the_warm_up(card: Card, library: Library):
    said: list[str] = []

    def call() -> None:
        said.append("call")
        card.launch()

    found = read(opened(library), call, lambda: said.append("before"), repeats=2)
    assert found["instructions"] == (64, 64)
    assert said == ["before", "call"] * 3


def test_a_metric_without_a_number_is_not_zero(card: Card, library: Library):
    library.unread = {PIPE, BYTES}
    with pytest.raises(CountersRefusedError, match=r"no number for dram_bytes tensor_pipe$"):
        read(opened(library), card.launch, None)


def test_a_call_that_launches_nothing_is_no_measurement(library: Library):
    library.unread = {PIPE}  # a share of no cycles
    with pytest.raises(ValueError, match="the call launched no kernel"):
        read(opened(library), lambda: None, None)


def test_without_a_context_the_device_is_to_be_used_first(library: Library):
    library.card.context = None
    with pytest.raises(CountersRefusedError, match="no CUDA context is current"):
        opened(library)
    assert library.asked == []


def test_a_cupti_before_the_range_profiler_is_named(card: Card):
    with pytest.raises(
        CountersRefusedError, match=r"^/old/libcupti.so.12 has no cuptiRange.*12\.6"
    ):
        cupti.Cupti(Library(card, lacking="cuptiRangeProfilerEnable"), "/old/libcupti.so.12")


def test_the_cupti_that_is_found_is_the_one_that_counts(
    card: Card, library: Library, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(cupti, "load", lambda: cupti.Cupti(library, "found"))
    assert len(RangeProfiler(driver=card).count(card.launch, 2)) == 2


def test_the_method_is_these_two_modules():
    files = (range_profiler.__file__, cupti.__file__)
    assert f"cupti-{method_hash(*files)}" == range_profiler.METHOD_VERSION
    assert method_hash(*files) != method_hash(files[0])
