"""Calibration: stream the user's data once and collect ranges and channel statistics."""
