"""The GPU itself: through torch, or made of software for tests."""
