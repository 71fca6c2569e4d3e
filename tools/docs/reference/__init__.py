"""Reference pages, read from the code that they describe."""
