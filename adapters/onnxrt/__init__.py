"""ONNX Runtime: intake, ops, calibration, assembly of trials, sessions."""
