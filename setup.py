"""Packs the images and workflows that ``warpwatch init`` can write into the wheel."""

from __future__ import annotations

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

HERE = Path(__file__).resolve().parent
# What a project takes over, and the folder of the package that holds it in a wheel.
STARTER = "starter"
SOURCES = ("docker", ".github/workflows")
# Warpwatch's own tests and releases stay here; and workflows that a project calls from here.
OWN = (
    "actionlint",
    "ci-packages.txt",
    "release.mk",
    "release.yml",
    "tests.yml",
    "tools.mk",
    "tools.txt",
    "warpwatch-compile.yml",
    "warpwatch-lane.yml",
    "warpwatch-publish.yml",
    "warpwatch-verdict.yml",
)
IGNORED = shutil.ignore_patterns("__pycache__", "*.pyc", "node_modules", *OWN)


class BuildWithStarter(build_py):
    """Copies ``docker/`` and the workflows next to the modules: they have one source."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        target = Path(self.build_lib) / "warpwatch" / STARTER
        for name in SOURCES:
            shutil.copytree(HERE / name, target / name, ignore=IGNORED, dirs_exist_ok=True)


setup(cmdclass={"build_py": BuildWithStarter})
