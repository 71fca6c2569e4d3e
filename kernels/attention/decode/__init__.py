"""Few queries over a key-value cache: the keys are split over programs."""
