"""The rewritten graph is compared with the model as given; both can be had, and rewriting can be switched off."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto
from onnx_models import Net, as_given, data, opened, space, tensor, weight
from rewriting import f32, kinds

from quaver.adapters.comparison import Comparison
from quaver.adapters.onnxrt.load.graph import Graph
from quaver.adapters.onnxrt.optimize import pipeline
from quaver.errors import BuildError

PADS = np.array([0, 0, 0, 0, 0, 0, 1, 1])


def padded() -> onnx.ModelProto:
    net = Net()
    x = net.Conv(net.Pad(net.input(None, 4, 8, 8), PADS), weight(40, 4, 3, 3), name="conv")
    return net.model(net.Neg(x, outputs=["first"]), net.Relu(x, outputs=["second"]))


def add_a_hundredth(graph: Graph) -> int:
    """A rewrite that is wrong: it adds a hundredth."""
    node = next(node for node in graph.nodes if node.op_type == "Relu")
    graph.constants["wrong"] = f32(1e-2)
    node.op_type = "Add"
    node.input.append("wrong")
    graph.index()
    return 1


def test_a_rewrite_that_changes_the_result_is_found_and_left_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(pipeline, "flush_denormals", add_a_hundredth)
    with opened(padded(), calibrate=False) as adapter:
        comparison = adapter.compare()
        assert adapter.rewrites == (("runtime's basic level", 1),)
        assert comparison.left_out == adapter.options.left_out == ("denormal weights",)
        assert comparison.difference < 1e-5 and not comparison.obstacle
        assert [node.op_type for node in adapter._builder.graph.nodes] == ["Conv", "Neg", "Relu"]
    (record,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert record.getMessage().endswith("which change it: denormal weights")


def test_a_rewrite_after_which_the_model_does_not_load_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def break_the_graph(graph: Graph) -> int:
        graph.nodes[-1].op_type = "NoSuchOperator"
        return 1

    monkeypatch.setattr(pipeline, "flush_denormals", break_the_graph)
    with opened(padded(), calibrate=False) as adapter:
        assert adapter.compare().left_out == ("denormal weights",)


def test_a_rewrite_that_raises_is_left_out(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def give_up(graph: Graph) -> int:
        graph.nodes.clear()
        raise ValueError("not a shape that I know")

    monkeypatch.setattr(pipeline, "flush_denormals", give_up)
    with opened(padded(), calibrate=False) as adapter:
        assert adapter.rewrites == (("runtime's basic level", 1),)
        assert adapter.compare().left_out == ("denormal weights",)
    assert "the rewrite 'denormal weights' fails on this model and is skipped: not a shape that I know" in caplog.text


def test_two_wrong_rewrites_are_both_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def negate(graph: Graph) -> int:
        node = next(node for node in graph.nodes if node.op_type == "Neg")
        node.op_type = "Abs"
        return 1

    monkeypatch.setattr(pipeline, "flush_denormals", add_a_hundredth)
    monkeypatch.setattr(pipeline, "move_transposes", negate)
    with opened(padded(), calibrate=False) as adapter:
        assert set(adapter.compare().left_out) == {"denormal weights", "channels first"}


def test_an_output_of_another_shape_is_a_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    def flatten(graph: Graph) -> int:
        node = next(node for node in graph.nodes if node.op_type == "Relu")
        node.op_type = "Flatten"
        return 1

    monkeypatch.setattr(pipeline, "flush_denormals", flatten)
    with opened(padded(), calibrate=False) as adapter:
        assert adapter.compare().left_out == ("denormal weights",)


def test_a_rewrite_that_builds_one_batch_size_in_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def fix_the_batch(graph: Graph) -> int:
        node = next(node for node in graph.nodes if node.op_type == "Relu")
        node.op_type = "Reshape"
        node.input.append("fixed")
        graph.constants["fixed"] = np.array([2, 40, 7, 7])
        graph.index()
        return 1

    monkeypatch.setattr(pipeline, "flush_denormals", fix_the_batch)
    with opened(padded()) as adapter:
        assert adapter.options.left_out == ("denormal weights",)


def test_the_comparison_uses_the_calibration_data_at_two_batch_sizes() -> None:
    with opened(padded(), calibrate=False) as adapter:
        record = adapter.calibrate(data(adapter, batch=3))["comparison"]
    assert record["batches"] == [1, 4] and record["difference"] < 1e-5 and not record["made_up"]


def test_samples_given_one_by_one_are_compared_in_a_larger_batch_too() -> None:
    with opened(padded(), calibrate=False) as adapter:
        assert adapter.calibrate(data(adapter, batch=1))["comparison"]["batches"] == [1, 4]


def test_applied_rewrites_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO), opened(padded(), calibrate=False) as adapter:
        assert adapter.rewrites == (("runtime's basic level", 1),)
    assert "optimised the float graph: runtime's basic level (1)" in caplog.text


def test_optimise_float_false_turns_all_rewrites_off() -> None:
    assert kinds(padded(), optimise_float=False) == "Pad Conv Neg Relu"
    with opened(padded(), calibrate=False, optimise_float=False) as adapter:
        assert adapter.rewrites == ()


@pytest.mark.parametrize(
    "shape", [(None, 4, 8, 8), ("batch", 4, "height", "width"), (1, 4, 16, 16), (None, 4, None, 64)], ids=str
)
def test_inputs_of_any_shape_are_made_up(shape: Any) -> None:
    net = Net()
    model = net.model(net.Conv(net.Pad(net.input(*shape), PADS), weight(4, 4, 3, 3)))
    with opened(model, calibrate=False) as adapter:
        comparison = adapter.compare()
        assert adapter.rewrites and comparison.made_up and comparison.batches


def test_small_tables_are_looked_up_within_their_rows() -> None:
    net = Net()
    rows = net.Gather(weight(2, 8), net.input(None, 5, name="ids", dtype=TensorProto.INT64))
    model = net.model(net.MatMul(net.Identity(rows), weight(8, 3)))
    with opened(model, calibrate=False) as adapter:
        assert adapter.compare().batches and adapter.rewrites


def test_a_model_for_which_no_input_can_be_made_up_says_so_and_is_not_rewritten() -> None:
    net = Net()
    table = net.Reshape(net.input(None), np.array([3, 4, 7, 11]))  # of 924 values, which nobody guesses
    model = net.model(net.Conv(net.Pad(table, PADS), weight(4, 4, 3, 3)))
    with opened(model, calibrate=False) as adapter:
        assert adapter.rewrites
        comparison = adapter.compare()
        assert "it runs on no input that can be made up; pass calib_dataloader" in str(comparison)
        assert adapter.rewrites == () and not comparison.batches


def test_near_ties_between_classes_are_no_difference() -> None:
    """Where the largest of equal values stands is a matter of rounding."""
    net = Net()
    x = net.Conv(net.Pad(net.input(2, 4, 8, 8), PADS), weight(4, 4, 3, 3))
    place = net.ArgMax(net.Mul(x, f32(0)), axis=1)
    assert kinds(net.model(x, tensor(place, 2, 1, 7, 7, dtype=TensorProto.INT64))).startswith("Conv")


# --- the model as given ---


@pytest.mark.parametrize("form", ["path", "bytes", "ModelProto", "external data"])
def test_the_model_as_given_is_at_hand_in_every_form(form: str, tmp_path: Path) -> None:
    model = padded()
    path = tmp_path / "model.onnx"
    if form == "external data":
        onnx.save_model(padded(), path, save_as_external_data=True, location="weights.bin", size_threshold=100)
    else:
        onnx.save(model, path)
    source: Any = {"bytes": model.SerializeToString(), "ModelProto": model}.get(form, path)
    with opened(source, calibrate=False) as adapter:
        given = adapter.build_unmodified()
        assert [node.op_type for node in given.model.graph.node] == ["Pad", "Conv", "Neg", "Relu"]
        feed = data(adapter)[0]
        for found, expected in zip(given(feed), as_given(model, feed), strict=True):
            assert np.array_equal(found, expected)
        assert given.size >= path.stat().st_size
        copy = given.save(tmp_path / "copies" / "copy.onnx")
        assert np.array_equal(adapter.load_saved(copy)(feed)[0], given(feed)[0])


def test_the_float_model_that_is_built_is_the_optimised_one() -> None:
    with opened(padded(), calibrate=False) as adapter:
        assert [node.op_type for node in adapter.build(None).model.graph.node] == ["Conv", "Neg", "Relu"]
        assert adapter.build(None).sha256 != adapter.build_unmodified().sha256


def test_the_fingerprint_is_that_of_the_model_as_given() -> None:
    with opened(padded(), calibrate=False) as one, opened(padded(), calibrate=False, optimise_float=False) as other:
        assert one.fingerprint == other.fingerprint


def test_a_model_that_the_runtime_does_not_load_as_it_is_says_so() -> None:
    model = padded()
    model.ir_version = 99
    with opened(model) as adapter:
        adapter.build(space(adapter).default_config()).close()
        with pytest.raises(BuildError, match="ONNX Runtime cannot load the model"):
            adapter.build_unmodified()


def test_a_saved_copy_replaces_nothing_of_the_users(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save_model(padded(), path, save_as_external_data=True, location="weights.bin", size_threshold=100)
    before = (tmp_path / "weights.bin").stat().st_mtime_ns
    with opened(path, calibrate=False) as adapter:
        adapter.build_unmodified().save(tmp_path / "second.onnx")
    assert (tmp_path / "weights.bin").stat().st_mtime_ns == before


def detecting(shift: float, moved: bool = False) -> onnx.ModelProto:
    """Everywhere the answer is next to no: of a Sigmoid's result no digit is left."""
    net = Net()
    x = net.Conv(net.Pad(net.input(1, 4, 8, 8), PADS), weight(4, 4, 3, 3), f32([shift] * 4), name="conv")
    y = net.Sigmoid(net.Relu(x) if shift > 0 else x)
    return net.model(net.Reshape(y, np.array([1, -1])) if moved else y)


