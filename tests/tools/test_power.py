"""Power and clocks of calls that repeat: medians over turns, and one error without a GPU."""

from __future__ import annotations

import pytest
import torch

from tools.kernels.speed import power
from warpwatch.instruments.gpu.card.interface import Clocks

CAPPED, FREE = ("power cap",), ()


def turn(us: float, *read: tuple[float, float, tuple[str, ...]]) -> power.Turn:
    return power.Turn(us, tuple(Clocks(mhz, power_w=w, throttled=why) for mhz, w, why in read))


def test_a_row_has_medians_of_its_turns() -> None:
    turns = [
        turn(100.0, (1500.0, 690.0, CAPPED), (1520.0, 700.0, FREE), (1530.0, 710.0, CAPPED)),
        turn(110.0, (1400.0, 650.0, FREE)),
        turn(102.0, (1600.0, 720.0, CAPPED)),
    ]
    one = power.row("ours", 204_000_000_000, turns)
    assert (one.us, one.watts, one.mhz) == (102.0, 700.0, 1520.0)
    assert one.capped == pytest.approx(2 / 3)
    assert one.spread == pytest.approx(5 / 102)
    assert one.tflops == pytest.approx(2000.0)
    assert one.millijoules == pytest.approx(71.4)
    assert one.kiloclocks == pytest.approx(155.04)


def test_what_the_driver_does_not_say_is_no_number() -> None:
    one = power.row("ours", 1, [power.Turn(1.0, (Clocks(None),)), power.Turn(1.0, ())])
    assert one.watts != one.watts
    assert one.mhz != one.mhz
    assert one.capped == 0


def test_the_table_has_a_line_for_each_row() -> None:
    rows = [
        power.row(name, 10**12, [turn(2000.0, (1500.0, 690.0, CAPPED))]) for name in ("a", "bc")
    ]
    head, *lines = power.table(rows)
    assert "mJ a call" in head
    assert [line.split()[0] for line in lines] == ["a", "bc"]
    assert lines[0].split()[1:] == [
        "2,000.0",
        "(0.0%)",
        "500",
        "690",
        "1,500",
        "1,380.0",
        "3,000.0",
        "100%",
    ]


@pytest.mark.skipif(torch.cuda.is_available(), reason="here is a GPU")
def test_without_a_gpu_it_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        power.main(["matmul-fp16-1024x1024x1024"])
    assert ended.value.code == 2
    assert "no GPU" in capsys.readouterr().err
