"""The commands that read results: reports, verdicts, triage."""
