"""TensorFlow and LiteRT: see inside a quantized model."""
