"""What the compiled instrument says before a card is there, compared with what a card says."""
