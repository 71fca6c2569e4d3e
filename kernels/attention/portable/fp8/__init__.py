"""The forward pass in fp8 for every target."""
