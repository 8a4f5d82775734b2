"""Load an ONNX model: from a path, a `ModelProto` or bytes to a clean `Graph`.

`model_file` is the entry. It checks the file (`structure`, `tensors`), converts old opsets (`old_opsets`), takes the
model apart (`graph`), cleans it (`cleanup`) and infers types and shapes (`shape_inference`).
"""
