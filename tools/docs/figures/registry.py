"""Every figure that a marked block may name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tools.docs.figures import counts, install, planted, prediction, scorecard, standing
from tools.docs.reference import commands, feed, programs, settings

FIGURES: Mapping[str, Callable[[], str]] = {
    "counts": counts.all_of_them,
    "count-commits": counts.of_commits,
    "count-devices": counts.of_devices,
    "count-pairs": counts.of_pairs,
    "count-targets": counts.of_targets,
    "count-workloads": counts.of_workloads,
    "gates": scorecard.gates,
    "install": install.sizes,
    "install-base": install.of_base,
    "install-all": install.of_all,
    "planted-alarms": planted.alarms_on_gpu,
    "planted-found": planted.found_on_gpu,
    "planted-harmless": planted.harmless_on_gpu,
    "planted-history": planted.changes_in_history,
    "planted-history-alarms": planted.alarms_in_history,
    "planted-history-found": planted.found_in_history,
    "planted-on-gpu": planted.defects_on_gpu,
    "prediction": prediction.summary,
    "prediction-groups": prediction.by_group,
    "reference-acceptance": settings.acceptance_keys,
    "reference-command-options": commands.every_command,
    "reference-commands": commands.summary,
    "device-titles": settings.device_titles,
    "reference-devices": settings.devices,
    "reference-feed": feed.document,
    "reference-feed-change": feed.change,
    "reference-feed-coverage": feed.coverage,
    "reference-feed-finding": feed.finding,
    "reference-metrics-compiled": settings.compiled_metrics,
    "reference-metrics-measured": settings.measured_metrics,
    "reference-package": settings.package,
    "reference-sets": settings.sets,
    "reference-step-options": commands.every_step,
    "reference-steps": commands.steps_summary,
    "reference-targets": settings.targets,
    "reference-thresholds": settings.threshold_values,
    "reference-tools": programs.programs,
    "reference-workload": settings.workload,
    "scorecard-asv": scorecard.compared_with_asv,
    "scorecard-steps": scorecard.steps,
    "standing": standing.by_group,
    "standing-not-compared": standing.not_compared,
    "standing-source": standing.source,
    "standing-workloads": standing.by_workload,
    "what-it-finds": planted.summary,
}
