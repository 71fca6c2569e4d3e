"""The error rates of the judge itself, on synthetic and recorded series."""
