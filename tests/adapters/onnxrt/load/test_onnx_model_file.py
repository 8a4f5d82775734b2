"""A model is the same model in whatever form it comes, and one that cannot be tuned is refused with a reason."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper
from onnx_models import Net, data, kernels, opened, space, tensor, weight

from quaver.adapters import AdapterOptions, load_model
from quaver.adapters.onnxrt.adapter import OnnxAdapter
from quaver.errors import ModelError


def two_convs(channels: int = 32) -> onnx.ModelProto:
    net = Net()
    hidden = net.Relu(net.Conv(net.input("batch", 4, 8, 8), weight(channels, 4, 3, 3), weight(channels)))
    return net.model(net.Conv(hidden, weight(8, channels, 1, 1)))


def save_external(model: onnx.ModelProto, folder: Path, data: str = "weights.bin") -> Path:
    """Save a model with all its constants in a second file."""
    path = folder / "external.onnx"
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    onnx.save_model(copy, path, save_as_external_data=True, location=data, size_threshold=0)
    return path


def move_data(path: Path, location: str) -> Path:
    """Make a model say that its data lies elsewhere."""
    model = onnx.load_model(path, load_external_data=False)
    for constant in model.graph.initializer:
        next(entry for entry in constant.external_data if entry.key == "location").value = location
    path.write_bytes(model.SerializeToString())
    return path


@pytest.mark.parametrize("form", ["str", "Path", "bytes", "bytearray", "ModelProto", "external data"])
def test_every_form_gives_the_same_fingerprint_ops_and_bytes(form: str, tmp_path: Path) -> None:
    model = two_convs()
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString())
    sources: dict[str, Callable[[], Any]] = {
        "str": lambda: str(path),
        "Path": lambda: path,
        "bytes": model.SerializeToString,
        "bytearray": lambda: bytearray(model.SerializeToString()),
        "ModelProto": lambda: model,
        "external data": lambda: save_external(model, tmp_path),
    }
    source = sources[form]()
    assert OnnxAdapter.accepts(source)
    with opened(model) as one, opened(source) as other:
        assert other.fingerprint == one.fingerprint
        assert other.ops() == one.ops()
        config = space(one).default_config()
        assert other.assemble(config).SerializeToString() == one.assemble(config).SerializeToString()
        assert other.assemble(None).sha256 == one.assemble(None).sha256


@pytest.mark.parametrize(
    "change",
    [
        lambda model: model.graph.initializer[0].CopyFrom(_changed(model.graph.initializer[0])),
        lambda model: model.graph.node[0].attribute.append(helper.make_attribute("strides", [2, 2])),
        lambda model: setattr(model.opset_import[0], "version", 18),
        lambda model: model.functions.append(_a_function()),
    ],
    ids=["a weight", "an attribute", "the opset", "a function"],
)
def test_the_fingerprint_tells_apart_models_that_differ_in(change: Callable[[onnx.ModelProto], None]) -> None:
    model = two_convs()
    with opened(model, calibrate=False) as adapter:
        before = adapter.fingerprint
    change(model)
    with opened(model, calibrate=False) as adapter:
        assert adapter.fingerprint != before


def _changed(constant: TensorProto) -> TensorProto:
    values = onnx.numpy_helper.to_array(constant).copy()
    values.reshape(-1)[-1] += 1e-6
    return onnx.numpy_helper.from_array(values, constant.name)


def _a_function() -> onnx.FunctionProto:
    body = [helper.make_node("Neg", ["a"], ["b"])]
    return helper.make_function("mine", "Minus", ["a"], ["b"], body, [helper.make_opsetid("", 17)])


def test_the_users_model_is_not_changed() -> None:
    net = Net()
    hidden = net.Conv(net.input(1, 4, 8, 8), weight(4, 4, 1, 1), name="")
    scaled = net.BatchNormalization(hidden, *(np.abs(weight(4, seed=i)) + 0.5 for i in range(4)), name="")
    model = net.model(net.Mul(scaled, np.float32(1)), opset=11, ir=99)
    before = model.SerializeToString(deterministic=True)
    with opened(model) as adapter:
        adapter.build(space(adapter).default_config()).close()
    assert model.SerializeToString(deterministic=True) == before


def test_external_data_is_mapped_and_not_read(tmp_path: Path) -> None:
    with opened(save_external(two_convs(256), tmp_path), calibrate=False) as adapter:
        mapped = [array for array in adapter._builder.graph.constants.values() if isinstance(array, np.memmap)]
    # Not the weights of the second convolution, which gets more channels.
    assert sum(array.nbytes for array in mapped) == weight(256, 4, 3, 3).nbytes


def test_external_data_of_a_constant_inside_a_node_is_read(tmp_path: Path) -> None:
    net = Net()
    kernel = net.Constant(value=onnx.numpy_helper.from_array(weight(4, 4, 3, 3), "kernel"))
    model = net.model(net.Conv(net.input(1, 4, 8, 8), kernel))
    path = tmp_path / "model.onnx"
    onnx.save_model(model, path, save_as_external_data=True, location="data", size_threshold=0, convert_attribute=True)
    with opened(two := onnx.load_model(path)) as one, opened(path) as other:
        assert two.graph.node[0].attribute[0].t.raw_data
        config = space(one).default_config()
        assert other.assemble(config).SerializeToString() == one.assemble(config).SerializeToString()


def test_missing_external_data_is_named(tmp_path: Path) -> None:
    path = save_external(two_convs(), tmp_path)
    (tmp_path / "weights.bin").unlink()
    with pytest.raises(ModelError, match=r"external data of 'c0', '.*weights\.bin', is missing; keep it beside"):
        OnnxAdapter.load(path, AdapterOptions())


def test_external_data_that_is_too_short_is_named(tmp_path: Path) -> None:
    path = save_external(two_convs(), tmp_path)
    with open(tmp_path / "weights.bin", "r+b") as file:
        file.truncate(100)
    with pytest.raises(ModelError, match=r"external data of 'c0', .* is too short \(100 bytes\)"):
        OnnxAdapter.load(path, AdapterOptions())


@pytest.mark.parametrize("location", ["../weights.bin", "/elsewhere/weights.bin", "", "a/../../weights.bin"])
def test_external_data_outside_the_models_folder_is_refused(location: str, tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    path = move_data(save_external(two_convs(), inside), location)
    (inside / "weights.bin").rename(tmp_path / "weights.bin")
    with pytest.raises(ModelError, match=re.escape(f"declared at {location!r}, outside the model's folder")):
        OnnxAdapter.load(path, AdapterOptions())


def test_external_data_behind_a_link_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    path = save_external(two_convs(), inside)
    (inside / "weights.bin").rename(tmp_path / "weights.bin")
    (inside / "weights.bin").symlink_to(tmp_path / "weights.bin")
    with pytest.raises(ModelError, match="outside the model's folder"):
        OnnxAdapter.load(path, AdapterOptions())


def test_external_data_may_lie_in_a_folder_below(tmp_path: Path) -> None:
    path = save_external(two_convs(), tmp_path)
    (tmp_path / "below").mkdir()
    (tmp_path / "weights.bin").rename(tmp_path / "below" / "weights.bin")
    with opened(move_data(path, "below/weights.bin"), calibrate=False) as one, opened(two_convs(), False) as other:
        assert one.fingerprint == other.fingerprint


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\xff\xfe not a model", "cannot be read as an ONNX model"),
        (b"", "contains no graph: is it an ONNX model?"),
        (b"A text file, with a few words in it.\n", "cannot be read as an ONNX model"),
    ],
)
def test_garbage_is_refused_by_name(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=rf"model\.onnx' {re.escape(message)}"):
        load_model(path, AdapterOptions())
    with pytest.raises(ModelError, match=rf"the bytes passed as model {re.escape(message)}"):
        load_model(content, AdapterOptions())


def test_a_path_without_a_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"no model file at '.*nowhere\.onnx'"):
        load_model(tmp_path / "nowhere.onnx", AdapterOptions())
    with pytest.raises(ModelError, match="no model file at"):
        load_model(str(tmp_path / "folder.onnx"), AdapterOptions())


def test_a_stranger_is_refused_with_the_known_forms() -> None:
    assert not OnnxAdapter.accepts(object())
    with pytest.raises(ModelError, match=r"no adapter accepts a list.*path ending in \.onnx"):
        load_model([1, 2], AdapterOptions())


@pytest.mark.parametrize("quant_op", ["QuantizeLinear", "DynamicQuantizeLinear"])
def test_a_quantized_model_is_refused(quant_op: str) -> None:
    net = Net()
    x = net.Conv(net.input(1, 4, 8, 8), weight(4, 4, 1, 1))
    scale = [np.float32(0.1), np.uint8(3)]
    if quant_op == "QuantizeLinear":
        y = net.DequantizeLinear(net.QuantizeLinear(x, *scale, name="q"), *scale)
    else:
        y = net.DequantizeLinear(*net.DynamicQuantizeLinear(x, outputs=3, name="q"))
    with pytest.raises(ModelError, match=rf"quantized already \(it holds a {quant_op} node, 'q'\)"):
        OnnxAdapter.load(net.model(y), AdapterOptions())


def test_a_quantized_model_is_refused_when_only_a_body_is_quantized() -> None:
    net, body = Net(), Net()
    x = net.Conv(net.input(1, 4, 8, 8), weight(4, 4, 1, 1))
    scale = [np.float32(0.1), np.uint8(3)]
    inner = body.DequantizeLinear(body.QuantizeLinear(x, *scale, name="q"), *scale, outputs=["inner"])
    y = net.If(net.input(name="flag", dtype=TensorProto.BOOL), then_branch=body.graph(inner), else_branch=_passing(x))
    with pytest.raises(ModelError, match="quantized already"):
        OnnxAdapter.load(net.model(y), AdapterOptions())


def _passing(name: str) -> onnx.GraphProto:
    body = Net()
    return body.graph(body.Identity(name, outputs=["passed"]))


def test_a_model_with_nothing_to_quantize_is_refused_with_what_it_holds() -> None:
    net = Net()
    with pytest.raises(ModelError, match="nothing in the model can run in int8: it holds Relu, Tanh"):
        OnnxAdapter.load(net.model(net.Tanh(net.Relu(net.input(2, 4)))), AdapterOptions())


def test_a_float16_model_is_refused_with_a_hint() -> None:
    net = Net()
    x = net.input(1, 4, 8, 8, dtype=TensorProto.FLOAT16)
    y = tensor(net.Conv(x, weight(4, 4, 1, 1).astype(np.float16)), 1, 4, 8, 8, dtype=TensorProto.FLOAT16)
    with pytest.raises(ModelError, match="Its weights are float16: give the float32 model"):
        OnnxAdapter.load(net.model(y), AdapterOptions())


def test_a_float64_model_is_refused_with_the_names_of_its_weights() -> None:
    net = Net()
    x = net.input(None, 8, dtype=TensorProto.DOUBLE)
    y = net.Gemm(x, net.constant(weight(8, 3).astype(np.float64), "dense.weight"))
    model = net.model(tensor(y, None, 3, dtype=TensorProto.DOUBLE))
    with pytest.raises(
        ModelError, match=r"it holds Gemm\. Its weights are float64: give the float32 .*'dense\.weight'"
    ):
        OnnxAdapter.load(model, AdapterOptions())


def test_ops_that_are_left_out_because_of_float64_are_named(caplog: pytest.LogCaptureFixture) -> None:
    net = Net()
    first = net.Gemm(net.input(None, 8), weight(8, 8), name="first")
    wide = net.constant(weight(8, 3).astype(np.float64), "head.weight")
    second = net.MatMul(net.Cast(first, to=TensorProto.DOUBLE), wide, name="second")
    model = net.model(tensor(second, None, 3, dtype=TensorProto.DOUBLE))
    with opened(model) as adapter:
        assert [op.name for op in adapter.ops()] == ["first"]
    assert caplog.messages == [
        "1 op(s) compute in float64 and are left out: 'second'. Convert their weights to float32 ('head.weight')"
    ]
    caplog.clear()
    with opened(two_convs()):
        assert not caplog.messages


def test_an_input_that_is_a_sequence_is_refused_by_name() -> None:
    net = Net()
    net.inputs.append(helper.make_tensor_sequence_value_info("parts", TensorProto.FLOAT, [2, 4]))
    model = net.model(net.Gemm(net.ConcatFromSequence("parts", axis=0), weight(4, 3)))
    with pytest.raises(ModelError, match="input 'parts' is not a tensor"):
        OnnxAdapter.load(model, AdapterOptions())


@pytest.mark.parametrize("ir", [3, 4, 8, 10, 13, onnx.IR_VERSION, 99])
def test_every_ir_version_is_accepted(ir: int) -> None:
    model = two_convs(4)
    model.ir_version = ir
    if ir == 3:  # the format that wants initializers among the inputs
        model.graph.input.extend(tensor(entry.name, *entry.dims) for entry in model.graph.initializer)
    with opened(model) as adapter:
        assert [spec.name for spec in adapter.inputs] == ["x"]
        built = adapter.build(space(adapter).default_config())
        ort.InferenceSession(built.SerializeToString()).run(None, data(adapter)[0])


def test_a_model_without_opset_is_refused() -> None:
    model = two_convs(4)
    del model.opset_import[:]
    with pytest.raises(ModelError, match="imports no version of the standard operators"):
        OnnxAdapter.load(model, AdapterOptions())


def test_outputs_that_are_inputs_or_constants_stay() -> None:
    net = Net()
    x, kernel = net.input(2, 4, 8, 8), net.constant(weight(4, 4, 1, 1), "kernel")
    small = net.Constant(value_floats=[1.0, 2.0])
    net.constant(weight(500), "large")
    outputs = [net.Conv(x, kernel), tensor("x", 2, 4, 8, 8), tensor("kernel", 4, 4, 1, 1), small, tensor("large", 500)]
    with opened(net.model(*outputs)) as adapter:
        feed = data(adapter)[0]
        for config in (None, space(adapter).all_fp32(), space(adapter).default_config()):
            _, again, *constants = adapter.build(config)(feed)
            assert np.array_equal(again, feed["x"])
            for constant, expected in zip(constants, (weight(4, 4, 1, 1), [1.0, 2.0], weight(500)), strict=True):
                assert np.array_equal(constant, expected)


def test_opsets_functions_and_metadata_are_kept() -> None:
    model = two_convs(4)
    model.producer_name, model.doc_string = "exporter", "what it is for"
    model.graph.doc_string = "about the graph"
    model.metadata_props.add(key="labels", value="cat,dog")
    with opened(model) as adapter:
        for config in (None, space(adapter).default_config()):
            built = adapter.assemble(config).model
            assert (built.producer_name, built.doc_string) == ("exporter", "what it is for")
            assert (built.graph.name, built.graph.doc_string) == ("net", "about the graph")
            assert [(entry.key, entry.value) for entry in built.metadata_props] == [("labels", "cat,dog")]
            assert list(built.graph.input) == list(model.graph.input)
            assert list(built.graph.output) == list(model.graph.output)


def test_open_axes_are_found_and_kept() -> None:
    net = Net()
    x = net.input("batch", 4, "height", None)
    y = net.Conv(x, weight(8, 4, 3, 3), pads=[1, 1, 1, 1])
    rows = net.Slice(net.Shape(y), np.array([0]), np.array([1]))
    flat = net.Reshape(y, net.Concat(rows, np.array([-1]), axis=0))
    model = net.model(net.Gemm(net.Flatten(net.GlobalAveragePool(y)), weight(8, 3)), flat)
    with opened(model, calibrate=False) as adapter:
        assert adapter.inputs[0].shape == (None, 4, None, None)
        adapter.calibrate([weight(2, 4, 6, 5), weight(1, 4, 9, 9)])
        config = space(adapter).default_config()
        assert list(kernels(adapter, config)) == ["Conv_0", "GlobalAveragePool_5", "Gemm_7"]
        built = adapter.build(config)
        assert [out.shape for out in built(weight(3, 4, 7, 2))] == [(3, 3), (3, 8 * 7 * 2)]
        assert list(built.model.graph.input) == list(model.graph.input)
