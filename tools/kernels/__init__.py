"""Programs that try, time and fit our kernels: ``python -m tools.kernels.NAME --help``.

Their cases are those of ``tests/kernels``, so that a program and a test judge by the same bars.
"""
