"""How steps share one card, and what each of several does."""

from __future__ import annotations

from pathlib import Path

from tests.tools.test_evidence_runner import run, step


def meeting(folder: Path, me: str, other: str, then: str = "") -> str:
    """Code that ends once the ``other`` has begun: both run at once, or neither ends."""
    return (
        "import os, pathlib, time\n"
        f"here = pathlib.Path({str(folder)!r}); (here / {me!r}).touch()\n"
        "print(os.environ['CUDA_VISIBLE_DEVICES'], time.time(), flush=True)\n"
        f"while not (here / {other!r}).exists(): time.sleep(0.01)\n"
        f"time.sleep(0.3); print(time.time()); {then}"
    )


def test_steps_of_one_card_share_it_as_far_as_they_say(tmp_path: Path) -> None:
    """Two halves meet; who is alone comes behind both, and the next in its turn."""
    order = f"open({str(tmp_path / 'order')!r}, 'a')"
    steps = [
        step("first", meeting(tmp_path, "a", "b", f"{order}.write('half ')"), share=0.5),
        step("second", meeting(tmp_path, "b", "a", f"{order}.write('half ')"), share=0.5),
        step("alone", f"import time; time.sleep(0.3); {order}.write('alone ')"),
        step("last", f"{order}.write('last ')", share=0.5),
    ]
    assert run(tmp_path, steps, seconds=120).code == 0
    assert (tmp_path / "order").read_text().split() == ["half", "half", "alone", "last"]


def test_of_two_cards_one_times_and_the_other_checks(tmp_path: Path) -> None:
    steps = [
        step("check-1", meeting(tmp_path, "c1", "t1")),
        step("check-2", meeting(tmp_path, "c2", "t2")),
        step("timed-1", meeting(tmp_path, "t1", "c1"), timed=True),
        step("timed-2", meeting(tmp_path, "t2", "c2"), timed=True),
    ]
    made = run(tmp_path, steps, seconds=120, cards=("4", "7"))
    assert made.code == 0
    spans: dict[str, list[tuple[float, float]]] = {"4": [], "7": []}
    for one in steps:
        card, first, last = (tmp_path / f"{one.name}.txt").read_text().split()
        assert card == made.records[one.name].card == ("4" if one.timed else "7")
        spans[card].append((float(first), float(last)))
    for (_, ended), (began, _) in spans.values():
        assert ended <= began


def test_a_card_whose_own_steps_are_done_helps(tmp_path: Path) -> None:
    for timed in (True, False):
        folder = tmp_path / str(timed)
        folder.mkdir()
        steps = [
            step("a", meeting(folder, "x", "y"), timed=timed),
            step("b", meeting(folder, "y", "x"), timed=timed),
        ]
        made = run(folder, steps, seconds=120, cards=("4", "7"))
        assert made.code == 0 and {one.card for one in made.records.values()} == {"4", "7"}
