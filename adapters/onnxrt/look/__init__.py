"""ONNX Runtime: see inside a quantized model."""
