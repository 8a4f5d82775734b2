"""Real networks: planted outliers are found in the right op and channel, and clean networks get no cause."""

from __future__ import annotations

import sys
from pathlib import Path

import onnx
import pytest

import quaver
from quaver.demo.data import digits
from quaver.demo.run import MODEL

sys.path.insert(0, str(Path(__file__).parents[2]))
from benchmarks.planted import CASES, plant
from benchmarks.planted import MODEL as CONV8

CONVOLUTIONS = [node.name for node in onnx.load(CONV8).graph.node if node.op_type == "Conv"]


def diagnosed(model: object, **rules: object) -> quaver.Diagnosis:
    return quaver.diagnose(model, None, digits()[0][:256], timing=False, threads=1, **rules)


@pytest.mark.parametrize("model", [MODEL, CONV8], ids=["demo", "conv8"])
def test_a_clean_network_has_no_causes(model: Path) -> None:
    found = diagnosed(model)
    assert not found.causes, str(found)


@pytest.mark.parametrize("case", ["W1", "W2"])
def test_planted_weights_are_found(case: str) -> None:
    found = diagnosed(plant(onnx.load(CONV8), CASES[case]), op_type_dict={"*": {"repairs": []}})
    behind = {CONVOLUTIONS[position + 1] for position in CASES[case].convolutions}
    assert {cause.op for cause in found.causes} == behind
    assert all(cause.kind == "weight_outlier" and "input channel 0 " in cause.sentence for cause in found.causes)
    assert found.rules == dict.fromkeys([cause.op for cause in found.causes], "fp32")


@pytest.mark.parametrize("case", ["A1", "A2"])
def test_planted_activations_are_found(case: str) -> None:
    found = diagnosed(plant(onnx.load(CONV8), CASES[case]), op_type_dict={"*": {"repairs": []}})
    both = {CONVOLUTIONS[position + step] for position in CASES[case].convolutions for step in (0, 1)}
    assert {cause.op for cause in found.causes} == both
    assert all(cause.kind == "outlier_channel" and "channel 0 of its" in cause.sentence for cause in found.causes)
    assert found.rules == dict.fromkeys(found.rules, "fp32") and set(found.rules) >= both


@pytest.mark.parametrize("case", ["W1", "W2", "A1", "A2"])
def test_smoothing_removes_planted_outliers(case: str) -> None:
    found = diagnosed(plant(onnx.load(CONV8), CASES[case]))
    behind = {CONVOLUTIONS[position + 1] for position in CASES[case].convolutions}
    assert {cause.op for cause in found.causes if cause.kind == "repairable"} == behind
