"""TensorFlow and LiteRT: take a model in, and find its ops."""
