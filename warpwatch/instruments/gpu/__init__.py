"""What a process reads off a GPU: time, memory, accuracy, host overhead."""
