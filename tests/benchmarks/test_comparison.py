"""The comparison: counting, judging, and the table."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks import result_files, unseen
from benchmarks.comparison import table
from benchmarks.comparison.computing import Computing, computing
from benchmarks.comparison.measuring import Candidate, Measured, latencies, measure
from benchmarks.comparison.rows import Row, all_rows, row, runtimes_of
from benchmarks.comparison.runs import Run, fitting
from benchmarks.comparison.setups import QUICK_SETUPS, QUICK_TOOLS, SETUPS
from benchmarks.models.bench import Bench, Evaluation, accuracy
from benchmarks.peers.launch import TOOLS, Ended

FP32 = Measured(0.9, 0.8, 1000, Computing(10, 0), (1, 1, 1))
INT8 = Measured(0.892, 0.79, 260, Computing(2, 8), (0.4, 0.5, 0.6))


def call(score, samples=100):
    return {"kind": "evaluation", "seconds": 2.0, "memory": 300, "samples": samples, "of": 100, "score": score}


def run(*events, how="finished", message="", model=Path("model.onnx"), tool="NC basic", setup="magika_filetype"):
    return Run(setup, TOOLS[tool], Path(), Ended(how, message, model, list(events), {}))


def made_row(a_run, measured=INT8, runtime="onnxruntime"):
    return row(a_run, runtime, FP32, measured)


def test_evaluations_are_counted_to_the_first_success_and_in_all():
    made = made_row(run(call(0.9), call(0.7), call(0.95, samples=50), call(0.892), call(0.5)))
    assert (made.evaluations, made.first_success, made.samples) == (4, 3, 4.5)
    assert made.met and made.fp32_ops == 2 and made.compute_ops == 10 and made.size == 0.26


def test_the_float_model_is_no_success():
    made = made_row(run(call(0.9), call(0.7)), None)
    assert made.first_success is None and not made.met and made.score is None


def test_a_score_just_below_the_criterion_is_none():
    assert not made_row(run(), replace(INT8, score=0.8909)).met
    assert made_row(run(), replace(INT8, score=0.891)).met


def test_time_outside_evaluations_and_calibration_by_plain_inference():
    made = made_row(
        run(
            {"kind": "inference", "seconds": 1.0, "samples": 50},
            call(0.9),
            {"kind": "calibration", "seconds": 3.0, "samples": 50},
            {"kind": "calibration", "seconds": 5.0, "samples": 100},
            {"kind": "tool", "seconds": 9.0, "memory": 250},
        )
    )
    assert (made.seconds, made.memory, made.calibrations) == (7.0, 300, 2)
    assert made.calibration == pytest.approx((3.0 + 2.5) / 2)


def test_the_table_tells_failures_apart():
    crashed = made_row(run(call(0.9), how="crashed", message="ValueError: a | b", model=None), None)
    stopped = made_row(run(call(0.9), call(0.1), how="stopped after 60 s", model=None), None)
    wrong = made_row(run(call(0.9), call(0.1)), replace(INT8, score=0.1))
    text = table.full([crashed, stopped, wrong])
    assert "crashed: ValueError: a \\| b" in text and "stopped after 60 s" in text
    lines = [table.summary([failed]).splitlines()[2] for failed in (crashed, stopped, wrong)]
    cells = [line.strip("| ").split(" | ")[2] for line in lines]
    assert cells == ["crashed", "stopped after 60 s, 2 evaluations", "misses: 0.100, fp32 0.900"]
    assert table.failures([crashed, wrong]).count("magika_filetype") == 1


def test_a_model_that_a_runtime_does_not_run_has_its_message():
    made = made_row(run(call(0.9), call(0.9)), "RuntimeError: no such op", "openvino")
    assert (made.met, made.score, made.message) == (False, None, "RuntimeError: no such op")


def test_a_model_is_measured_in_other_runtimes_if_its_tool_met_the_criterion():
    good, bad = run(call(0.9), call(0.9)), run(call(0.9), call(0.1))
    assert runtimes_of(good) == ("onnxruntime", "openvino") and runtimes_of(bad) == ("onnxruntime",)
    without_model = run(call(0.9), model=None)
    made = list(all_rows([good, without_model, bad], [FP32, INT8, "Error", INT8]))
    assert [(each.runtime, each.score) for each in made] == [
        ("onnxruntime", 0.892), ("openvino", None), ("onnxruntime", None), ("onnxruntime", 0.892),
    ]  # fmt: skip


def test_a_model_with_bf16_ops_is_measured_in_bf16():
    a_run = run(call(0.9), call(0.9), tool="quaver for OpenVINO")
    assert runtimes_of(a_run) == ("openvino", "openvino bf16", "onnxruntime")
    in_bf16 = replace(a_run, ended=replace(a_run.ended, more={"precision": "bf16"}))
    assert runtimes_of(in_bf16) == ("openvino bf16", "onnxruntime")
    assert [made_row(each, INT8, "openvino bf16").own for each in (a_run, in_bf16)] == [False, True]


def test_the_summary_takes_the_fastest_that_meets_the_criterion_and_counts_a_miss_as_fp32():
    def static(tool, **figures):
        return made_row(run(call(0.9), call(0.9), tool=tool), replace(INT8, **figures))

    rows = [
        static("ORT static", latency=(0.1, 0.2, 0.3), score=0.5),
        static("ORT static, per channel", latency=(0.6, 0.64, 0.7)),
        static("ORT static, weights", latency=(0.7, 0.8, 0.9)),
        made_row(run(call(0.9), call(0.1), tool="ORT static", setup="ppocr_cls180"), replace(INT8, score=0.1)),
    ]
    lines = [line.strip("| ").split(" | ") for line in table.summary(rows).splitlines()]
    assert lines[2][2] == "0.64x (0.790, 2)" and lines[3][2] == "misses: 0.100, fp32 0.900"
    assert [line[2] for line in lines[4:]] == ["1 of 2", "0.800x", "2.0"]


def test_what_got_worse_is_named():
    now = made_row(run(call(0.9), call(0.9), tool="quaver"), replace(INT8, latency=(0.5, 0.6, 0.7)))
    old = {
        "setup": "magika_filetype", "latency": 0.5, "fp32_held_out": 0.8, "held_out": 0.795, "first_success": 2,
        "seconds": 9.0,
    }  # fmt: skip
    assert table.worse([now], [old]).splitlines()[2].endswith("| latency, held-out loss |")
    assert table.worse([now], [old | {"latency": 0.61, "held_out": 0.79}]).splitlines()[2].endswith("| - |")


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
    assert {tool for tools, _ in table.COLUMNS.values() for tool in tools} <= set(TOOLS)
    assert set(QUICK_SETUPS) <= set(SETUPS) and set(QUICK_TOOLS) <= set(TOOLS)
    assert len(SETUPS) >= 12 and set(unseen.NEWEST) <= {name for name in SETUPS if not SETUPS[name].was_looked_at}
    folder = Path(__file__).parents[2] / "benchmarks" / "peers"
    assert all((folder / f"{tool.module}.py").exists() for tool in TOOLS.values())


def test_tools_are_given_the_models_they_take(monkeypatch):
    from benchmarks.comparison import setups

    def fitting_names(file):
        bench = type("Bench", (), {"model_path": Path(file)})
        monkeypatch.setattr(setups, "find_bench", lambda name: bench)
        monkeypatch.setattr(setups, "onnx_of", lambda name: Path("converted.onnx"))
        tools = ["quaver", "quaver for LiteRT", "NNCF quantize", "TFLite converter"]
        return [tool.name for tool in fitting(SETUPS["fashion_dscnn"], tools)]

    assert fitting_names("model.onnx") == ["quaver", "NNCF quantize"]
    assert fitting_names("model.tflite") == ["quaver for LiteRT"]
    assert fitting_names("model.keras") == ["quaver", "quaver for LiteRT", "NNCF quantize", "TFLite converter"]
    assert SETUPS["fashion_dscnn"].flags(TOOLS["NNCF quantize"]) == ["--file", "converted.onnx"]


def test_models_are_measured_in_each_runtime_and_one_that_fails_is_named(tmp_path):
    pytest.importorskip("openvino")
    onnx.save(quantized_and_float_product(), tmp_path / "model.onnx")
    (tmp_path / "broken.onnx").write_bytes(b"no model")
    inputs = {"x": np.random.default_rng(1).normal(size=(6, 8)).astype(np.float32)}
    evaluation = Evaluation(inputs, np.zeros(6, int), accuracy, batch=4)
    bench = Bench("none", tmp_path / "model.onnx", [{"x": inputs["x"][:1]}], evaluation, evaluation, 6)
    runtimes = [("model.onnx", "onnxruntime"), ("broken.onnx", "onnxruntime"), ("model.onnx", "openvino")]
    first, broken, other = measure([Candidate(tmp_path / file, runtime) for file, runtime in runtimes], bench, 0.0)
    assert first.latency == (1, 1, 1) and isinstance(broken, str) and broken
    assert other.score == first.score and other.size == first.size and first.computing == Computing(1, 1)


def test_each_row_of_the_result_file_is_that_of_a_tool_and_a_runtime():
    rows = table.read()
    assert all(isinstance(each, Row) and each.runtime in TOOLS[each.tool].runtimes for each in rows)
    assert len({(each.setup, each.tool, each.runtime) for each in rows}) == len(rows)
    assert {each["setup"] for each in result_files.read("comparison")["earlier"]}