@pytest.mark.parametrize("moved", [False, True])
def test_saturated_probabilities_are_compared_before_the_softmax(moved: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def round_a_little(graph: Graph) -> int:
        node = next(node for node in graph.nodes if node.op_type == "Conv")
        graph.constants[node.input[1]] = graph.constants[node.input[1]] * np.float32(1 + 1e-6)
        return 1

    monkeypatch.setattr(pipeline, "flush_denormals", round_a_little)
    with opened(detecting(-16.6, moved), calibrate=False) as adapter:
        assert not adapter.compare().left_out and adapter.rewrites


@pytest.mark.parametrize("moved", [False, True])
def test_a_difference_hidden_by_a_softmax_is_found(moved: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def widen(graph: Graph) -> int:
        node = next(node for node in graph.nodes if node.op_type == "Conv")
        graph.constants[node.input[1]] = graph.constants[node.input[1]] * np.float32(1.01)
        return 1

    monkeypatch.setattr(pipeline, "flush_denormals", widen)
    with opened(detecting(200.0, moved), calibrate=False) as adapter:  # every answer is yes, to the last digit
        assert adapter.compare().left_out == ("denormal weights",)


def test_a_rewrite_that_acts_only_without_another_is_found_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the runtime's basic level the Pad is still there, and a second wrong rewrite finds it."""

    def change_pads(graph: Graph) -> int:
        pads = [node for node in graph.nodes if node.op_type == "Pad"]
        for node in pads:
            node.op_type = "Identity"
            del node.input[1:]
        graph.index()
        return len(pads)

    def lose_a_node(graph: Graph) -> tuple[Graph, int]:
        node = next(node for node in graph.nodes if node.op_type == "Relu")
        node.op_type = "Neg"
        graph.index()
        return graph, 1

    monkeypatch.setattr(pipeline, "_basic_level", lose_a_node)
    monkeypatch.setattr(pipeline, "flush_denormals", change_pads)
    monkeypatch.setattr(pipeline, "fold_padding", lambda graph: 0)
    with opened(padded(), calibrate=False) as adapter:
        comparison = adapter.compare()
        assert set(comparison.left_out) == {"runtime's basic level", "denormal weights"}
        assert comparison.difference < 1e-5


def test_what_the_runtime_itself_changes_is_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Without a fill of negative zero, ONNX Runtime makes one op of a Pad and a MaxPool, which then ignores zeros."""
    net = Net()
    x = net.Conv(net.input(None, 4, 8, 8), weight(40, 4, 3, 3), name="conv")
    model = net.model(net.MaxPool(net.Pad(x, PADS), kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1))
    monkeypatch.setattr("quaver.adapters.onnxrt.load.model_file.keep_padding_before_pools", lambda graph: 0)
    with opened(model, calibrate=False) as adapter:
        comparison = adapter.compare()
    told = "ONNX Runtime's own optimizer changes what it computes when it runs"
    assert comparison.difference < 1e-5 and comparison.when_optimized.startswith(told)
    assert comparison.when_optimized.endswith("It changes the model as given, too.")
    assert told in str(comparison) and told in caplog.text


def test_a_model_that_does_not_load_when_optimized_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    net = Net()
    x = net.Conv(net.input(None, 4, 8, 8), weight(40, 4, 3, 3), name="conv")
    model = net.model(net.AveragePool(net.Pad(x, PADS), kernel_shape=[1, 1]))
    monkeypatch.setattr("quaver.adapters.onnxrt.load.model_file.keep_padding_before_pools", lambda graph: 0)
    with opened(model, calibrate=False) as adapter:
        assert "it does not load" in adapter.compare().when_optimized


def test_a_comparison_of_an_older_history_is_read() -> None:
    comparison = Comparison(1e-6, "y", (1, 4), left_out=("Gelu",), when_optimized="x has the shape [2] instead of [3]")
    record = comparison.to_dict()
    assert Comparison.from_dict(record) == comparison
    record.pop("when_optimized")
    older = Comparison.from_dict(record)
    assert older is not None and older.left_out == ("Gelu",) and older.when_optimized == ""
