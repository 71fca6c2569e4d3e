"""What predicted times of a call say of a change: an interval, a verdict, and a sentence."""
