"""Random graphs: in float quaver's model is the one that was given, in int8 it runs, and no process ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest
from graph_builder import InputRecord, make_feeds, record_inputs, recorded_inputs
from graph_check import check_model, run_plainly
from graph_fuzzer import check_isolated, fuzz, report, shrunk
from onnx_models import Net, weight
from random_graphs import make_model

from quaver.adapters.calibration.ranges import TensorStatistics
from quaver.adapters.onnxrt.build.builder import Builder
from quaver.adapters.onnxrt.load.graph import Graph

FOUND = sorted((Path(__file__).parent / "found" / "graphs").glob("*.onnx"))
# 150 graphs take about 15 s of one core, and a whole fit is among them every 75.
GRAPHS, TUNED_EVERY = 150, 75


def test_random_graphs_come_out_as_they_went_in() -> None:
    outcomes = dict(fuzz(range(1, 1 + GRAPHS), workers=1, tuned_every=TUNED_EVERY))
    wrong = {seed: outcome for seed, outcome in outcomes.items() if not outcome.harmless}
    assert not wrong, "\n".join(f"graph {seed}: {outcome}" for seed, outcome in wrong.items())
    counts = Counter(outcome.kind for outcome in outcomes.values())
    assert counts.total() == GRAPHS
    assert counts["equal"] + counts["tuned"] > GRAPHS // 2, report(counts)


@pytest.mark.parametrize("path", FOUND, ids=[path.stem for path in FOUND])
def test_a_graph_that_once_went_wrong_does_so_no_more(path: Path) -> None:
    model = onnx.load(path)
    for seed in range(3):
        outcome = check_isolated(model, seed, probed=seed == 0)
        assert outcome.harmless, outcome


def test_steps_do_not_explain_an_op_that_computes_something_else(monkeypatch: pytest.MonkeyPatch) -> None:
    model = onnx.load(Path(__file__).parent / "found" / "graphs" / "minimum_below_what_is_read.onnx")
    monkeypatch.setattr(Builder, "_with_bounds", lambda builder, ranges: dict(ranges))
    assert check_model(model, probed=True).kind == "another function in int8"


def test_a_loss_that_the_steps_make_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    model = onnx.load(Path(__file__).parent / "found" / "graphs" / "products_cancel_out.onnx")
    assert check_model(model, probed=True).kind == "equal"
    monkeypatch.setattr("graph_check.error_of_steps", lambda *ignored: 0.0)
    assert check_model(model, probed=True).kind == "another function in int8"


def test_another_branch_explains_only_what_the_given_model_does_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    model = onnx.load(Path(__file__).parent / "found" / "graphs" / "int8_takes_another_branch.onnx")
    kinds = [check_model(model, seed).kind for seed in range(3)]
    assert "takes another branch in int8" in kinds
    monkeypatch.setattr("graph_check.outputs_of_other_branch", lambda *ignored: [np.zeros(5)])  # of another shape
    assert check_model(model, kinds.index("takes another branch in int8")).kind == "raw exception"
    monkeypatch.setattr("graph_check.outputs_of_other_branch", lambda *ignored: None)  # no condition differs
    assert check_model(model, kinds.index("takes another branch in int8")).kind == "raw exception"


def test_a_wrong_rewrite_is_noticed_although_the_comparison_leaves_it_out(monkeypatch: pytest.MonkeyPatch) -> None:
    model = _convolution()
    assert check_model(model).kind == "equal"
    monkeypatch.setattr("quaver.adapters.onnxrt.optimize.pipeline.spell_out_elu", _elu_without_its_alpha)
    assert check_model(model).kind == "wrong rewrite"


def test_a_range_that_is_not_that_of_the_values_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    model = _convolution()
    ranges = TensorStatistics.ranges
    monkeypatch.setattr(
        TensorStatistics,
        "ranges",
        lambda tensor: {method: (low, 0.9 * high) for method, (low, high) in ranges(tensor).items()},
    )
    assert check_model(model).kind == "wrong range"


def test_the_same_seed_makes_the_same_graph() -> None:
    models = [make_model(seed).SerializeToString(deterministic=True) for seed in (3, 3, 4)]
    assert models[0] == models[1] != models[2]


def test_graphs_cover_old_and_new_opsets_and_bodies() -> None:
    models = [make_model(seed) for seed in range(200)]
    opsets = {model.opset_import[0].version for model in models}
    kinds = {node.op_type for model in models for node in model.graph.node}
    assert opsets == set(range(7, 24))
    assert {
        "Conv",
        "ConvTranspose",
        "Gemm",
        "MatMul",
        "If",
        "Loop",
        "Scan",
        "LSTM",
        "Upsample",
        "Resize",
        "Pad",
    } <= kinds


def test_a_float_model_that_differs_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    model = _quantizable()
    monkeypatch.setattr("graph_check.largest_difference", lambda *outputs: 0.5 * (outputs[0] is not outputs[1]))
    monkeypatch.setattr("graph_check.rounding", lambda *ignored: 0.0)
    assert check_model(model).kind == "wrong values"


def test_a_graph_that_ends_its_process_costs_that_graph_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graph_fuzzer.check_model", lambda model, seed, tuned: _abort_at(2, seed) or check_model(model))
    outcomes = dict(fuzz([1, 2, 3], workers=1, tuned_every=0))
    assert outcomes[2].kind == "abort"
    assert outcomes[2].detail == "SIGABRT"
    assert outcomes[1].harmless and outcomes[3].harmless


def test_a_graph_that_goes_wrong_is_shrunk(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make_model(1)
    outcome = check_model(model)._replace(kind="made up")
    monkeypatch.setattr("graph_fuzzer.check_isolated", lambda *given: outcome)
    smaller = shrunk(model, outcome, 1)
    assert len(smaller.graph.node) < len(model.graph.node)
    run_plainly(smaller, make_feeds(smaller)[0])
    assert set(recorded_inputs(smaller)) == {value.name for value in smaller.graph.input}


def test_a_run_is_resumed_where_it_ended(tmp_path: Path) -> None:
    script = [sys.executable, Path(__file__).parent / "graph_fuzzer.py", "--workers", "1", "--folder", tmp_path]
    for graphs in ("2", "4"):
        done = subprocess.run([*script, "--graphs", graphs, "--first", "1", "--resume"], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    lines = (tmp_path / "outcomes.jsonl").read_text(encoding="utf-8").splitlines()
    assert sorted(json.loads(line)["seed"] for line in lines) == [1, 2, 3, 4]
    assert "4 graphs" in done.stdout


def _quantizable() -> onnx.ModelProto:
    return next(model for model in map(make_model, range(1, 50)) if check_model(model).kind == "equal")


def _convolution() -> onnx.ModelProto:
    net = Net()
    model = net.model(net.Conv(net.Elu(net.input(2, 3, 6, 6)), weight(8, 3, 3, 3)))
    record_inputs(model, {"x": InputRecord((2, 3, 6, 6), "float32")})
    return model


def _elu_without_its_alpha(graph: Graph) -> int:
    for node in (nodes := [node for node in graph.nodes if node.op_type == "Elu"]):
        node.op_type = "Relu"
    return len(nodes)


def _abort_at(wanted: int, seed: int) -> None:
    if seed == wanted:
        os.abort()
