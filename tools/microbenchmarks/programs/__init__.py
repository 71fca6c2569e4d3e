"""The programs in PTX that are timed, and how a number comes out of each."""
