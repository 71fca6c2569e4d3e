"""Hardware counters, through profilers and drivers."""
