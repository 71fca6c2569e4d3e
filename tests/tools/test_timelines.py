"""The documents' timelines are what Hopper's kernels do today."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest

from tests.root import ROOT
from tools.gluon.timelines.labels import boxes
from tools.gluon.timelines.scenes import SCENES, Scene

PICTURES = ROOT / "docs" / "images" / "kernels"
RUN = ("forward", "matmul-one-tile", "heavy-rows")  # the others take longer


def test_each_scene_has_a_picture() -> None:
    assert {one.stem for one in PICTURES.glob("*.svg")} == set(SCENES)
    for name in SCENES:
        assert ElementTree.parse(PICTURES / f"{name}.svg").getroot().tag.endswith("svg")


def test_a_picture_says_which_stage_and_which_turn_is_waited_for() -> None:
    text = (PICTURES / "forward.svg").read_text(encoding="utf-8")
    assert "wait until stage 0 of V is full, phase 0" in text
    assert "wait until stage 0 of K is empty, phase 0" in text
    text = (PICTURES / "heavy-rows.svg").read_text(encoding="utf-8")
    assert "wait for phase 0 of named barrier 9" in text


def test_pictures_are_what_the_kernels_do() -> None:
    command = [sys.executable, "-m", "tools.gluon.timelines", "--check", *RUN]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout) == (0, "0 differ: none\n"), done.stdout + done.stderr


@pytest.mark.parametrize(
    ("kind", "what"), [("copy in", "copy to shared memory 7 (bf16)"), ("product", "x")]
)
def test_what_has_no_name_is_refused(kind: str, what: str) -> None:
    track = "copy engine" if kind == "copy in" else "the default partition: matrix unit"
    span = SimpleNamespace(track=track, kind=kind, what=what, begin=0, end=4)
    scene = Scene(kernel="k", call=lambda: None, products={"s": "S"}, rings={0: "K"})
    with pytest.raises(ValueError, match="expected a name"):
        boxes(SimpleNamespace(spans=[span]), scene)  # type: ignore[arg-type]
