"""The commands that set a machine or a project up."""
