"""ONNX Runtime: run and calibrate it."""
