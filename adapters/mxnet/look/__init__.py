"""MXNet: see inside."""
