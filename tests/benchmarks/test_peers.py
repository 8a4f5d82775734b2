"""Runs of other tools: counted while active, stopped in time, and read even after a crash."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.models.bench import Bench, Evaluation, accuracy
from benchmarks.peers import job as jobs
from benchmarks.peers import memory
from benchmarks.peers.environments import Environment
from benchmarks.peers.launch import Tool, last_words, launch, read

HERE = Environment("here")


def job(folder: Path) -> jobs.Job:
    inputs, labels = {"x": np.eye(4, dtype=np.float32)}, np.arange(4)
    evaluation = Evaluation(inputs, labels, accuracy, batch=3)
    calib = [{"x": inputs["x"][:1]}, {"x": inputs["x"][1:2]}]
    return jobs.Job(Bench("none", folder / "none.onnx", calib, evaluation, evaluation, 4), "v", False, folder)


def events(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / jobs.EVENTS).read_text().splitlines()]


def test_each_evaluation_is_written_down_at_once(tmp_path):
    evaluate = jobs.Recorder(job(tmp_path), lambda model: model)
    assert evaluate(lambda feed: feed["x"]) == 1.0
    assert [(event["samples"], event["of"], event["score"]) for event in events(tmp_path)] == [(4, 4, 1.0)]
    assert evaluate.on(lambda feed: -feed["x"], [0]) == 0.0
    assert events(tmp_path)[1] | {"seconds": 0, "memory": 0} == {
        "kind": "evaluation", "seconds": 0, "memory": 0, "samples": 3, "of": 4, "score": 0.0,
    }  # fmt: skip


def test_a_pass_over_the_calibration_data_is_timed_when_it_is_over(tmp_path):
    batches = jobs.Batches(job(tmp_path))
    left = iter(batches)
    next(left), next(left)
    assert not (tmp_path / jobs.EVENTS).exists()
    assert next(left, None) is None
    assert [(event["kind"], event["samples"]) for event in events(tmp_path)] == [("calibration", 2)]


def test_peak_memory_is_that_since_the_last_reset():
    held = np.ones(64 << 20, np.uint8)
    memory.reset()
    before = memory.peak()
    more = np.ones(64 << 20, np.uint8)
    assert 50 <= memory.peak() - before <= 200
    del more, held
    memory.reset()
    assert memory.peak() < before + 30


def test_a_tool_that_is_not_there_has_crashed_with_its_message(tmp_path):
    ended = launch(Tool("nobody", "run_nobody", "v", HERE), "none", tmp_path / "run", 60)
    assert ended.how == "crashed" and "benchmarks.peers.run_nobody" in ended.message
    assert ended.model is None and ended.events == []


def test_a_tool_that_takes_too_long_is_stopped(tmp_path):
    ended = launch(Tool("quaver", "run_quaver", "auto", HERE), "magika_filetype", tmp_path / "run", 0.05)
    assert ended.how.startswith("stopped after") and ended.model is None
    assert [event["kind"] for event in ended.events] == ["tool"]


def test_a_run_that_was_stopped_keeps_its_evaluations(tmp_path):
    jobs.Recorder(job(tmp_path), lambda model: model)(lambda feed: feed["x"])
    with (tmp_path / jobs.EVENTS).open("a") as file:
        file.write('{"kind": "evaluation", "sec')  # the process was killed while it wrote
    ended = read(tmp_path, None, 7)
    assert ended.how == "stopped after 7 s"
    assert [event["kind"] for event in ended.events] == ["evaluation", "tool"]


def test_a_run_that_ended_well_but_reported_nothing_has_crashed(tmp_path):
    (tmp_path / jobs.LOG).write_text("it was fine\n")
    assert read(tmp_path, 0, 7).how == "crashed"


@pytest.mark.parametrize(
    ("log", "words"),
    [
        ("Traceback\n  File x\nValueError: no such op\n[INFO] bye\n", "ValueError: no such op"),
        (
            "onnx.onnx_cpp2py_export.checker.ValidationError: bad\n",
            "onnx.onnx_cpp2py_export.checker.ValidationError: bad",
        ),
        ("Killed\n", "Killed"),
        ("", "(said nothing)"),
    ],
)
def test_the_line_of_a_log_that_names_the_error(tmp_path, log, words):
    (tmp_path / "log").write_text(log)
    assert last_words(tmp_path / "log") == words


def test_sizes_that_differ_between_samples_stay_open():
    def bench(inputs, batch):
        evaluation = Evaluation(inputs, np.zeros(2), accuracy, batch)
        calib = [{name: np.asarray(values[0]) if batch == 0 else values[:1] for name, values in inputs.items()}]
        return Bench("none", Path("none.onnx"), calib, evaluation, evaluation, 2)

    images = {"x": np.zeros((2, 3, 8, 8)), "mask": np.zeros((2, 8))}
    assert jobs.fixed_shapes(bench(images, 2)) == {"x": [1, 3, 8, 8], "mask": [1, 8]}
    lines = {"x": [np.zeros((1, 5, 7)), np.zeros((1, 5, 9))], "length": [np.zeros(1), np.zeros(1)]}
    assert jobs.fixed_shapes(bench(lines, 0)) == {"x": [1, 5, -1], "length": [1]}


def test_openvino_runs_a_batch_sample_by_sample_where_shapes_are_fixed(tmp_path):
    pytest.importorskip("openvino")
    from benchmarks.peers.openvino_session import OpenVinoSession

    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 3]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "neg", [x], [y])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), tmp_path / "m.onnx")
    values = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    for shapes in (None, {"x": [1, 3]}):
        session = OpenVinoSession(tmp_path / "m.onnx", shapes=shapes)
        assert np.array_equal(session({"x": values}), -values)
    assert session.compiled.inputs[0].get_shape() == [1, 3]
