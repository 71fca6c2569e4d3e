"""How much slower than the best of its table is a tuned configuration that ``lint`` names?"""
