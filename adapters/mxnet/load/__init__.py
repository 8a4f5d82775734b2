"""Load a model from each form that the adapter accepts."""
