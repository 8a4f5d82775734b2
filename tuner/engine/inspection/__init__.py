"""Look inside quantized models without labels."""
