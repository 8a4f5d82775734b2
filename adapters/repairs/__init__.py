"""Repairs: label-free changes of weights and biases that reduce quantization error."""
