"""Words of Triton and Gluon, and how they are run."""
