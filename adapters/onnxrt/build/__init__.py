"""ONNX Runtime: make the model of a configuration."""
