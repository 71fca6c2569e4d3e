"""The source of a launch, read once for all that is made of it: regions, their work, their runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from warpwatch.instruments.compiled.formats import ir, work
from warpwatch.instruments.compiled.formats.recording import Argument, Launch, by_compiled_names

from . import trip_counts


@dataclass(frozen=True)
class Source:
    """A kernel in Triton's GPU dialect: what one run of each region does, and how often it runs.
    Arguments are by the names that they have there."""

    function: ir.Function
    arguments: Mapping[str, Argument]
    visited: trip_counts.Visits
    works: Mapping[ir.Region, work.RegionWork]

    @property
    def specialised(self) -> bool:
        """Whether its warps play different parts."""
        return any(one.name == "ttg.warp_specialize" for one in self.function.body.walk())


def of_launch(launch: Launch) -> Source:
    """Read the source of ``launch`` and run its control flow."""
    function = ir.parse(launch.kernel.texts["ttgir"])
    arguments = by_compiled_names(function.arguments, launch.arguments)
    visited = trip_counts.evaluate(function, launch, arguments)
    return Source(function, arguments, visited, work.of_function(function))
