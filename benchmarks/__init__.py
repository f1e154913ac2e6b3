"""Measurements: ratios taken in one run on one machine. ``python -m benchmarks.run`` makes them all."""
