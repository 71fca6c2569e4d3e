"""How long a launch takes: its machine code issued, instruction by instruction, on one SM."""
