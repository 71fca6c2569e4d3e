"""What the user configures: the measured package, metrics, targets, shards."""
