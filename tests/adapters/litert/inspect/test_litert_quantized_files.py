"""Already quantized .tflite files, whoever made them, and what diagnosis writes for other tools."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import diagnosis_networks as nets
import litert_models as models
import numpy as np
import pytest
import tensorflow as tf
from ai_edge_litert import schema_py_generated as schema
from ai_edge_quantizer import quantizer

import quaver
from quaver.adapters.litert.adapter import LiteRTAdapter
from quaver.adapters.litert.load.graph import OPERATOR_KINDS
from quaver.adapters.options import AdapterOptions
from quaver.space import TuningSpace


def diagnosed(model: Any, quantized: Any = None, data: Any = None, **settings: Any) -> quaver.Diagnosis:
    data = nets.images() if data is None else data
    return quaver.diagnose(model, quantized, data, threads=1, timing=False, **settings)


def own_file(model: Any, path: Path, data: Any) -> Path:
    adapter = LiteRTAdapter.load(model, AdapterOptions(threads=1))
    adapter.calibrate(data)
    return adapter.assemble(TuningSpace(adapter.ops()).default_config()).save(path)


def converted(model: Any, path: Path, data: Any, **settings: Any) -> Path:
    """Quantized by TensorFlow's own converter; without data its weights alone."""

    def representative() -> Iterator[list[Any]]:
        yield from ([sample[None]] for sample in data)

    wishes = {"optimizations": [tf.lite.Optimize.DEFAULT], **settings}
    if data is not None:
        wishes["representative_dataset"] = representative
    path.write_bytes(models.lite(model, **wishes))
    return path


def int8_operators(content: bytes) -> set[tuple[str, str]]:
    """Type and output of the operators that write int8, by the schema alone; casts do not count."""
    file = schema.ModelT.InitFromPackedBuf(content, 0)
    graph = file.subgraphs[0]
    found = set()
    for operator in graph.operators:
        kind = OPERATOR_KINDS[file.operatorCodes[operator.opcodeIndex].builtinCode]
        output = graph.tensors[operator.outputs[0]]
        if output.type == schema.TensorType.INT8 and kind not in ("QUANTIZE", "DEQUANTIZE"):
            found.add((kind, output.name.decode()))
    return found


@pytest.mark.parametrize("make", [lambda: nets.joined(1e-3), nets.outlying_activation, models.mixed])
def test_quavers_own_file_gives_the_figures_of_its_configuration(make: Any, tmp_path: Path) -> None:
    model = make()
    shape = (32, *model.inputs[0].shape[1:])
    data = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    by_config = diagnosed(model, None, data)
    by_file = diagnosed(model, own_file(model, tmp_path / "int8.tflite", data), data)
    assert by_file.precisions == by_config.precisions
    assert by_file.output_error == pytest.approx(by_config.output_error, rel=1e-6)
    # Another mode is advice on a configuration. The modes that a file could have had are unknown.
    assert {(cause.op, cause.kind) for cause in by_file.causes} == {
        (cause.op, cause.kind) for cause in by_config.causes if cause.kind != "other_mode"
    }
    assert by_file.weights == by_config.weights
    for row, other in zip(by_file.layers, by_config.layers, strict=True):
        assert row.op == other.op and row.cumulative == pytest.approx(other.cumulative, nan_ok=True)
        assert (row.scales, row.zero_points, row.input_scales) == (other.scales, other.zero_points, other.input_scales)
        assert row.local == pytest.approx(other.local, nan_ok=True)


def test_a_file_of_tensorflows_converter_is_inspected_like_ours(digits_model: Any, tmp_path: Path) -> None:
    data = models.digits()[0][:64]
    found = diagnosed(digits_model, converted(digits_model, tmp_path / "int8.tflite", data), data)
    ours = diagnosed(digits_model, None, data)
    assert found.precisions == ours.precisions == dict.fromkeys(models.LAYERS, "int8")
    assert not found.causes and found.output_error < 1e-3
    theirs = {row.op: row for row in found.weights}
    for row in ours.weights:
        assert theirs[row.op].before == row.before and theirs[row.op].mse == pytest.approx(row.mse, rel=0.05)
    layers = {row.op: row for row in found.layers}
    tunable = [row for row in ours.layers if row.tunable]
    ratios = [layers[row.op].error / row.error for row in tunable]  # some ranges differ by the calibration
    assert 0.8 < np.median(ratios) < 1.25 and max(ratios) < 4
    scales = [layers[row.op].scales[0] / row.scales[0] for row in tunable]
    assert 0.99 < np.median(scales) < 1.01 and max(scales) < 3


