"""What explains a change: machine code, samples, the state of the card."""
