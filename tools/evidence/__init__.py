"""All that must be seen on a GPU before a release: ``python -m tools.evidence --help``."""
