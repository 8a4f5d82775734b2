"""MXNet: time it."""
