"""Measurements, taken as ratios in one run."""
