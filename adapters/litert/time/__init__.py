"""TensorFlow and LiteRT: time it."""
