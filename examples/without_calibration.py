"""Quantize a network without calibration data: dynamic ranges and weight-only int8."""

import numpy as np
import onnx
from onnx import helper, numpy_helper
from sklearn.neural_network import MLPClassifier

import quaver
from quaver.demo.data import digits

train, train_labels, images, labels = digits()
network = MLPClassifier((256, 128), max_iter=200, random_state=0).fit(train.reshape(-1, 64), train_labels)

nodes, weights, x = [helper.make_node("Flatten", ["image"], ["x"])], {}, "x"
for layer, (matrix, bias) in enumerate(zip(network.coefs_, network.intercepts_, strict=True)):
    weights |= {f"w{layer}": np.float32(matrix), f"b{layer}": np.float32(bias)}
    nodes.append(helper.make_node("Gemm", [x, f"w{layer}", f"b{layer}"], [f"dense{layer}"], f"dense{layer}"))
    x = f"relu{layer}"
    nodes.append(helper.make_node("Relu", [f"dense{layer}"], [x]))
graph = helper.make_graph(
    nodes[:-1],
    "digits",
    [helper.make_tensor_value_info("image", 1, [None, 1, 8, 8])],
    [helper.make_tensor_value_info(f"dense{layer}", 1, [None, 10])],
    [numpy_helper.from_array(value, name) for name, value in weights.items()],
)
onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), "digits.onnx")


def accuracy(model):
    """Return the share of test images that the model classifies correctly."""
    return float((model(images).argmax(axis=1) == labels).mean())


result = quaver.fit("digits.onnx", eval_func=accuracy, relative=0.01)
print(result)
for name, pick in result.best.config.items():
    print(f"{name}: {pick}")
