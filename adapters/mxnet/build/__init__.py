"""MXNet: make a trial."""
