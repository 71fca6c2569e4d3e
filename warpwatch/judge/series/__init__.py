"""Change points in a series, and how sure they are."""
