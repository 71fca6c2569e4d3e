"""Runs the code blocks of tutorials and guides, so that a reader can."""
