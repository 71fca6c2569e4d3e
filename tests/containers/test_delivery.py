"""What leaves a results folder that foreign code could write: plain files within limits."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from warpwatch.ci import artifact
from warpwatch.sandbox import delivery, images
from warpwatch.sandbox.delivery import deliver, sweep


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "host-secret.json"
    path.write_text('{"secret": "of the host"}')
    return path


@pytest.fixture
def lane(tmp_path: Path) -> Iterator[Path]:
    """What an honest lane leaves, asv's own working files beside it."""
    folder = tmp_path / "lane"
    (folder / "results" / "box").mkdir(parents=True)
    (folder / "results" / "box" / "aaaa-env.json").write_text("{}")
    (folder / "shard.json").write_text("{}")
    (folder / "env").mkdir()
    (folder / "env" / "python").symlink_to(sys.executable)
    yield folder
    # pytest's own way is not deep enough
    subprocess.run(["rm", "-rf", str(folder)], check=True, timeout=120)


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


HONEST = {"results/box/aaaa-env.json": b"{}", "shard.json": b"{}"}


def linked(folder: Path, secret: Path) -> None:
    (folder / "results" / "box" / "bad.json").symlink_to(secret)


def folder_linked(folder: Path, secret: Path) -> None:
    (folder / "results" / "bad").symlink_to(secret.parent)


def manifest_linked(folder: Path, secret: Path) -> None:
    (folder / "shard.json").unlink()
    (folder / "shard.json").symlink_to(secret)


def all_linked(folder: Path, secret: Path) -> None:
    (folder / "results").rename(folder / "moved")
    (folder / "results").symlink_to(secret.parent)


def dangling(folder: Path, secret: Path) -> None:
    (folder / "results" / "box" / "bad.json").symlink_to("nowhere")


def hard_linked(folder: Path, secret: Path) -> None:
    (folder / "results" / "box" / "bad.json").hardlink_to(secret)


def pipe(folder: Path, secret: Path) -> None:
    os.mkfifo(folder / "results" / "box" / "bad.json")


def a_socket(folder: Path, secret: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(folder / "results" / "bad"))


