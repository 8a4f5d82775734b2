"""Outputs that moved away from the float model's are noticed, whatever the score says."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from networks import chain, inputs
from onnx import TensorProto, helper
from sample_scores import MODEL, SETTINGS

import quaver
from quaver.command import main
from quaver.command.json_records import result_to_dict
from quaver.engine.inspection.output_drift import NOTE, OutputComparison, compare_output, drift_of
from quaver.history import History
from quaver.insights import FollowedRun, write_report
from quaver.insights.data.summary import verdict

RNG = np.random.default_rng(0)


def compared(expected: Any, actual: Any) -> OutputComparison:
    """Compare one batch."""
    item = compare_output(0, [expected], [actual], [len(expected)])
    assert item is not None
    return item


def softmax(values: Any) -> Any:
    return np.exp(values) / np.exp(values).sum(axis=-1, keepdims=True)


def test_the_relative_error_is_that_of_the_norms_over_all_batches() -> None:
    batches = [RNG.standard_normal((8, 5)).astype(np.float32) for _ in range(3)]
    noisy = [batch + np.float32(0.01) for batch in batches]
    item = compare_output(2, batches, noisy, [8, 8, 8])
    whole = np.concatenate(batches).astype(np.float64)
    assert item is not None and item.index == 2
    assert item.relative_error == pytest.approx(0.01 * math.sqrt(whole.size) / np.linalg.norm(whole), rel=1e-3)
    assert item.float_mean == pytest.approx(whole.mean()) and item.quantized_mean == pytest.approx(whole.mean() + 0.01)


def test_class_scores_are_recognised_and_their_top1_agreement_counted() -> None:
    logits = RNG.standard_normal((20, 10))
    other = logits.copy()
    other[:3] = -other[:3]
    assert compared(logits, other).agreement == 0.85
    images = np.moveaxis(softmax(RNG.standard_normal((2, 4, 4, 3))), -1, 1)  # segmentation, channels first
    assert compared(images, images).agreement == 1.0
    assert compared(softmax(RNG.standard_normal((2, 7, 5))), softmax(RNG.standard_normal((2, 7, 5)))).agreement < 1.0


def test_what_is_no_prediction_has_no_agreement() -> None:
    embedding = RNG.standard_normal((6, 16))
    embedding /= np.linalg.norm(embedding, axis=1, keepdims=True)
    for values in (embedding, RNG.standard_normal((6, 1)), RNG.standard_normal((6, 4, 9)), RNG.standard_normal(6)):
        item = compared(values, values)
        assert item.agreement is None and item.relative_error == 0.0


def test_labels_and_texts_agree_or_not() -> None:
    assert compared(np.array([1, 2, 3, 4]), np.array([1, 2, 3, 5])).agreement == 0.75
    item = compared(np.array([["cat"], ["dog"]]), np.array([["cat"], ["cow"]]))
    assert item.agreement == 0.5 and item.relative_error is None and item.is_far_off


def test_maps_and_outputs_whose_shape_depends_on_the_data_are_left_out() -> None:
    assert compare_output(0, [[{"a": 0.5}]], [[{"a": 0.4}]], [1]) is None
    assert compare_output(0, [np.zeros((3, 4))], [np.zeros((2, 4))], [1]) is None
    assert compare_output(0, [np.zeros((0, 4))], [np.zeros((0, 4))], [1]) is None


def test_an_output_that_is_not_finite_any_more_is_as_far_off_as_can_be() -> None:
    item = compared(np.ones((2, 2)), np.array([[1.0, np.nan], [1.0, 1.0]]))
    assert item.relative_error == math.inf and item.is_far_off


@pytest.mark.parametrize(
    ("item", "far_off"),
    [
        (OutputComparison(0, 0.17, 1.0), False),
        (OutputComparison(0, 0.31, 1.0), True),
        (OutputComparison(0, 0.05, 0.5), False),  # near-ties
        (OutputComparison(0, 0.15, 0.89), True),
        (OutputComparison(0, 0.15, 0.90), False),
        (OutputComparison(0, 0.2, None, 0.57, 0.45, True), True),  # a mean probability that moved by 0.12
        (OutputComparison(0, 0.2, None, 0.57, 0.50, True), False),
        (OutputComparison(0, 0.2, None, 57.0, 45.0, False), False),
    ],
)
def test_what_is_far_off(item: OutputComparison, far_off: bool) -> None:
    assert item.is_far_off is far_off


def detector() -> onnx.ModelProto:
    """The network with two planted outliers, and a probability at its end: the mean of its outputs behind a Sigmoid."""
    model = onnx.ModelProto()
    model.CopyFrom(MODEL)
    last = model.graph.output[0].name
    model.graph.node.append(helper.make_node("ReduceMean", [last], ["mean"], "mean", axes=[1], keepdims=1))
    model.graph.node.append(helper.make_node("Sigmoid", ["mean"], ["probability"], "probability"))
    del model.graph.output[:]
    model.graph.output.append(helper.make_tensor_value_info("probability", TensorProto.FLOAT, ["n", 1]))
    return model


def tune(folder: Path, model: onnx.ModelProto, **settings: Any) -> quaver.TuneResult:
    """Tune with a score that sees no values, as a rank metric may not."""
    arguments = {**SETTINGS, "workspace": folder, "eval_func": lambda model: 1.0, "objective": "int8_ops", **settings}
    return quaver.fit(model, calib_dataloader=inputs(), **arguments)


def test_a_score_that_sees_no_values_does_not_hide_the_drift(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    result = tune(folder, MODEL)
    drift = result.output_drift
    assert result.met and drift is not None and drift.samples == 32 and drift.relative_error is not None
    assert drift.relative_error > 0.3 and drift.top1_agreement is not None
    (warning,) = result.warnings
    assert "the output is far from the float model's on 32 calibration samples" in warning
    assert f"relative error {drift.relative_error:.3g}" in warning
    assert f"outputs vs fp32: relative error {drift.relative_error:.3g}, top-1 agreement" in str(result)
    assert result_to_dict(result)["output_drift"]["relative_error"] == drift.relative_error
    data = FollowedRun(folder).poll()
    assert data is not None
    shown = verdict(data)
    assert shown.kind == "warned" and shown.warnings == result.warnings
    facts = {fact.label: fact.value for fact in shown.facts}
    assert facts["relative error"] == f"{drift.relative_error:.3g}" and facts["top-1 agreement"].endswith("%")
    assert "far from the float model" in write_report(folder, tmp_path / "report.html").read_text()
    capsys.readouterr()
    for words in (["history", str(folder)], ["show", str(folder), "best"]):
        assert main.main(words) == 0
        out = capsys.readouterr().out
        assert f"WARNING: {warning}" in out and "outputs vs fp32: relative error" in out
        assert main.main([*words, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["output_drift"]["samples"] == 32


def test_a_mean_probability_that_moved_is_told_with_both_means(tmp_path: Path) -> None:
    result = tune(tmp_path / "run", detector())
    assert result.output_drift is not None
    (item,) = result.output_drift.outputs
    assert item.is_probability and item.agreement is None and item.float_mean is not None
    model = detector()
    expected = quaver.recover(model, result.history_path, 0)(inputs()[:32])
    assert item.float_mean == pytest.approx(float(expected.mean()), rel=1e-5)
    actual = quaver.recover(model, result.history_path, 1)(inputs()[:32])
    assert item.quantized_mean == pytest.approx(float(actual.mean()), rel=1e-5)
    assert item.relative_error == pytest.approx(np.linalg.norm(expected - actual) / np.linalg.norm(expected), rel=1e-4)


def test_a_good_model_has_a_small_drift_and_no_warning(tmp_path: Path) -> None:
    result = tune(tmp_path / "run", chain(3), op_type_dict={})
    drift = result.output_drift
    assert drift is not None and drift.relative_error is not None and drift.relative_error < 0.1
    assert result.warnings == ()


def test_labels_computed_in_the_model_are_compared_too(tmp_path: Path) -> None:
    model = onnx.ModelProto()
    model.CopyFrom(MODEL)
    model.graph.node.append(helper.make_node("ArgMax", [model.graph.output[0].name], ["label"], "label", axis=1))
    model.graph.output.append(helper.make_tensor_value_info("label", TensorProto.INT64, ["n", 1]))
    result = tune(tmp_path / "run", model)
    assert result.output_drift is not None
    scores, labels = result.output_drift.outputs
    assert labels.relative_error is None and labels.agreement == scores.agreement == result.output_drift.top1_agreement
    assert "the worst of 2 outputs" in str(result)


def test_it_is_measured_once_and_a_resumed_run_without_samples_knows_it(tmp_path: Path) -> None:
    first = tune(tmp_path / "run", MODEL)
    size = first.history_path.stat().st_size
    again = quaver.fit(MODEL, eval_func=lambda model: 1.0, resume=first.workspace, verbose=0)
    assert again.output_drift == first.output_drift and first.history_path.stat().st_size - size < 20_000


def test_without_eval_func_the_drift_is_told_too(tmp_path: Path) -> None:
    result = tune(tmp_path / "run", MODEL, eval_func=None)
    assert result.met is None and result.output_drift is not None and len(result.warnings) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"outputs": 3},
        {"outputs": [4]},
        {"outputs": [{"index": 0, "relative_error": "x", "agreement": None, "float_mean": None}]},
        {"samples": -1},
        {"trial": 99},
        {"fingerprint": "another"},
    ],
)
def test_a_note_that_is_not_as_it_should_be_is_left_out(tmp_path: Path, change: dict[str, Any]) -> None:
    result = tune(tmp_path / "run", MODEL)
    with History.resume(result.workspace) as history:
        history.note(NOTE, {**history.notes[NOTE], **change})
        assert drift_of(history.notes, result.best) is None
    data = FollowedRun(result.workspace).poll()
    assert data is not None and verdict(data).headline
