"""The forward pass for every target."""
