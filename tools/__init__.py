"""Programs that people run from the checkout: ``python -m tools.FOLDER.NAME --help``.

``evidence`` runs all that must be seen on a GPU before a release; ``kernels`` tries and times our
kernels beyond what tests do; ``planted`` plants defects that the gate must find; ``harness`` holds
the harness against others and against what was published. No package imports these.
"""
