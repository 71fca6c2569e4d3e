"""A timeline in the trace format of Chrome, which Perfetto opens."""

from __future__ import annotations

from typing import Any

from warpwatch.simulator.timeline.log import Log


def trace(logs: list[Log]) -> dict[str, Any]:
    """Make a trace of one program of each launch.

    Args:
        logs: What these programs did.

    Returns:
        An object to be written as JSON. A step is one microsecond.
    """
    events: list[dict[str, Any]] = []
    for process, log in enumerate(logs):
        events.append(_named("process_name", process, 0, f"{log.launch} (launch {process})"))
        for thread, track in enumerate(log.tracks):
            events.append(_named("thread_name", process, thread, track))
            events.append(
                {
                    "ph": "M",
                    "name": "thread_sort_index",
                    "pid": process,
                    "tid": thread,
                    "args": {"sort_index": thread},
                }
            )
            events += [
                {
                    "ph": "X",
                    "name": one.what,
                    "cat": one.kind,
                    "ts": one.begin,
                    "dur": one.end - one.begin,
                    "pid": process,
                    "tid": thread,
                    "args": {"line": str(one.site)},
                }
                for one in log.spans
                if one.track == track
            ]
    return {
        "traceEvents": events,
        "displayTimeUnit": "ns",
        "otherData": {"unit": "steps of a simulation, no time"},
    }


def _named(what: str, process: int, thread: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": process, "tid": thread, "args": {"name": name}}
