"""The yardstick: what is run, what is recorded and how it is read; always today's."""
