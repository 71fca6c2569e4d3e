"""One module a command: ``add_arguments(parser)`` and ``main(args) -> exit code``."""
