"""Base and head of a change, measured interleaved."""
