"""asv's environment: the commit's package laid over the Python that runs asv.

No torch is downloaded per commit and nothing is installed. The same ``asv.conf.json`` therefore
serves a laptop's virtual environment and the CUDA and ROCm images.
"""

from __future__ import annotations

import os
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

from asv import environment, util
from asv.console import log

from warpwatch import project
from warpwatch.config import isolation

from . import value_server

# A change of one of these starts a new environment in asv and a border in our reports.
_RECORDED = ("torch", "triton")

value_server.use()


class KernelsOverlay(environment.Environment):  # type: ignore[misc]  # asv ships no types
    """One commit's package over the running interpreter."""

    tool_name = "kernels-overlay"
    matches_python_fallback = False

    def __init__(
        self,
        conf: Any,
        python: str,
        requirements: dict[str, str],
        tagged_env_vars: dict[tuple[str, str], str],
    ) -> None:
        if not self.matches(python):
            raise environment.EnvironmentUnavailable(
                f"python {python} was asked for, but asv runs on {_python_version()}: "
                "start asv with the Python to measure on"
            )
        self._requirements = dict(requirements)
        for name in _RECORDED:
            try:
                version = metadata.version(name)
            except metadata.PackageNotFoundError as error:
                raise environment.EnvironmentUnavailable(
                    f"{name} is not installed next to asv in {sys.prefix}: "
                    "pip install 'warpwatch[triton]'"
                ) from error
            self._requirements[name] = version.partition("+")[0]
        super().__init__(conf, python, self._requirements, tagged_env_vars)
        self._site = Path(self._path) / "site"
        self._harness = Path(self._path) / "harness"
        self._results = Path(conf.results_dir).resolve()

    @classmethod
    def matches(cls, python: str) -> bool:
        return python == _python_version()

    @property
    def dir_name(self) -> str:
        """One environment for every queue of commits, but each has its commit's package in a folder
        of its own."""
        return f"{super().dir_name}{os.environ.get(isolation.QUEUE_VARIABLE, '')}"

    def check_presence(self) -> bool:
        return Path(self._path).is_dir()

    def _setup(self) -> None:
        Path(self._path).mkdir(parents=True, exist_ok=True)

    def _get_installed_commit_hash(self) -> str | None:
        # The folder may have been removed by hand since the status file was written.
        commit: str | None = super()._get_installed_commit_hash()
        return commit if (Path(self._path) / "site" / "measured.json").is_file() else None

    def install_project(self, conf: Any, repo: Any, commit_hash: str) -> None:
        """Export the commit's package; a commit without it fails, and only that commit."""
        if self.installed_commit_hash != commit_hash:
            self.create()
            try:
                isolation.export(commit_hash, self._site, Path(repo._path))
            except ValueError as error:
                log.error(str(error))
                # The one exception asv takes for a failed build of this commit alone.
                raise util.ProcessError(["export", commit_hash], 1, "", str(error)) from error
            self._set_installed_commit_hash(commit_hash)
        self._set_commit_hash(commit_hash)

    def run(self, args: list[str], **kwargs: Any) -> Any:
        isolation.link_harness(self._harness)
        variables = dict(kwargs.pop("env", None) or os.environ)
        variables.update(self._global_env_vars)
        # asv and Triton (another version beside the installed one) may come from PYTHONPATH; the
        # checkout may not: today's kernels lie in it.
        beside = isolation.foreign_path(variables.pop("PYTHONPATH", ""))
        variables[isolation.PATH_VARIABLE] = isolation.search_path(
            self._site, self._harness, beside
        )
        if beside:
            # asv's process imports asv_runner before it takes up the path above, and puts that
            # path in front of this one.
            variables["PYTHONPATH"] = beside
        variables[isolation.SITE_VARIABLE] = str(self._site)
        variables[project.FILE_VARIABLE] = str(project.configuration_file())
        variables[isolation.RESULTS_VARIABLE] = str(self._results)
        return util.check_output([sys.executable, *args], env=variables, **kwargs)


def _python_version() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"
