"""The bill of materials says what pip would install, by the hashes that it is held against."""

from __future__ import annotations

import json

import pytest

from tools import bill_of_materials, locks
from warpwatch.sandbox import images


def test_a_bill_lists_every_package_of_its_locks_with_its_hashes() -> None:
    found = bill_of_materials.bill(["reports", "gpu"])
    assert (found["bomFormat"], found["specVersion"]) == ("CycloneDX", "1.6")
    libraries = {one["name"]: one for one in found["components"] if one["type"] == "library"}
    text = (locks.LOCKS / "gpu.txt").read_text()
    entries = [one for one in locks.split(text) if not one.startswith("#")]
    assert len(libraries) == len(entries), "what both hold is one"
    for entry in entries:
        name, version = entry.split(" ")[0].split("==")
        assert libraries[name]["purl"] == f"pkg:pypi/{name}@{version}"
        hashes = {one["content"] for one in libraries[name]["hashes"]}
        assert len(hashes) == entry.count("--hash=sha256:")
        assert all(f"--hash=sha256:{one}" in entry for one in hashes)


def test_the_bases_of_the_images_are_in_it_by_digest() -> None:
    found = bill_of_materials.bill(["reports"])
    containers = {one["hashes"][0]["content"] for one in found["components"]
                  if one["type"] == "container"}  # fmt: skip
    expected = {b.digest for b in images.load().values()}
    expected |= {b.counters_digest for b in images.load().values() if b.counters_digest}
    assert {f"sha256:{one}" for one in containers} == expected
    named = bill_of_materials.bill(["reports"], backends=["cpu"])["components"]
    (only,) = [one for one in named if one["type"] == "container"]
    assert f"sha256:{only['hashes'][0]['content']}" == images.get("cpu").digest


def test_the_same_locks_give_the_same_bytes_and_references_are_there(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    printed = []
    for _ in range(2):
        monkeypatch.setattr("sys.argv", ["bill_of_materials", "compile"])
        assert bill_of_materials.main() == 0
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1]
    document = json.loads(printed[0])
    references = [one["bom-ref"] for one in document["components"]]
    assert len(set(references)) == len(references)
    assert document["dependencies"][0]["dependsOn"] == sorted(references)
