"""What is tuned is what was given: compared end to end and recorded; the same in workers, resumed and recovered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import quaver
from quaver.errors import ModelError

RNG = np.random.default_rng(0)


def normalized_by_a_cube() -> onnx.ModelProto:
    """Two products around what ONNX Runtime's own optimiser takes for a LayerNormalization, which it is not."""
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["h"], "first"),
        helper.make_node("ReduceMean", ["h"], ["m"], "mean", axes=[-1]),
        helper.make_node("Sub", ["h", "m"], ["d"], "difference"),
        helper.make_node("Pow", ["d", "three"], ["p"], "cube"),
        helper.make_node("ReduceMean", ["p"], ["v"], "variance", axes=[-1]),
        helper.make_node("Add", ["v", "epsilon"], ["e"], "stabilised"),
        helper.make_node("Sqrt", ["e"], ["s"], "root"),
        helper.make_node("Div", ["d", "s"], ["n"], "division"),
        helper.make_node("Mul", ["n", "gamma"], ["g"], "scaled"),
        helper.make_node("Add", ["g", "beta"], ["b"], "shifted"),
        helper.make_node("MatMul", ["b", "w2"], ["y"], "second"),
    ]
    constants = {
        "w1": RNG.normal(size=(8, 8)), "w2": RNG.normal(size=(8, 4)), "three": 3, "epsilon": 50,
        "gamma": RNG.normal(size=8), "beta": RNG.normal(size=8),
    }  # fmt: skip
    graph = helper.make_graph(
        nodes,
        "cube",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(value, np.float32), name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


BATCHES = [RNG.normal(size=(4, 3, 8)).astype(np.float32) for _ in range(4)]


def closeness(model: Any) -> float:
    """A score that any model gets."""
    return 1.0 - float(np.abs(np.asarray(model(BATCHES[0]))).mean() < 0)


def tuned(path: Path, **settings: Any) -> quaver.TuneResult:
    return quaver.fit(
        str(path),
        calib_dataloader=BATCHES,
        eval_func=closeness,
        objective="int8_ops",
        max_trials=2,
        verbose=0,
        **settings,
    )


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_rewrite_that_is_left_out_is_left_out_everywhere(jobs: int, tmp_path: Path) -> None:
    path = tmp_path / "cube.onnx"
    onnx.save(normalized_by_a_cube(), path)
    result = tuned(path, workspace=str(tmp_path / "run"), n_jobs=jobs)
    assert result.comparison is not None
    assert result.comparison.left_out == ("runtime's basic level",) and result.comparison.batches == (1, 4)
    assert "left out, because they change it: runtime's basic level" in str(result)
    assert all(trial.error is None for trial in result.trials)
    assert result.best is not None and result.model_path is not None
    rebuilt = quaver.recover(str(path), result.history_path, result.best.number)
    assert rebuilt.SerializeToString() == result.model_path.read_bytes()
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    float_model = quaver.recover(str(path), result.history_path, 0).SerializeToString()
    expected, actual = (
        onnxruntime.InferenceSession(model, options).run(None, {"x": BATCHES[0]})[0]
        for model in (path.read_bytes(), float_model)
    )
    assert np.allclose(expected, actual, atol=1e-5, equal_nan=True)
    again = tuned(path, resume=str(result.history_path))
    assert again.comparison == result.comparison


def test_without_calibration_data_the_inputs_are_made_up(tmp_path: Path) -> None:
    path = tmp_path / "cube.onnx"
    onnx.save(normalized_by_a_cube(), path)
    result = quaver.fit(str(path), workspace=str(tmp_path / "run"), verbose=0)
    assert result.comparison is not None and result.comparison.made_up
    assert "the float model equals the model as given" in str(result) and "made-up inputs" in str(result)


def test_a_model_that_a_conversion_changes_is_never_tuned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def convert_wrongly(model: onnx.ModelProto, opset: int) -> onnx.ModelProto:
        converted = onnx.ModelProto.FromString(model.SerializeToString())
        converted.opset_import[0].version = opset
        return converted

    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["x", "w"], ["c"], "conv"),
            helper.make_node("Softmax", ["c"], ["y"], "softmax", axis=1),
        ],
        "old",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(RNG.normal(size=(4, 3, 3, 3)).astype(np.float32), "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 11)], ir_version=7)
    monkeypatch.setattr(onnx.version_converter, "convert_version", convert_wrongly)
    calls = []
    with pytest.raises(ModelError, match="The first op whose result differs is Softmax 'softmax'"):
        quaver.fit(
            model,
            calib_dataloader=[RNG.normal(size=(2, 3, 8, 8)).astype(np.float32)],
            eval_func=calls.append,
            workspace=str(tmp_path / "run"),
            verbose=0,
        )
    assert not calls
