"""The comparison: counting, judging, and the table."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.comparison import table
from benchmarks.comparison.computing import Computing, computing
from benchmarks.comparison.measuring import Measured, latencies
from benchmarks.comparison.rows import row
from benchmarks.comparison.runs import Run, fitting
from benchmarks.comparison.setups import QUICK_SETUPS, QUICK_TOOLS, SETUPS
from benchmarks.models import NAMES
from benchmarks.peers.launch import TOOLS, Ended

SPEED = {1: (0.4, 0.5, 0.6), 2: (0.5, 0.6, 0.7)}
FP32 = Measured(0.9, 0.8, 1000, Computing(10, 0), {1: (1, 1, 1), 2: (1, 1, 1)})
INT8 = Measured(0.892, 0.79, 260, Computing(2, 8), SPEED)


def call(score, samples=100):
    return {"kind": "evaluation", "seconds": 2.0, "memory": 300, "samples": samples, "of": 100, "score": score}


def run(*events, how="finished", message="", model=Path("model.onnx")):
    return Run("magika_filetype", TOOLS["NNCF"], Path(), Ended(how, message, model, list(events), {}))


def test_evaluations_are_counted_to_the_first_success_and_in_all():
    made = row(run(call(0.9), call(0.7), call(0.95, samples=50), call(0.892), call(0.5)), FP32, INT8)
    assert (made.evaluations, made.first_success, made.samples) == (4, 3, 4.5)
    assert made.met and made.fp32_ops == 2 and made.compute_ops == 10 and made.size == 0.26


def test_the_float_model_is_no_success():
    made = row(run(call(0.9), call(0.7)), FP32, None)
    assert made.first_success is None and not made.met and made.score is None


def test_a_score_just_below_the_criterion_is_none():
    below = Measured(0.8909, 0.79, 260, Computing(2, 8), SPEED)
    assert not row(run(), FP32, below).met
    assert row(run(), FP32, Measured(0.891, 0.79, 260, Computing(2, 8), SPEED)).met


def test_time_outside_evaluations_and_calibration_by_plain_inference():
    made = row(
        run(
            {"kind": "inference", "seconds": 1.0, "samples": 50},
            call(0.9),
            {"kind": "calibration", "seconds": 3.0, "samples": 50},
            {"kind": "calibration", "seconds": 5.0, "samples": 100},
            {"kind": "tool", "seconds": 9.0, "memory": 250},
        ),
        FP32,
        INT8,
    )
    assert (made.seconds, made.memory, made.calibrations) == (7.0, 300, 2)
    assert made.calibration == pytest.approx((3.0 + 2.5) / 2)


def test_the_table_tells_failures_apart():
    crashed = row(run(call(0.9), how="crashed", message="ValueError: a | b", model=None), FP32, None)
    stopped = row(run(call(0.9), call(0.1), how="stopped after 60 s", model=None), FP32, None)
    wrong = row(run(call(0.9), call(0.1)), FP32, Measured(0.1, 0.1, 260, Computing(0, 10), SPEED))
    text = table.full([crashed, stopped, wrong])
    assert "crashed: ValueError: a \\| b" in text and "stopped after 60 s" in text
    assert [table.summary([one]).splitlines()[-1].split(" | ")[3] for one in (crashed, stopped, wrong)] == [
        "crashed", "stopped after 60 s, 2 evals", "not met: 0.100, fp32 0.900",
    ]  # fmt: skip


def test_latencies_are_fractions_of_the_first_model(monkeypatch):
    now = 0.0

    def model(seconds):
        def call(feed):
            nonlocal now
            now += seconds

        return call

    measured = latencies([model(2.0), model(1.0), model(3.0)], {}, 0.0, lambda: now)
    assert measured == [(1, 1, 1), (0.5, 0.5, 0.5), (1.5, 1.5, 1.5)]


def quantized_and_float_product() -> onnx.ModelProto:
    """A matrix product on integers and one on floats."""
    weight = np.random.default_rng(0).normal(size=(8, 8)).astype(np.float32)
    constants = {
        "scale": np.float32(0.02), "zero": np.uint8(128), "weight.q": np.round(weight / 0.03).astype(np.int8),
        "weight.scale": np.float32(0.03), "weight.zero": np.int8(0), "weight": weight,
    }  # fmt: skip
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["x.q"]),
        helper.make_node("DequantizeLinear", ["x.q", "scale", "zero"], ["x.dq"]),
        helper.make_node("DequantizeLinear", ["weight.q", "weight.scale", "weight.zero"], ["weight.dq"]),
        helper.make_node("MatMul", ["x.dq", "weight.dq"], ["h"]),
        helper.make_node("Tanh", ["h"], ["t"]),
        helper.make_node("MatMul", ["t", "weight"], ["y"]),
    ]
    values = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [None, 8]) for name in ("x", "y")]
    held = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def test_what_runs_on_integers_is_counted_in_the_executed_graph(tmp_path):
    onnx.save(quantized_and_float_product(), tmp_path / "model.onnx")
    assert computing(tmp_path / "model.onnx") == Computing(fp32=1, int8=1)


def test_names_fit_together():
    assert {setup.model for setup in SETUPS.values()} == set(NAMES)
    assert set(QUICK_SETUPS) <= set(SETUPS) and set(QUICK_TOOLS) <= set(TOOLS)
    assert set(table.SUMMARY_TOOLS) <= set(TOOLS)
    folder = Path(__file__).parents[2] / "benchmarks" / "peers"
    assert all((folder / f"{tool.module}.py").exists() for tool in TOOLS.values())


def test_tools_are_given_the_models_they_take(monkeypatch):
    from benchmarks.comparison import runs

    bench = type("Bench", (), {"model_path": Path("model.keras")})
    monkeypatch.setattr(runs, "load", lambda name: bench)
    assert [tool.name for tool in fitting(SETUPS["fashion_dscnn"], ["quaver auto", "NNCF", "TFLite converter"])] == [
        "quaver auto",
        "TFLite converter",
    ]
