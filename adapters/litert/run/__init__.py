"""TensorFlow and LiteRT: run and calibrate it."""
