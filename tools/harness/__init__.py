"""The harness held against others and its own history: ``python -m tools.harness.NAME --help``."""
