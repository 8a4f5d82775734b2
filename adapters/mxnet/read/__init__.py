"""MXNet: take the model in."""
