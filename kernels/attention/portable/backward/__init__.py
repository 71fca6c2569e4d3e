"""The backward pass for every target."""
