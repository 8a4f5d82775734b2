"""A real network that loses accuracy in int8: its tables in pandas, a rule, and the accuracy restored."""

from __future__ import annotations

import glob
import os
from pathlib import Path
from typing import Any

import pandas as pd

import quaver
from quaver.demo.data import Accuracy, digits
from quaver.demo.run import MODEL, RULES


def test_tables_read_by_pandas_lead_to_a_rule_that_restores_accuracy(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    train, _, images, labels = digits()
    eval_func, dataloader = Accuracy(images, labels), train[:256]
    settings: dict[str, Any] = {"op_type_dict": RULES, "strategy": "basic", "max_trials": 1, "threads": 1}
    shown = []
    display = shown.append

    result = quaver.fit(MODEL, calib_dataloader=dataloader, eval_func=eval_func, diagnosis=True, **settings)
    assert not result.met and result.best is not None and result.best.score is not None
    assert result.best.score < result.baseline - 0.05

    # As in the walk-through, with our workspace.
    subfolders = glob.glob("./quaver_workspace" + "/*/")
    subfolders.sort(key=os.path.getmtime, reverse=True)
    assert subfolders
    activations_table = os.path.join(subfolders[0], "activations_table.csv")
    weights_table = os.path.join(subfolders[0], "weights_table.csv")

    activations_table = pd.read_csv(activations_table)
    weights_table = pd.read_csv(weights_table)
    display(activations_table)
    display(weights_table)

    activations_table["Min-Max data range"] = activations_table["Activation max"] - activations_table["Activation min"]
    sorted_data = activations_table.sort_values(by="Min-Max data range", ascending=False)
    display(sorted_data)
    weights_table["Min-Max data range"] = weights_table["Input model max"] - weights_table["Input model min"]
    worst = weights_table.sort_values(by="Min-Max data range", ascending=False)["OP name"].head(7)

    assert [len(table) for table in shown] == [30, 24, 30]
    assert activations_table["MSE"].is_monotonic_decreasing and weights_table["MSE"].is_monotonic_decreasing
    assert (sorted_data["Min-Max data range"] >= 0).all()
    assert all("/depthwise/" in name for name in worst)

    op_name_dict = {r"/features/features.\d+/depthwise/.*": quaver.FP32}
    again = quaver.fit(MODEL, calib_dataloader=dataloader, eval_func=eval_func, op_name_dict=op_name_dict, **settings)
    assert again.met and again.best is not None and len(again.best.config.fp32_ops) == 7


def test_the_longer_form_of_a_rule_keeps_one_op_in_fp32(tmp_path: Path) -> None:
    train, _, images, labels = digits()
    op_name_dict = {"/features/features.5/depthwise/depthwise.0/Conv": {"activation": {"dtype": ["fp32"]}}}
    result = quaver.fit(
        MODEL, calib_dataloader=train[:128], eval_func=Accuracy(images, labels), diagnosis=True, max_trials=1,
        op_name_dict=op_name_dict, op_type_dict=RULES, strategy="basic", workspace=tmp_path / "run", threads=1,
    )  # fmt: skip
    assert result.best is not None and set(op_name_dict) <= set(result.best.config.fp32_ops)
    assert result.diagnosis is not None and result.diagnosis.precisions[next(iter(op_name_dict))] == "fp32"


def test_the_rules_of_the_causes_restore_accuracy_without_any_evaluation(tmp_path: Path) -> None:
    train, _, images, labels = digits()
    found = quaver.diagnose(MODEL, None, train[:256], op_type_dict=RULES, timing=False, threads=1)
    result = quaver.fit(
        MODEL, calib_dataloader=train[:256], eval_func=Accuracy(images, labels), max_trials=1, strategy="basic",
        op_name_dict=found.rules, op_type_dict=RULES, workspace=tmp_path / "run", threads=1,
    )  # fmt: skip
    assert result.met and result.evaluations == 2


def test_debugger_snippets_for_metrics_run_unmodified() -> None:
    import numpy as np

    train, *_ = digits()
    found = quaver.diagnose(
        MODEL, None, train[:64], op_type_dict=RULES, timing=False, threads=1,
        layer_metrics={"mean_abs_error": lambda diffs: np.mean(np.abs(diffs))},
        model_metrics={"argmax_accuracy": lambda f, q: np.argmax(f[0]) == np.argmax(q[0])},
    )  # fmt: skip
    metrics = found.layer_statistics["/features/features.5/depthwise/depthwise.0/Conv"]
    assert {"max_abs_error", "mean_error", "mean_squared_error", "num_elements", "stddev"} <= set(metrics)
    assert 0 < metrics["mean_abs_error"] <= metrics["max_abs_error"]
    assert 0.5 < found.model_statistics["argmax_accuracy"] < 1.0
