"""Constants of the model of time, measured on a card by small programs in PTX."""
