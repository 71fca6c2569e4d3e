"""The judge: reads result files alone and says what changed, how sure it is, and why."""
