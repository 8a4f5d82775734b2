"""Look inside a quantized model beside its float model."""
