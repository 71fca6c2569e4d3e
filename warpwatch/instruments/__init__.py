"""Instruments: how a metric is read. Values of different instruments are never compared."""
