"""ONNX Runtime: take a model in, and find its ops."""
