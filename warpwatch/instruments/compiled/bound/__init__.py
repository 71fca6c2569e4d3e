"""The least time a launch can take on its device: work of each unit, trip counts, overlap."""
