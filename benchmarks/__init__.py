"""Measurements behind every figure that the documentation gives: `make bench`."""
