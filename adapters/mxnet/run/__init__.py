"""MXNet: run and calibrate it."""
