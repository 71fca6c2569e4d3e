"""The commands that workflows run: measure a pull request, judge it, extend the history."""
