"""scikit-learn's logistic regression on irises: a model of traditional kind, whose second output are maps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper
from sklearn.datasets import load_iris

from benchmarks.models.bench import write
from benchmarks.models.fetch import Package

RUNTIME = Package(
    "pypi",
    "onnxruntime",
    "1.20.1",
    "5eec64c0269dcdb8d9a9a53dc4d64f87b9e0c19801d9321246a53b7eb5a7d1bc",
    platform="manylinux_2_27_x86_64",
    python="3.11",
)
CALIBRATION = 30


def iris_logreg(folder: Path) -> None:
    """Which of three irises has these measures?"""
    onnx.save(for_any_flower(RUNTIME.fetch() / "onnxruntime" / "datasets" / "logreg_iris.onnx"), folder / "model.onnx")
    measures, kinds = load_iris(return_X_y=True)
    order = np.random.default_rng(17).permutation(len(kinds))
    inputs = measures[order, None].astype(np.float32)
    calib, rest = {"float_input": inputs[:CALIBRATION]}, {"float_input": inputs[CALIBRATION:]}
    write(folder, calib, rest, kinds[order][CALIBRATION:])


def for_any_flower(path: Path) -> onnx.ModelProto:
    """The model with the four measures that its weights are for, where the file says two of three flowers."""
    model = onnx.load(path)
    del model.graph.input[:]
    model.graph.input.append(helper.make_tensor_value_info("float_input", TensorProto.FLOAT, ["flowers", 4]))
    for output in model.graph.output:
        if output.type.HasField("tensor_type"):
            output.type.tensor_type.ClearField("shape")
    return model
