"""Which back end serves an attention problem."""