def test_inputs_and_outputs_in_8_bits_are_fed_and_read_as_float(tmp_path: Path) -> None:
    kinds = {"inference_input_type": tf.int8, "inference_output_type": tf.uint8}
    path = converted(nets.chain(), tmp_path / "int8.tflite", nets.images(), **kinds)
    found = diagnosed(nets.chain(), path)
    assert set(found.precisions.values()) == {"int8"} and not found.causes and found.output_error < 1e-3
    profile = quaver.profile(nets.chain(), path, nets.images(4), batch=4, threads=1, runs=3, warmup=1)
    assert profile.against is not None and profile.precisions == found.precisions


def test_a_file_with_int8_weights_alone_shows_their_error(tmp_path: Path) -> None:
    model = nets.chain()
    found = diagnosed(model, converted(model, tmp_path / "dynamic.tflite", None))
    assert set(found.precisions.values()) == {"int8"}
    assert all(row.mse > 0 for row in found.weights)
    assert all(row.scales == row.input_scales == () for row in found.layers)
    assert all(row.local["mean_squared_error"] > 0 for row in found.layers)


def test_ops_that_are_missing_from_a_file_are_reported(
    digits_model: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = models.digits()[0][:32]
    path = own_file(digits_model, tmp_path / "int8.tflite", data)
    file = schema.ModelT.InitFromPackedBuf(path.read_bytes(), 0)
    for tensor in file.subgraphs[0].tensors:
        if tensor.name == b"block1_pointwise":
            tensor.name = b"elsewhere"
    from quaver.adapters.litert.load.graph import write

    path.write_bytes(write(file))
    with caplog.at_level(logging.WARNING):
        found = diagnosed(digits_model, path, data)
    assert "1 of 16 ops are missing from the quantized model" in caplog.text and "block1_pointwise" in caplog.text
    assert "block1_pointwise" not in {row.op for row in found.weights}
    row = next(row for row in found.layers if row.op == "block1_pointwise")
    assert row.precision == "fp32" and row.local["num_elements"] == row.cumulative["num_elements"] == 0


def test_a_file_is_timed_by_the_ops_of_the_float_model(tmp_path: Path) -> None:
    path = own_file(nets.chain(), tmp_path / "int8.tflite", nets.images())
    adapter = LiteRTAdapter.load(nets.chain(), AdapterOptions(threads=1))
    adapter.keep_probe_samples(nets.images(8))
    seconds = adapter.inspect_quantized(path).seconds()
    assert set(seconds) == {"", "first", "second", "third"}
    assert all(seconds[name] > 0 for name in ("first", "second", "third"))


def test_a_file_of_another_model_is_refused(digits_model: Any, tmp_path: Path) -> None:
    other = own_file(nets.chain(), tmp_path / "int8.tflite", nets.images())
    with pytest.raises(quaver.ModelError, match="made from another model"):
        diagnosed(digits_model, other, models.digits()[0][:8])
    with pytest.raises(quaver.ModelError, match="no op of the float model is found"):
        diagnosed(nets.logarithm(1.0), other)
    with pytest.raises(quaver.ModelError, match="no model at"):
        diagnosed(nets.chain(), tmp_path / "nowhere.tflite")
    (tmp_path / "text.tflite").write_text("this is no model at all")
    with pytest.raises(quaver.ModelError, match=r"not a \.tflite"):
        diagnosed(nets.chain(), tmp_path / "text.tflite")


@pytest.mark.parametrize("case", ["planted", "mixed"])
def test_the_recipe_makes_the_quantizer_choose_the_ops_of_the_configuration(case: str, tmp_path: Path) -> None:
    if case == "planted":
        model, data = models.trained(1), models.digits()[0][:32]
    else:
        model, data = models.mixed(), np.random.default_rng(0).standard_normal((16, 16, 16, 3)).astype(np.float32)
    found = diagnosed(model, None, data)
    recipe = found.save(tmp_path)["recipe.json"]
    assert json.loads(recipe.read_text()) and found.fallback
    adapter = LiteRTAdapter.load(model, AdapterOptions(threads=1))
    float_file = adapter.assemble(None).save(tmp_path / "float.tflite")
    theirs = quantizer.Quantizer(str(float_file))
    theirs.load_quantization_recipe(str(recipe))
    name = adapter.inputs[0].name
    ranges = theirs.calibrate({"serving_default": [{name: data[at : at + 1]} for at in range(4)]})
    content = bytes(theirs.quantize(ranges, enable_progress_report=False).quantized_model)
    wanted = {op.name: op.kind for op in found.ops if op.name not in found.fallback}
    tensors = {row.op: row.tensor for row in found.layers}
    assert int8_operators(content) == {(kind, tensors[op]) for op, kind in wanted.items()}
    file = schema.ModelT.InitFromPackedBuf(content, 0).subgraphs[0]
    assert {file.tensors[at].type for at in (*file.inputs, *file.outputs)} == {schema.TensorType.FLOAT32}
    repaired = diagnosed(model, content, data)
    assert {op for op, how in repaired.precisions.items() if how == "fp32"} == set(found.fallback)