def device(folder: Path, secret: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("only root makes a device")
    os.mknod(folder / "results" / "box" / "bad.json", stat.S_IFCHR | 0o666, os.makedev(1, 5))


def deep(folder: Path, secret: Path) -> None:
    """Deeper than Python's own recursion goes."""
    inside = os.open(folder / "results", os.O_RDONLY)
    for _ in range(1010):
        os.mkdir("d", dir_fd=inside)
        outside, inside = inside, os.open("d", os.O_RDONLY, dir_fd=inside)
        os.close(outside)
    os.close(inside)


def strange_name(folder: Path, secret: Path) -> None:
    (folder / "results" / "box" / "bad\n::error::\x1b[31m.json").write_text("{}")


def undecodable_name(folder: Path, secret: Path) -> None:
    Path(os.fsdecode(os.fsencode(folder) + b"/results/\xff\xfe.json")).write_text("{}")


def hidden_name(folder: Path, secret: Path) -> None:
    (folder / "results" / "box" / ".git").mkdir()


TRICKS: dict[str, tuple[Callable[[Path, Path], None], str]] = {
    "a symbolic link": (linked, "a symbolic link"),
    "a link to a folder": (folder_linked, "a symbolic link"),
    "the manifest is a link": (manifest_linked, "a symbolic link"),
    "the results are a link": (all_linked, "a symbolic link"),
    "a link to nothing": (dangling, "a symbolic link"),
    "a hard link": (hard_linked, "a hard link"),
    "a pipe": (pipe, "a pipe"),
    "a socket": (a_socket, "a socket"),
    "a device": (device, "a device"),
    "folders without end": (deep, "more than 8 folders deep"),
    "a name that writes on a terminal": (strange_name, "a name that no measuring job gives"),
    "a name that git heeds": (hidden_name, "a name that no measuring job gives"),
    "a name that is no text": (undecodable_name, "a name that no measuring job gives"),
}


@pytest.mark.parametrize("trick", list(TRICKS))
def test_what_is_no_result_is_not_delivered_and_the_shard_does_not_count(
    lane: Path, secret: Path, tmp_path: Path, trick: str
) -> None:
    play, words = TRICKS[trick]
    play(lane, secret)
    refused = deliver(lane, tmp_path / "out")
    assert [one.why.partition(",")[0] for one in refused] == [words]
    assert files(tmp_path / "out").items() <= {"results/box/aaaa-env.json": b"{}"}.items()
    assert secret.read_text() == '{"secret": "of the host"}'


@pytest.mark.parametrize("trick", list(TRICKS))
def test_what_is_no_result_is_swept_away_before_anybody_reads_the_folder(
    lane: Path, secret: Path, trick: str
) -> None:
    play, words = TRICKS[trick]
    play(lane, secret)
    (found,) = sweep(lane)
    assert words in str(found) and str(found).isprintable()
    assert secret.read_text() == '{"secret": "of the host"}'
    assert sweep(lane) == []
    assert not (lane / "shard.json").exists()
    assert (lane / "env" / "python").is_symlink(), "asv's own working folder is nobody's delivery"


def test_a_folder_that_nobody_may_enter_does_not_stay_in_the_next_job_s_way(
    lane: Path, secret: Path
) -> None:
    """rm cannot empty it, nor can the checkout: the runner would fail every job from then on."""
    locked = lane / "env" / "locked"
    (locked / "inside").mkdir(parents=True)
    (locked / "link").symlink_to(secret)
    secret.chmod(0o400)
    (locked / "inside").chmod(0)
    locked.chmod(0)
    assert sweep(lane) == []
    assert [oct(p.stat().st_mode & 0o700) for p in (locked, locked / "inside")] == ["0o700"] * 2
    assert oct(secret.stat().st_mode & 0o777) == "0o400"


def test_an_honest_lane_is_delivered_as_it_is(lane: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "of the job before").write_text("x")
    assert sweep(lane) == []
    assert deliver(lane, tmp_path / "out") == []
    assert files(tmp_path / "out") == HONEST


def test_a_lane_that_never_began_delivers_nothing(tmp_path: Path) -> None:
    assert deliver(tmp_path / "lane", tmp_path / "out") == []
    assert files(tmp_path / "out") == {}


def test_no_more_is_delivered_than_the_judge_takes(lane: Path, tmp_path: Path) -> None:
    assert delivery.MAX_BYTES == artifact.MAX_UNPACKED_BYTES
    assert (delivery.MAX_FILES, delivery.MANIFEST) == (artifact.MAX_FILES, artifact.MANIFEST)
    with (lane / "results" / "huge.json").open("wb") as file:
        file.truncate(10**12)  # a hole: it takes no room here
    (refused,) = deliver(lane, tmp_path / "out")
    assert str(refused) == ("results/huge.json (with it there are more than 268,435,456 bytes)")
    assert files(tmp_path / "out") == {"results/box/aaaa-env.json": b"{}"}
    (lane / "results" / "huge.json").unlink()
    for number in range(5):
        (lane / "results" / "box" / f"{number}.json").write_text("{}")
    (refused,) = deliver(lane, tmp_path / "out", max_files=3)
    assert "more than 3 files" in refused.why
    assert not (tmp_path / "out" / "shard.json").exists()


def test_the_make_target_names_what_it_refused_and_fails(
    lane: Path, secret: Path, tmp_path: Path
) -> None:
    linked(lane, secret)
    command = [sys.executable, "-m", "warpwatch", "container", "deliver"]
    command += ["--results", str(lane), "--out", str(tmp_path / "out")]
    done = subprocess.run(command, cwd=images.root(), capture_output=True, text=True, timeout=900)
    assert done.returncode == 3
    first, last = done.stderr.splitlines()
    assert first == "refused: results/box/bad.json (a symbolic link)"
    assert last.startswith("error: 1 of ")
