"""Every form of a model gives the same ops, the same trials and the same bytes, in every process."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import litert_models as models
import numpy as np
import pytest

import quaver
from quaver.adapters.litert import FrozenGraph, Signature
from quaver.adapters.litert.adapter import LiteRTAdapter
from quaver.adapters.onnxrt.adapter import OnnxAdapter
from quaver.adapters.options import AdapterOptions
from quaver.adapters.registry import load_model
from quaver.space import TuningSpace

FORMS = ["object", "keras", "h5", "saved_model", "graph", "function", "concrete", "tflite", "bytes"]

SCRIPT = """
import hashlib, json, sys
from pathlib import Path
from quaver.adapters.options import AdapterOptions
from quaver.adapters.litert.adapter import LiteRTAdapter
from quaver.space import TuningSpace

ranges, *paths = sys.argv[1:]
for path in paths:
    adapter = LiteRTAdapter.load(path, AdapterOptions())
    adapter.restore({"ranges": json.loads(Path(ranges).read_text())})
    space = TuningSpace(adapter.ops())
    config = space.default_config(calibration="entropy").fallback(*space.tunable[::3])
    print(json.dumps([adapter.fingerprint, [op.name for op in space.ops], adapter.assemble(config).sha256]))
print(json.dumps("tensorflow" in sys.modules))
"""


def described(adapter: LiteRTAdapter, ranges: Any) -> list[Any]:
    adapter.restore({"ranges": ranges})
    space = TuningSpace(adapter.ops())
    config = space.default_config(calibration="entropy").fallback(*space.tunable[::3])
    return [adapter.fingerprint, [op.name for op in space.ops], adapter.assemble(config).sha256]


@pytest.fixture(scope="module")
def expected(float_tflite: Path) -> tuple[Any, list[Any]]:
    adapter = LiteRTAdapter.load(float_tflite, AdapterOptions())
    ranges = adapter.calibrate(models.digits()[0][:64])["ranges"]
    return ranges, described(adapter, ranges)


@pytest.mark.parametrize("form", FORMS)
def test_each_form_gives_the_same_model(form: str, forms: dict[str, Any], expected: tuple[Any, list[Any]]) -> None:
    ranges, wanted = expected
    adapter = load_model(forms[form], AdapterOptions())
    assert isinstance(adapter, LiteRTAdapter)
    assert described(adapter, ranges) == wanted


def test_another_process_gives_the_same_model(
    forms: dict[str, Any], expected: tuple[Any, list[Any]], tmp_path: Path
) -> None:
    ranges, wanted = expected
    (tmp_path / "ranges.json").write_text(json.dumps(ranges))
    paths = [str(forms[form]) for form in ("keras", "h5", "saved_model", "graph", "tflite")]
    said = run(SCRIPT, tmp_path / "ranges.json", *paths)
    assert said == [wanted] * len(paths) + [True]


def test_tensorflow_is_never_imported_for_a_tflite(
    float_tflite: Path, expected: tuple[Any, list[Any]], tmp_path: Path
) -> None:
    ranges, wanted = expected
    (tmp_path / "ranges.json").write_text(json.dumps(ranges))
    assert run(SCRIPT, tmp_path / "ranges.json", float_tflite) == [wanted, False]


def run(script: str, *arguments: Any) -> list[Any]:
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)],
        env={**os.environ, "PYTHONHASHSEED": "7"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_ops_are_named_after_the_layers(digits_model: Any) -> None:
    adapter = LiteRTAdapter.load(digits_model, AdapterOptions())
    assert [op.name for op in adapter.ops()] == models.LAYERS
    assert {spec.name: spec.shape for spec in adapter.inputs} == {"image": (None, 8, 8, 1)}


def test_a_tflite_of_tensorflow_itself_has_the_same_ops(digits_model: Any) -> None:
    adapter = LiteRTAdapter.load(models.lite(digits_model), AdapterOptions())
    assert [op.name for op in adapter.ops()] == models.LAYERS
    assert adapter.inputs[0].name == "image"


def test_layers_of_any_name_and_nesting_are_recognised() -> None:
    import keras
    from keras import layers

    inner = keras.Sequential(
        [keras.Input((8, 8, 2)), layers.Conv2D(4, 3, name="conv_1"), layers.Conv2D(4, 3, name="conv")], name="part_2"
    )
    image = keras.Input((8, 8, 2), name="image")
    gate = layers.Dense(4, name="dense_7")(layers.GlobalAveragePooling2D(name="pool")(image))
    x = layers.Multiply(name="gated")([inner(image), layers.Reshape((1, 1, 4))(gate)])
    adapter = LiteRTAdapter.load(
        keras.Model({"image": image}, layers.Dense(3, name="out")(layers.Flatten()(x))), AdapterOptions()
    )
    assert sorted(op.name for op in adapter.ops()) == [
        "dense_7", "gated", "out", "part_2/conv", "part_2/conv_1", "pool",
    ]  # fmt: skip


def test_an_input_without_a_name_keeps_the_one_it_has_in_the_file(tmp_path: Path) -> None:
    import keras
    from keras import layers

    for _ in range(3):
        keras.Input((2,))
    model = keras.Sequential([keras.Input((8,)), layers.Dense(4), layers.Dense(2)])
    model.save(tmp_path / "model.keras")
    kept = [LiteRTAdapter.load(form, AdapterOptions()) for form in (model, tmp_path / "model.keras")]
    assert kept[0].inputs == kept[1].inputs
    assert kept[0].fingerprint == kept[1].fingerprint


def test_several_inputs_and_outputs(tmp_path: Path) -> None:
    model = models.twins()
    adapter, space = models.opened(model)
    assert [spec.name for spec in adapter.inputs] == ["left", "right"]
    assert [op.name for op in space.ops if "shared" not in op.name] == ["Add", "both", "one"]
    feed = models.samples(adapter, 1, 5)[0]
    expected = model([feed["left"], feed["right"]])
    built = adapter.build(None)
    one, other = built(feed["left"], feed["right"])
    np.testing.assert_allclose(one, expected["one"], atol=1e-5)
    np.testing.assert_allclose(other, expected["other"], atol=1e-5)
    again = built(right=feed["right"], left=feed["left"])
    np.testing.assert_array_equal(again[0], one)
    int8 = adapter.build(space.default_config())(feed)
    assert models.relative_error(one, int8[0]) < 0.01 and models.relative_error(other, int8[1]) < 0.01


def test_the_batch_can_have_any_size() -> None:
    adapter, space = models.opened(models.transformer())
    assert adapter.inputs[0].shape == (None, None)
    for model in (adapter.build(None), adapter.build(space.default_config())):
        for shape in ((1, 5), (6, 5), (2, 9), (6, 5)):
            assert model(np.ones(shape, np.int32)).shape == (shape[0], 5)


def test_a_recurrent_model_takes_single_samples_and_keeps_no_state(caplog: pytest.LogCaptureFixture) -> None:
    model = models.recurrent()
    adapter, space = models.opened(model)
    assert adapter.inputs[0].shape == (1, 12, 4)
    assert "single samples" in caplog.text
    feeds = models.samples(adapter, 2)
    for built in (adapter.build(None), adapter.build(space.default_config())):
        first, second = built.run(feeds[0]), built.run(feeds[1])
        np.testing.assert_array_equal(built.run(feeds[0]), first)
        np.testing.assert_allclose(second, model(feeds[1]["steps"]), atol=0.1)


def test_a_frozen_graph_with_named_inputs_and_outputs(forms: dict[str, Any], tmp_path: Path) -> None:
    graph = FrozenGraph(forms["graph"], ["image:0"], ["digits_1/pool_1/Mean"])
    adapter = LiteRTAdapter.load(graph, AdapterOptions())
    assert [op.name for op in adapter.ops()] == models.LAYERS[:-1]
    adapter.calibrate(models.digits()[0][:8])
    assert adapter.build(None)(np.zeros((3, 8, 8, 1), np.float32)).shape == (3, 48)


def test_a_signature_among_several(tmp_path: Path) -> None:
    import tensorflow as tf

    class Two(tf.Module):
        def __init__(self) -> None:
            self.weight = tf.Variable(np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32))

        @tf.function(input_signature=[tf.TensorSpec([None, 4], name="x")])
        def plain(self, x: Any) -> Any:
            return {"result": tf.matmul(x, self.weight)}

        @tf.function(input_signature=[tf.TensorSpec([None, 4], name="y")])
        def squashed(self, y: Any) -> Any:
            return {"result": tf.tanh(tf.matmul(y, self.weight))}

    module, folder = Two(), str(tmp_path / "two")
    tf.saved_model.save(module, folder, {"plain": module.plain, "squashed": module.squashed})
    with pytest.raises(quaver.QuaverError, match=r"'plain', 'squashed'. Choose one with"):
        LiteRTAdapter.load(folder, AdapterOptions())
    content = tf.lite.TFLiteConverter.from_saved_model(folder, ["plain", "squashed"]).convert()
    for model in (folder, content):
        kinds = [
            [op.kind for op in LiteRTAdapter.load(Signature(model, name), AdapterOptions()).ops()]
            for name in ("plain", "squashed")
        ]
        assert kinds == [["FULLY_CONNECTED"], ["FULLY_CONNECTED", "TANH"]]
        with pytest.raises(quaver.QuaverError, match="no signature 'third'"):
            LiteRTAdapter.load(Signature(model, "third"), AdapterOptions())


def test_models_are_accepted_by_the_right_adapter(forms: dict[str, Any], float_tflite: Path) -> None:
    for form in forms.values():
        assert LiteRTAdapter.accepts(form)
    onnx_model = (models.WEIGHTS.parent / "digits_resnet.onnx").read_bytes()
    assert not LiteRTAdapter.accepts(onnx_model) and OnnxAdapter.accepts(onnx_model)
    assert isinstance(load_model(float_tflite.read_bytes(), AdapterOptions()), LiteRTAdapter)


def test_the_users_model_is_not_changed(digits_model: Any) -> None:
    def content() -> str:
        return hashlib.sha256(b"".join(weight.tobytes() for weight in digits_model.get_weights())).hexdigest()

    before, layers = content(), [layer.get_config() for layer in digits_model.layers]
    adapter, space = models.opened(digits_model, models.digits()[0][:16])
    adapter.build(space.default_config())
    assert content() == before and [layer.get_config() for layer in digits_model.layers] == layers
