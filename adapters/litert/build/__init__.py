"""TensorFlow and LiteRT: make the model of a configuration."""
