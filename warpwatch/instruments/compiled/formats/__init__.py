"""The files and values that pass between recording and reading."""
