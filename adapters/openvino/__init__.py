"""The adapter for OpenVINO, selected by `runtime="openvino"`.

Everything about quantization is the ONNX adapter's, `quaver.adapters.onnxrt`: this package only runs and times what it
builds.

1. `session.py` opens a file as it is deployed, and runs feeds like a session of ONNX Runtime.
2. `execution_graph.py` reads what OpenVINO made of a model: kernels, their precisions, and the ops they come from.
3. `profile.py` times kernels, ops and models.
4. `runtime.py` is the `Runtime` that the adapter uses, with the tables of what runs in int8.
5. `adapter.py` is the ONNX adapter on this runtime.
"""
