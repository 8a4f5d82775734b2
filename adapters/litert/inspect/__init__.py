"""Inspect a quantized model and compare it with its float model."""
