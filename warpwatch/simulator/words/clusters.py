"""Words that speak to other CTAs of a cluster."""

from __future__ import annotations

from warpwatch.simulator.machine.engines import program


def cluster_arrive(relaxed: bool = False) -> None:
    """All CTAs of the cluster arrive at its barrier."""
    if program().ctas > 1:
        program().rendezvous.arrive(program().now, bool(relaxed))


def cluster_wait() -> None:
    """All CTAs wait until all have arrived."""
    if program().ctas > 1:
        program().rendezvous.wait(program().now)


def fence_cluster_init() -> None:
    """What was initialised is seen by CTAs behind the cluster's barrier."""
    program().rendezvous.fenced = True


def sync_cluster() -> None:
    """All CTAs see what was initialised."""
    fence_cluster_init()
    cluster_arrive(relaxed=True)
    cluster_wait()


def meet_all(cluster: bool = False) -> None:
    """The warps of a partition meet, and of all CTAs if that is said."""
    if bool(cluster):
        cluster_arrive()
        cluster_wait()
