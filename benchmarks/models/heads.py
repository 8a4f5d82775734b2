"""Linear heads on the features of a pretrained model."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper
from sklearn.linear_model import LogisticRegression

from benchmarks.models.bench import Array, Arrays


def fit_head(model: onnx.ModelProto, inputs: Arrays, labels: Array, strength: float) -> onnx.ModelProto:
    """The model with a linear classifier behind its output of features, fitted by logistic regression."""
    features = run(model, inputs)
    head = LogisticRegression(C=strength, max_iter=1000).fit(features, labels)
    weight, bias = head.coef_.astype(np.float32), head.intercept_.astype(np.float32)
    if len(weight) == 1:  # two classes come as one score
        weight, bias = np.concatenate([-weight, weight]) / 2, np.concatenate([-bias, bias]) / 2
    graph = model.graph
    (source,) = graph.output
    graph.initializer.append(numpy_helper.from_array(weight, "head.weight"))
    graph.initializer.append(numpy_helper.from_array(bias, "head.bias"))
    graph.node.append(
        helper.make_node("Gemm", [source.name, "head.weight", "head.bias"], ["logits"], name="head", transB=1)
    )
    del graph.output[:]
    graph.output.append(helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", len(bias)]))
    onnx.checker.check_model(model)
    return model


def run(model: onnx.ModelProto, inputs: Arrays, batch: int = 16) -> Array:
    """The output of a float model."""
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    count = len(next(iter(inputs.values())))
    return np.concatenate(
        [
            session.run(None, {name: values[start : start + batch] for name, values in inputs.items()})[0]
            for start in range(0, count, batch)
        ]
    )
