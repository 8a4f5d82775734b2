"""ONNX Runtime: time it."""
