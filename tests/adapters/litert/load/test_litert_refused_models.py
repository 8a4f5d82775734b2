"""Models that cannot be tuned are refused before any work, with words that help."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import flatbuffers
import keras
import litert_models as models
import numpy as np
import pytest
import tensorflow as tf
from ai_edge_litert import schema_py_generated as schema
from keras import layers

import quaver
from quaver.adapters.comparison import Comparison, compare_models, runner_of
from quaver.adapters.litert import FrozenGraph
from quaver.adapters.litert.adapter import LiteRTAdapter
from quaver.adapters.litert.load.graph import Graph
from quaver.adapters.options import AdapterOptions
from quaver.errors import ModelError, SettingsError


def refused(model: Any, match: str) -> None:
    with pytest.raises(ModelError, match=match):
        LiteRTAdapter.load(model, AdapterOptions())


def test_a_quantized_tflite_is_refused(float_tflite: Path) -> None:
    adapter, space = models.opened(float_tflite, models.digits()[0][:8])
    refused(adapter.assemble(space.default_config()).model, "quantized already.*starts from the float model")


def test_weights_of_8_or_16_bits_are_refused() -> None:
    model = keras.Sequential([keras.Input((64,)), layers.Dense(64)])
    dynamic = models.lite(model, optimizations=[tf.lite.Optimize.DEFAULT])
    halves = models.lite(
        model,
        optimizations=[tf.lite.Optimize.DEFAULT],
        target_spec=tf.lite.TargetSpec(supported_types=[tf.float16]),
    )
    refused(dynamic, "quantized already")
    refused(halves, "float16: pass the float32 model")


def test_objects_that_are_no_models_are_refused(tmp_path: Path) -> None:
    refused(tmp_path / "none.keras", r"no model at .*none\.keras")
    refused(FrozenGraph(tmp_path / "none.pb"), "no model at")
    (tmp_path / "none.tflite").touch()
    refused(FrozenGraph(tmp_path / "none.pb"), r"there is .*none\.tflite")
    (tmp_path / "text.tflite").write_text("not a model")
    refused(tmp_path / "text.tflite", "lacks the identifier TFL3")
    refused(b"\0\0\0\0TFL3" + b"\1" * 64, "cannot be read")
    (tmp_path / "broken.pb").write_text("not a graph")
    refused(tmp_path / "broken.pb", "cannot be read as a frozen graph")
    (tmp_path / "broken.keras").write_text("not a model")
    refused(tmp_path / "broken.keras", "Keras cannot load")
    refused(tf.constant(1.0), "is not a model; quaver accepts a Keras model")


def test_a_file_of_weights_alone_is_refused(digits_model: Any, tmp_path: Path) -> None:
    digits_model.save_weights(tmp_path / "only.weights.h5")
    refused(tmp_path / "only.weights.h5", "Keras cannot load.*weights alone")


def test_unknown_inputs_are_refused() -> None:
    class Own(keras.Model):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.dense = layers.Dense(3)

        def call(self, x: Any) -> Any:
            return self.dense(x)

    refused(Own(), "inputs of the Keras model .* are not known")
    refused(tf.function(lambda x: x + 1), "inputs of the tf.function are not known.*input_signature")


def test_a_graph_that_is_not_frozen_or_lacks_the_node(forms: dict[str, Any], tmp_path: Path) -> None:
    graph = tf.Graph()
    with graph.as_default():
        tf.compat.v1.get_variable("loose", [2]).op  # noqa: B018
    (tmp_path / "loose.pb").write_bytes(graph.as_graph_def().SerializeToString())
    refused(tmp_path / "loose.pb", "not frozen: 'loose' is a variable")
    refused(FrozenGraph(forms["graph"], outputs=["nowhere"]), "has no node 'nowhere'")
    constant = tf.Graph()
    with constant.as_default():
        tf.constant(1.0)
    (tmp_path / "constant.pb").write_bytes(constant.as_graph_def().SerializeToString())
    refused(tmp_path / "constant.pb", r"inputs of the graph .* cannot be inferred: name them with .*FrozenGraph")


def test_a_recurrent_saved_model_without_a_batch_size(tmp_path: Path) -> None:
    models.recurrent().export(tmp_path / "saved", verbose=False)
    refused(tmp_path / "saved", "cannot convert.*recurrent layers need a batch of known size")


def test_a_model_without_int8_ops_is_refused() -> None:
    x = keras.Input((4,), name="x")
    refused(keras.Model(x, keras.ops.sin(x)), "nothing in the model can run in int8: it holds SIN")


def test_weights_in_float64_are_named() -> None:
    x = keras.Input((4,), name="x", dtype="float64")
    wide = keras.Model(x, layers.Dense(3, dtype="float64", name="dense")(x))
    refused(wide, r"cannot convert.*Its weights are float64: pass the float32 model \('.*dense")


def test_quant_formats_of_other_adapters_are_refused(float_tflite: Path, tmp_path: Path) -> None:
    for quant_format in ("qdq", "qoperator"):
        with pytest.raises(SettingsError, match=f"unknown quant_format {quant_format!r} for litert"):
            LiteRTAdapter.load(float_tflite, AdapterOptions(quant_format=quant_format))
        with pytest.raises(SettingsError, match="full_integer"):
            quaver.fit(
                float_tflite, calib_dataloader=models.digits()[0][:8], eval_func=models.accuracy,
                quant_format=quant_format, workspace=tmp_path / "run",
            )  # fmt: skip
    assert not (tmp_path / "run").exists()


def test_a_name_that_belongs_to_another_framework_is_refused(float_tflite: Path, tmp_path: Path) -> None:
    model = LiteRTAdapter.load(float_tflite, AdapterOptions()).assemble(None)
    assert isinstance(model, quaver.Model)
    with pytest.raises(quaver.BuildError, match=r"model\.onnx' is a file name for ONNX.*as 'model\.tflite'"):
        model.save(tmp_path / "model.onnx")
    assert model.save(tmp_path / "model.lite").read_bytes() == model.save(tmp_path / "model").read_bytes()


@pytest.mark.parametrize(("kind", "repair"), [("ADD", "bias_correction"), ("CONV_2D", "smoothing:0.5")])
def test_a_repair_is_refused_by_name(float_tflite: Path, kind: str, repair: str) -> None:
    adapter, space = models.opened(float_tflite, models.digits()[0][:8])
    config = space.default_config()
    name = next(op.name for op in space.ops if op.kind == kind)
    changed = config.replace({name: replace(config[name], repairs=(repair,))})
    for build in (adapter.build, adapter.assemble, lambda config: adapter.record_outputs(config, [name])):
        with pytest.raises(quaver.BuildError, match=f"op '{name}' .* is to be built with repair '{repair}', which lit"):
            build(changed)


def test_a_model_that_draws_random_numbers_is_refused() -> None:
    x = keras.Input((4,), name="x")

    class Noise(layers.Layer):  # type: ignore[misc]
        def call(self, x: Any) -> Any:
            return x + tf.random.uniform([4])

    model = keras.Model(x, Noise()(layers.Dense(4, name="dense")(x)))
    with pytest.raises(ModelError, match=r"changes what it computes: .* draw random numbers"):
        models.opened(model)


def test_a_conversion_that_went_wrong_is_noticed(float_tflite: Path) -> None:
    adapter, _ = models.opened(float_tflite, models.digits()[0][:8])
    model, feeds = adapter.assemble(None), adapter.probe_samples[:1]
    right = model.run(feeds[0])

    def compared(source: Any) -> Comparison:
        return compare_models(feeds, adapter.inputs, lambda feed: [source], runner_of(model))

    assert compared(right).difference < 1e-6
    assert 0 < compared(right + 1e-5).difference < 1e-4
    with pytest.raises(ModelError, match=r"converting it changes what it computes: 'output 0' differs by 9\.1e-02"):
        compared(right + 0.1 * right.max())
    with pytest.raises(ModelError, match=r"'output 0' has the shape \[1, 10\] instead of \[1, 9\]"):
        compared(right[:, :9])
    model.run = lambda feed: np.full_like(right, np.nan)  # type: ignore[method-assign]
    with pytest.raises(ModelError, match="'output 0' has NaN or infinity in other places"):
        compared(right)


def test_calibration_data_that_drives_the_model_to_infinity(digits_model: Any) -> None:
    with pytest.raises(quaver.CalibrationError, match=r"holds NaN or infinity on calibration data"):
        models.opened(digits_model, np.full((4, 8, 8, 1), np.inf, np.float32))


def test_old_files_without_signature_or_names_are_repaired(float_tflite: Path) -> None:
    model = schema.ModelT.InitFromObj(schema.Model.GetRootAs(bytearray(float_tflite.read_bytes())))
    model.signatureDefs, model.description = None, b"old"
    for code in model.operatorCodes:
        code.deprecatedBuiltinCode, code.builtinCode = code.builtinCode, 0
    for tensor in model.subgraphs[0].tensors[-6:]:
        tensor.name = b"same"
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    adapter, space = models.opened(bytes(builder.Output()), models.digits()[0][:64])
    assert [op.kind for op in space.ops] == [
        op.kind for op in models.opened(float_tflite, models.digits()[0][:8])[1].ops
    ]
    assert models.accuracy(adapter.build(space.default_config())) > 0.95
    assert Graph(adapter.assemble(None).model).input_specs()[0].name == "image"


@pytest.mark.parametrize("form", ["object", "keras", "h5", "saved_model", "graph", "function"])
def test_without_tensorflow_it_says_what_to_install(
    form: str, forms: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    refused(
        forms[form], r"needs tensorflow, which is not installed: pip install 'tensorflow>=2\.18' 'ai-edge-quantizer"
    )


@pytest.mark.parametrize("form", ["object", "keras", "saved_model", "tflite", "bytes"])
def test_without_the_extra_it_says_what_to_install(
    form: str, forms: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ai_edge_litert", "ai_edge_quantizer", "tensorflow"):
        monkeypatch.setitem(sys.modules, name, None)
    assert LiteRTAdapter.accepts(forms[form])
    refused(
        forms[form], r"needs ai_edge_litert and ai_edge_quantizer.*pip install 'tensorflow>=2\.18' 'ai-edge-quantizer"
    )


def test_recognising_a_model_imports_nothing_heavy(forms: dict[str, Any]) -> None:
    code = """
import sys
from quaver.adapters.registry import adapters
paths = sys.argv[1:]
assert all(adapters()["litert"].accepts(path) for path in paths)
print([name for name in ("tensorflow", "keras", "ai_edge_litert", "ai_edge_quantizer") if name in sys.modules])
"""
    paths = [str(forms[form]) for form in ("keras", "h5", "saved_model", "graph", "tflite")]
    done = subprocess.run([sys.executable, "-c", code, *paths], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
