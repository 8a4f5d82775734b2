"""An op of one branch of a detector disturbs that branch, and diagnosis, page and report say so."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "adapters" / "onnxrt"))

from onnx_models import Net, opened, space, weight

from quaver.adapters.onnxrt.adapter import OnnxAdapter
from quaver.engine.inspection.diagnose import DiagnosisOptions, examine
from quaver.engine.inspection.part_errors import MAX_OPS, most_sensitive, part_errors
from quaver.engine.observers import silent
from quaver.formatting import disturbed_parts
from quaver.ops import QuantConfig

BOXES, SCORES = "output 0, 0-3 of axis 1", "output 0, 4-15 of axis 1 (scores)"


def detector() -> onnx.ModelProto:
    """Boxes in pixels and scores of twelve classes, joined in one output as YOLO does."""
    net = Net()
    x = net.Relu(net.Conv(net.input(None, 4, 16, 16), weight(8, 4, 3, 3), name="trunk"))
    boxes = net.Conv(x, 300 * weight(4, 8, 1, 1, seed=1), name="boxes")
    scores = net.Sigmoid(net.Conv(x, weight(12, 8, 1, 1, seed=2), name="classes"), name="sigmoid")
    return net.model(net.Concat(boxes, scores, axis=1))


@pytest.fixture
def adapter() -> Iterator[OnnxAdapter]:
    with opened(detector()) as adapter:
        yield adapter


def config_of(adapter: OnnxAdapter) -> QuantConfig:
    ops = space(adapter)
    return ops.float_config().replace(
        {name: ops.default_config()[name] for name in ("trunk", "boxes", "classes", "sigmoid")}
    )


def test_the_parts_that_an_op_disturbs_are_told(adapter: OnnxAdapter) -> None:
    errors = part_errors(adapter, config_of(adapter), ["boxes", "classes", "trunk"])
    assert set(errors["boxes"]) == {BOXES, SCORES}
    assert disturbed_parts(errors["boxes"]) == f"{BOXES}, not {SCORES}"
    assert disturbed_parts(errors["classes"]) == f"{SCORES}, not {BOXES}"
    assert errors["trunk"][BOXES] > 0 and errors["trunk"][SCORES] > 0


def test_ops_in_fp32_and_outputs_of_one_part_have_none(adapter: OnnxAdapter) -> None:
    config = config_of(adapter)
    assert part_errors(adapter, config.fallback("boxes"), ["boxes"]) == {}
    assert part_errors(adapter, None, ["boxes"]) == {}
    net = Net()
    with opened(net.model(net.Conv(net.input(None, 4, 8, 8), weight(4, 4, 3, 3), name="op"))) as other:
        assert part_errors(other, space(other).default_config(), ["op"]) == {}


def test_a_diagnosis_says_what_an_op_disturbs(adapter: OnnxAdapter) -> None:
    config = config_of(adapter)
    options = DiagnosisOptions(timing=False, sensitive=["classes"])
    diagnosis = examine(adapter, adapter.inspect_quantized(config), config, None, options, silent)
    assert list(diagnosis.part_errors) == ["classes"]
    assert f"- classes disturbs {SCORES}, not {BOXES}" in str(diagnosis)
    assert diagnosis.to_dict()["part_errors"]["classes"][SCORES] > 0


def test_the_most_sensitive_ops_come_from_the_history() -> None:
    with opened(detector()) as adapter:
        config = config_of(adapter)
    noted = {f"boxes {config['boxes']}": 0.5, f"classes {config['classes']}": 0.9, "trunk another choice": 3.0}
    assert most_sensitive({"probe.sensitivity.parts": noted}, config) == ["classes", "boxes"]
    assert most_sensitive({}, config) == [] and MAX_OPS >= 2


def test_parts_with_similar_errors_are_not_told_apart() -> None:
    assert disturbed_parts({"a": 1.0, "b": 0.5}) == ""
    assert disturbed_parts({}) == ""
    assert disturbed_parts({"a": np.inf, "b": 0.5}) == "a, not b"
