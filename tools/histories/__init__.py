"""A benchmark of judges on other people's histories: which regressions ours names, and asv's."""
