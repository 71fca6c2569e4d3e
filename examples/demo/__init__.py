"""The whole harness on a history whose every change is known: what it must find, and what not."""
