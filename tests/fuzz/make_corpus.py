"""Write the small valid files that fuzzing starts from: `python tests/fuzz/make_corpus.py`."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

HERE = Path(__file__).parent
RNG = np.random.default_rng(0)


def model(nodes: list[onnx.NodeProto], constants: dict[str, np.ndarray], shape: list[int | str]) -> onnx.ModelProto:
    """A model from `x` to the last node's output."""
    ends = [helper.make_tensor_value_info("x", 1, shape), helper.make_tensor_value_info(nodes[-1].output[0], 1, None)]
    inside = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], inside)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def some(*shape: int) -> np.ndarray:
    """Random numbers."""
    return RNG.standard_normal(shape).astype(np.float32)


def convolutions() -> onnx.ModelProto:
    """Conv, BatchNormalization, Relu, a constant in a node, a reshape."""
    nodes = [
        helper.make_node("Conv", ["x", "k"], ["a"], "conv", pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["a", "s", "s", "s", "s"], ["b"], "norm"),
        helper.make_node("Clip", ["b", "low"], ["c"], "clip"),
        helper.make_node("Constant", [], ["shape"], "shape", value=numpy_helper.from_array(np.array([0, -1]), "v")),
        helper.make_node("Reshape", ["c", "shape"], ["d"], "flat"),
        helper.make_node("MatMul", ["d", "w"], ["e"], "product"),
        helper.make_node("Add", ["e", "bias"], ["y"], "add"),
    ]
    low = np.zeros((), np.float32)
    constants = {"k": some(2, 1, 3, 3), "s": np.abs(some(2)) + 1, "low": low, "w": some(32, 3), "bias": some(3)}
    return model(nodes, constants, ["n", 1, 4, 4])


def sparse() -> onnx.ModelProto:
    """A sparse constant, and one that lies outside."""
    made = model([helper.make_node("Gemm", ["x", "w", "b"], ["y"], "gemm")], {}, ["n", 4])
    entry = made.graph.sparse_initializer.add()
    entry.dims.extend([4, 4])
    entry.values.CopyFrom(numpy_helper.from_array(some(3), "w"))
    entry.indices.CopyFrom(numpy_helper.from_array(np.array([0, 5, 9]), "i"))
    outside = made.graph.initializer.add(name="b", data_type=1, dims=[4], data_location=1)
    for key, value in (("location", "setup.cfg"), ("offset", "16"), ("length", "16")):
        outside.external_data.add(key=key, value=value)
    return made


def branches() -> onnx.ModelProto:
    """An If with two bodies behind a Gemm, in an old opset."""
    out = helper.make_tensor_value_info("o", 1, None)
    bodies = [helper.make_graph([helper.make_node(kind, ["h"], ["o"])], kind, [], [out]) for kind in ("Relu", "Tanh")]
    nodes = [
        helper.make_node("Gemm", ["x", "w"], ["h"], "gemm"),
        helper.make_node("If", ["flag"], ["y"], "if", then_branch=bodies[0], else_branch=bodies[1]),
    ]
    made = model(nodes, {"w": some(4, 4), "flag": np.array(True)}, [1, 4])
    made.opset_import[0].version = 11
    return made


def tflite() -> bytes:
    """A convolution and a dense layer."""
    import keras
    from keras import layers

    x = keras.Input((4, 4, 1), batch_size=1)
    return _converted(x, layers.Dense(3)(layers.Flatten()(layers.Conv2D(2, 3, activation="relu")(x))))


def tflite_blocks() -> bytes:
    """Depthwise and transposed convolutions, pools, a branch and its sum, a softmax over products, an LSTM."""
    import keras
    from keras import layers

    x = keras.Input((4, 4, 2), batch_size=1)
    y = layers.DepthwiseConv2D(3, padding="same", activation="relu6")(x)
    y = layers.Concatenate()([layers.Add()([x, y]), layers.Conv2DTranspose(2, 3, padding="same")(x)])
    y = layers.Reshape((4, 4))(layers.AveragePooling2D(2)(y))
    y = layers.LSTM(3)(layers.Attention()([y, layers.Dense(4, activation="sigmoid")(y)]))
    return _converted(x, layers.Dense(2, activation="softmax")(y))


def _converted(x: Any, y: Any) -> bytes:
    import keras
    import tensorflow as tf

    return bytes(tf.lite.TFLiteConverter.from_keras_model(keras.Model(x, y)).convert())


SETTINGS = """\
version: 1.0
model: {name: m, framework: onnxrt}
quantization:
  calibration: {sampling_size: [100, 200]}
  op_name_dict:
    "layer.0/.*": &float {activation: {dtype: [fp32]}, weight: {dtype: ["fp32"]}}
    "head": fp32
  op_type_dict: {Conv: {activation: {algorithm: [minmax]}}, Gemm: *float}
tuning:
  strategy: {name: basic, options: {}}
  accuracy_criterion: {relative: 1e-2, higher_is_better: true}
  exit_policy: {timeout: 0, max_trials: 10}
  random_seed: 9527
  workspace: ~/here
"""


def main() -> None:
    """Write all of them."""
    files = {
        "onnx/convolutions": convolutions().SerializeToString(deterministic=True),
        "onnx/sparse": sparse().SerializeToString(deterministic=True),
        "onnx/branches": branches().SerializeToString(deterministic=True),
        "litert/convolution": tflite(),
        "litert/blocks": tflite_blocks(),
        "settings/layout": SETTINGS.encode(),
        "settings/names": b"strategy: basic\nrelative: .02\nmax_trials: 3\nobjective: size\n",
    }
    for name, content in files.items():
        path = HERE / "corpus" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    (HERE / "corpus" / "snapshot").mkdir(exist_ok=True)
    for name in ("schema1", "schema2"):
        shutil.copy(HERE.parent / "history" / "data" / f"{name}.snapshot", HERE / "corpus" / "snapshot" / name)


if __name__ == "__main__":
    main()
