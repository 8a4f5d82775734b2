"""Outputs of every kind: boxes that come and go, maps, texts. `auto`, diagnose and profile run all the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import quaver

RNG = np.random.default_rng(3)
IMAGES = RNG.standard_normal((6, 1, 4, 8, 8)).astype(np.float32)
ROWS = RNG.standard_normal((24, 8)).astype(np.float32)


def weight(name: str, *shape: int) -> TensorProto:
    scale = np.sqrt(2 / np.prod(shape[1:]))
    return numpy_helper.from_array((np.random.default_rng(len(name)).standard_normal(shape) * scale).astype("f4"), name)


def model(nodes: list[Any], inputs: list[Any], outputs: list[Any], constants: list[TensorProto]) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "net", inputs, outputs, constants)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def detector() -> onnx.ModelProto:
    """How many boxes are left depends on the picture."""
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "w1"], ["a"], "conv1", pads=[1, 1, 1, 1]), node("Relu", ["a"], ["b"], "relu"),
        node("Conv", ["b", "w22"], ["c"], "conv2"), node("Reshape", ["c", "flat"], ["d"], "reshape"),
        node("Split", ["d", "parts"], ["boxes4", "score1"], "split", axis=1),
        node("Transpose", ["boxes4"], ["boxes"], "turn", perm=[0, 2, 1]),
        node("NonMaxSuppression", ["boxes", "score1", "many", "overlap", "least"], ["kept"], "nms"),
    ]  # fmt: skip
    constants = [
        weight("w1", 8, 4, 3, 3), weight("w22", 5, 8, 1, 1), numpy_helper.from_array(np.array([1, 5, 64]), "flat"),
        numpy_helper.from_array(np.array([4, 1]), "parts"), numpy_helper.from_array(np.array([20]), "many"),
        numpy_helper.from_array(np.array([0.5], np.float32), "overlap"),
        numpy_helper.from_array(np.array([0.2], np.float32), "least"),
    ]  # fmt: skip
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4, 8, 8])]
    outputs = [
        helper.make_tensor_value_info("kept", TensorProto.INT64, [None, 3]),
        helper.make_tensor_value_info("boxes", TensorProto.FLOAT, [1, 64, 4]),
    ]
    return model(nodes, inputs, outputs, constants)


def classifier(*, numbers: bool) -> onnx.ModelProto:
    """As scikit-learn's exporter ends them: a text for each row, and a list of maps; `numbers` adds an array."""
    node = helper.make_node
    nodes = [
        node("MatMul", ["x", "w1"], ["a"], "first"), node("Relu", ["a"], ["b"], "relu"),
        node("MatMul", ["b", "w22"], ["c"], "second"), node("Softmax", ["c"], ["p"], "softmax"),
        node("ArgMax", ["p"], ["at"], "argmax", axis=1, keepdims=0),
        node("LabelEncoder", ["at"], ["label"], "names", domain="ai.onnx.ml", keys_int64s=[0, 1, 2],
             values_strings=["cat", "dog", "owl"]),
        node("ZipMap", ["p"], ["maps"], "zip", domain="ai.onnx.ml", classlabels_strings=["cat", "dog", "owl"]),
    ]  # fmt: skip
    maps = helper.make_value_info(
        "maps", helper.make_sequence_type_proto(
            helper.make_map_type_proto(TensorProto.STRING, helper.make_tensor_type_proto(TensorProto.FLOAT, []))
        )
    )  # fmt: skip
    outputs = [helper.make_tensor_value_info("label", TensorProto.STRING, [None]), maps]
    if numbers:
        outputs.append(helper.make_tensor_value_info("p", TensorProto.FLOAT, [None, 3]))
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 8])]
    return model(nodes, inputs, outputs, [weight("w1", 8, 16), weight("w22", 16, 3)])


def same_boxes(fp32: list[Any]) -> Any:
    def score(built: quaver.Model) -> float:
        found = [built(image)[0] for image in IMAGES]
        return float(np.mean([1.0 - abs(len(a) - len(b)) / max(len(a), 1) for a, b in zip(fp32, found, strict=True)]))

    return score


def test_a_detector_whose_boxes_come_and_go_is_tuned(tmp_path: Path) -> None:
    import onnxruntime as ort

    net = detector()
    session = ort.InferenceSession(net.SerializeToString())
    fp32 = [session.run(None, {"x": image})[0] for image in IMAGES]
    assert len({len(boxes) for boxes in fp32}) > 1
    result = quaver.fit(
        net,
        calib_dataloader=list(IMAGES),
        eval_func=same_boxes(fp32),
        absolute=0.2,
        threads=1,
        workspace=tmp_path / "w",
    )
    assert result.best is not None and result.best.config.quantized_ops
    found = quaver.diagnose(net, result, list(IMAGES), timing=False)
    assert {row.op for row in found.activations} >= {"conv1", "conv2"}
    assert quaver.profile(net, calib_dataloader=list(IMAGES), runs=2, warmup=1).rows


@pytest.mark.parametrize("numbers", [True, False])
def test_texts_and_maps_among_the_outputs_are_left_out_of_the_error(numbers: bool, tmp_path: Path) -> None:
    net = classifier(numbers=numbers)

    def score(built: quaver.Model) -> float:
        labels = built(ROWS)[0]
        return float(np.mean([text in ("cat", "dog", "owl") for text in np.asarray(labels).ravel()]))

    result = quaver.fit(net, calib_dataloader=ROWS, eval_func=score, threads=1, workspace=tmp_path / "w")
    assert result.met and result.best is not None and result.best.config.quantized_ops
    notes = quaver.read_snapshot(result.history_path).notes["probe.output_error.parts"]
    assert all(0 < error < 0.1 for error in notes.values())
