"""What stands for infinity, as masks hold it, is never quantized with real values."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from forms import f1, forms
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_static

import quaver
from quaver.adapters import AdapterOptions, load_model

TAGGER = Path(__file__).parents[1] / "data" / "layout_tagger.onnx"


def score(model):
    inputs, tags = forms(200, 7)
    return f1(np.asarray(model(inputs)).argmax(-1), tags)


def test_a_mask_is_no_op_wherever_it_is_added():
    adapter = load_model(TAGGER, AdapterOptions())
    names = {op.name for op in adapter.ops()}
    assert "/layoutlmv3/encoder/layer.0/attention/self/Add" in names  # of biases by place
    assert not any("attention/self/Add_1" in name or name == "/layoutlmv3/Mul" for name in names)
    adapter.close()


def test_auto_finds_the_ops_with_far_channels_in_three_evaluations(tmp_path):
    result = quaver.fit(
        TAGGER, calib_dataloader=forms(64, 5)[0], eval_func=score, threads=1, workspace=tmp_path / "run", verbose=0
    )
    assert result.met and result.evaluations <= 3


def additive():
    """Scores and a mask that the caller gives, added with a Mul, a Sub and a ReduceMax before the Softmax."""
    rng = np.random.default_rng(0)
    constants = {
        "w": rng.normal(size=(8, 8)).astype(np.float32), "half": np.array(0.5, np.float32),
        "v": rng.normal(size=(8, 8)).astype(np.float32),
    }  # fmt: skip
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["scores"], "scores"),
        helper.make_node("Add", ["scores", "mask"], ["masked"], "masked"),
        helper.make_node("Mul", ["masked", "half"], ["scaled"], "scaled"),
        helper.make_node("ReduceMax", ["scaled"], ["largest"], "largest", axes=[-1]),
        helper.make_node("Sub", ["scaled", "largest"], ["small"], "small"),
        helper.make_node("Softmax", ["small"], ["weights"], "weights"),
        helper.make_node("MatMul", ["weights", "v"], ["y"], "out"),
    ]
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 8, 8]) for name in ("x", "mask")]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 8, 8])
    graph = helper.make_graph(
        nodes, "masked", inputs, [output], [numpy_helper.from_array(array, name) for name, array in constants.items()]
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def given(infinity):
    """Inputs whose mask hides some places."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(16, 8, 8)).astype(np.float32)
    mask = np.where(rng.random(size=(16, 1, 8)) < 0.3, np.float32(infinity), np.float32(0)).repeat(8, 1)
    return {"x": x, "mask": mask.astype(np.float32)}


@pytest.mark.parametrize("infinity", [-1e4, -1e9, -3.4e38])
def test_a_mask_that_is_given_is_seen_in_calibration(infinity, tmp_path):
    data = given(infinity)
    result = quaver.fit(
        additive(), calib_dataloader=data, strategy="basic", workspace=tmp_path / "run", verbose=0, threads=1
    )
    assert {"scores", "out"} <= set(result.best.config.quantized_ops)
    assert "masked" in result.best.config.fp32_ops
    expected = load_model(additive(), AdapterOptions()).build(None)(data)
    assert np.abs(result.model(data) - expected).max() < 0.1 * np.abs(expected).max()
    again = quaver.recover(additive(), result.history_path, 1)
    assert again.sha256 == result.best.model_hash


def test_outliers_are_no_stand_ins_for_infinity(tmp_path):
    rng = np.random.default_rng(1)
    x = rng.normal(size=(32, 8, 8)).astype(np.float32)
    mask = rng.normal(size=(32, 8, 8)).astype(np.float32)
    mask[..., 0] *= 2000
    adapter = load_model(additive(), AdapterOptions())
    adapter.calibrate({"x": x, "mask": mask})
    assert adapter.ops_with_mask_values == ()
    adapter.close()


class Reader(CalibrationDataReader):
    def __init__(self, inputs):
        self._feeds = iter([inputs])

    def get_next(self):
        return next(self._feeds, None)


def test_diagnosis_names_it_as_a_cause_in_files_of_others(tmp_path):
    data = given(-1e9)
    onnx.save(additive(), tmp_path / "float.onnx")
    quantize_static(tmp_path / "float.onnx", tmp_path / "ort.onnx", Reader(data), quant_format=QuantFormat.QDQ)
    found = quaver.diagnose(tmp_path / "float.onnx", tmp_path / "ort.onnx", data, timing=False)
    (told,) = [cause for cause in found.causes if cause.kind == "sentinel"]
    assert told.op == "masked" and "all real values fall into one" in told.sentence
    assert told.rules["masked"] == "fp32"


def test_diagnosis_says_why_the_op_stays_in_fp32():
    found = quaver.diagnose(additive(), calib_dataloader=given(-1e9), timing=False)
    (told,) = [cause for cause in found.causes if cause.kind == "sentinel"]
    assert told.op == "masked" and "stays in fp32" in told.sentence and not told.rules


def test_a_mask_that_takes_the_type_of_the_scores_is_no_op():
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["scores"], "scores"),
        helper.make_node("Where", ["hidden", "never", "zero"], ["bias"], "bias"),
        helper.make_node("CastLike", ["bias", "scores"], ["mask"], "mask"),
        helper.make_node("Add", ["scores", "mask"], ["masked"], "masked"),
        helper.make_node("Identity", ["masked"], ["y"], "out"),
    ]
    constants = {
        "w": np.eye(8, dtype=np.float32),
        "never": np.array(-np.inf, np.float16),
        "zero": np.array(0, np.float16),
    }
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 8]),
        helper.make_tensor_value_info("hidden", TensorProto.BOOL, ["n", 8]),
    ]
    graph = helper.make_graph(
        nodes, "masked", inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 8])],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    adapter = load_model(model, AdapterOptions())
    assert [op.name for op in adapter.ops()] == ["scores"]
    adapter.calibrate([{"x": np.ones((2, 8), np.float32), "hidden": np.eye(8, dtype=bool)[:2]}])
    adapter.close()
