"""PyTorch modules and models of Hugging Face: exported to ONNX once, then tuned as ONNX models.

torch is imported only when a module of it, or a folder of Hugging Face, is passed.
"""
