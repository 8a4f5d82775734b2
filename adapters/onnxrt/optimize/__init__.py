"""Rewrite the float graph without changing what it computes, before quantization."""
