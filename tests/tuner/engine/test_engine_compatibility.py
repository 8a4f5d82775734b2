"""Which ops a run found is recorded, and follows from older runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import quaver
from quaver.engine.compatibility import ops_version_of
from quaver.history import Header, read_snapshot


def header(**calibration: Any) -> Header:
    return Header("fingerprint", "onnxrt", (), {"ranges": {}, **calibration}, "2025-01-31T12:00:00+00:00")


@pytest.mark.parametrize(
    ("calibration", "settings", "expected"),
    [
        ({}, {}, 1),
        ({}, {"optimise_float": False}, 1),
        ({}, {"optimise_float": True}, 2),
        ({"ops_version": 2}, {"optimise_float": False}, 2),
        ({"ops_version": 1}, {"optimise_float": True}, 1),
        ({"ops_version": "2"}, {}, 1),
        ({"ops_version": 99}, {}, 1),
    ],
)
def test_runs_without_a_recorded_version_follow_optimise_float(
    calibration: dict[str, Any], settings: dict[str, Any], expected: int
) -> None:
    assert ops_version_of(header(**calibration), settings) == expected


def test_a_new_run_has_the_newest_ops() -> None:
    assert ops_version_of(None, {}) == 4


def test_the_version_of_the_ops_does_not_count_as_calibration() -> None:
    assert not header(ops_version=2).calibrated


def test_without_rewrites_a_run_has_all_ops_and_is_recovered_with_them(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    weights = {"w": rng.normal(size=(4, 3, 3, 3)), "v": rng.normal(size=(4, 4, 3, 3))}
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["x", "w"], ["a"], name="first"),
            helper.make_node("Pad", ["a", "pads"], ["b"], name="pad"),
            helper.make_node("Conv", ["b", "v"], ["y"], name="last"),
        ],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 4, 6, 6])],
        [
            *(numpy_helper.from_array(array.astype(np.float32), name) for name, array in weights.items()),
            numpy_helper.from_array(np.array([0, 0, 1, 1, 0, 0, 1, 1]), "pads"),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    images = np.random.default_rng(0).random((16, 3, 8, 8), dtype=np.float32)
    result = quaver.fit(
        model, calib_dataloader=[images[:2]], eval_func=lambda model: 1.0, optimise_float=False, strategy="basic",
        objective="size", max_trials=1, workspace=tmp_path / "run", report=False, verbose=0,
    )  # fmt: skip
    snapshot = read_snapshot(result.workspace)
    assert snapshot.header.calibration["ops_version"] == 4
    assert [op.name for op in snapshot.header.ops] == ["first", "pad", "last"]
    assert result.best is not None
    assert quaver.recover(model, result.workspace, result.best.number).sha256 == result.best.model_hash
