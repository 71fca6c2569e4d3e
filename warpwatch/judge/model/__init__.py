"""The words of a judgement: series, metrics, commits, thresholds."""
