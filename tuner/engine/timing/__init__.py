"""Measure and predict latency."""
