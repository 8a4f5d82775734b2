"""Inspect quantized models without labels: diagnosis, repairs, modes and output errors."""
