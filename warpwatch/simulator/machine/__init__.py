"""Memory, barriers, the matrix unit and the copy engine, and who knows of whom."""
