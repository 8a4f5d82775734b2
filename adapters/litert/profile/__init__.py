"""Time models and their ops."""
