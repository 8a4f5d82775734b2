"""A script for TFLite's debugger runs on quaver with its import line changed, and its figures are TFLite's."""

from __future__ import annotations

import math

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers
from scripts import run_script

import quaver
from quaver.tflite.debugger import QuantizationDebugger, QuantizationDebugOptions

SAMPLES = np.random.default_rng(0).normal(size=(24, 8, 8, 2)).astype(np.float32)


def representative():
    for sample in SAMPLES:
        yield [sample[None]]


def network():
    keras.utils.set_random_seed(0)
    x = image = keras.Input((8, 8, 2), name="image")
    x = layers.Conv2D(4, 3, activation="relu", name="conv1")(x)
    x = layers.MaxPooling2D(name="pool")(layers.Conv2D(8, 3, name="conv2")(x))
    return keras.Model(image, layers.Dense(5, activation="softmax", name="dense")(layers.Flatten()(x)))


@pytest.fixture(scope="module")
def models():
    """A small network as a float and as a full-integer .tflite."""
    converter = tf.lite.TFLiteConverter.from_keras_model(network())
    plain = converter.convert()
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.representative_dataset = representative
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
    return plain, converter.convert()


def test_the_walk_of_the_debugger(models, tmp_path):
    plain, quantized = models
    after = run_script(
        """
        import numpy as np
        import pandas as pd
        import yaml
        from tensorflow.lite.tools.optimize.debugging.python import debugger

        debug_options = debugger.QuantizationDebugOptions(
            layer_debug_metrics={"mean_abs_error": lambda diffs: np.mean(np.abs(diffs))},
            layer_direct_compare_metrics={"steps": lambda f, q, scale, zero: np.mean(np.abs(f / scale + zero - q))},
            model_debug_metrics={"argmax_accuracy": lambda f, q: np.argmax(f[0]) == np.argmax(q[0])},
        )
        quant_debugger = debugger.QuantizationDebugger(
            quant_debug_model_content=quantized,
            float_model_content=plain,
            debug_dataset=data_gen,
            debug_options=debug_options,
        )
        quant_debugger.run()
        for layer_name, metrics in quant_debugger.layer_statistics.items():
            print(layer_name, dict(metrics))
        with open(path, "w") as f:
            quant_debugger.layer_statistics_dump(f)
        data = pd.read_csv(path, converters={"scales": yaml.safe_load, "zero_points": yaml.safe_load})
        """,
        "tensorflow.lite.tools.optimize.debugging.python",
        "quaver.tflite",
        plain=plain,
        quantized=quantized,
        data_gen=representative,
        path=str(tmp_path / "stats.csv"),
    )
    found = after["quant_debugger"]
    assert found.model_statistics["argmax_accuracy"] > 0.9
    statistics = found.layer_statistics["conv1"]
    assert list(statistics) == [
        "num_elements", "stddev", "mean_error", "max_abs_error", "mean_squared_error", "mean_abs_error", "steps",
    ]  # fmt: skip
    assert statistics["num_elements"] == 6 * 6 * 4
    assert 0 < statistics["mean_abs_error"] <= math.sqrt(statistics["mean_squared_error"])
    assert statistics["steps"] < 1  # less than a step of its scale
    table = after["data"].set_index("op_name")
    scale, zero = table.loc["conv1", "scales"], table.loc["conv1", "zero_points"]
    assert len(scale) == len(zero) == 1 and scale[0] > 0
    numbers = {detail["index"] for detail in interpreter(quantized).get_tensor_details()}
    assert int(table.loc["conv1", "tensor_id"]) in numbers


@pytest.fixture(scope="module")
def debug_model():
    """The same network as the document makes a debug model of it."""
    from tensorflow.lite.python import convert

    converter = tf.lite.TFLiteConverter.from_keras_model(network())
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.representative_dataset = representative
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
    converter._experimental_calibrate_only = True
    return convert.mlir_quantize(converter.convert(), enable_numeric_verify=True)


def test_a_debug_model_alone_gives_what_tflites_own_debugger_gives(debug_model, tmp_path):
    from tensorflow.lite.tools.optimize.debugging.python import debugger

    (tmp_path / "debug.tflite").write_bytes(debug_model)
    metrics = {"mean_abs_error": lambda diffs: np.mean(np.abs(diffs))}
    theirs = debugger.QuantizationDebugger(
        quant_debug_model_content=debug_model,
        debug_dataset=representative,
        debug_options=debugger.QuantizationDebugOptions(layer_debug_metrics=metrics),
    )
    ours = QuantizationDebugger(
        quant_debug_model_path=str(tmp_path / "debug.tflite"),
        debug_dataset=representative,
        debug_options=QuantizationDebugOptions(layer_debug_metrics=metrics),
    )
    theirs.run()
    ours.run()
    assert list(ours.layer_statistics) == list(theirs.layer_statistics) and len(ours.layer_statistics) == 6
    for name, figures in theirs.layer_statistics.items():
        found = ours.layer_statistics[name]
        assert set(found) == set(figures)
        for statistic, value in figures.items():  # theirs is the mean of each sample's deviation, ours that of all
            rough = statistic == "stddev"
            assert found[statistic] == pytest.approx(float(value), rel=0.3 if rough else 1e-3, abs=1e-6), name
    with open(tmp_path / "stats.csv", "w") as file:
        ours.layer_statistics_dump(file)
    assert len((tmp_path / "stats.csv").read_text().splitlines()) == 7


def test_a_debug_model_beside_its_float_model(models, debug_model):
    plain, _ = models
    same = {"argmax_accuracy": lambda f, q: np.argmax(f[0]) == np.argmax(q[0])}
    found = QuantizationDebugger(
        quant_debug_model_content=debug_model,
        float_model_content=plain,
        debug_dataset=representative,
        debug_options=QuantizationDebugOptions(model_debug_metrics=same),
    )
    found.run()
    assert found.model_statistics["argmax_accuracy"] > 0.9 and len(found.layer_statistics) == 6


def test_a_quantized_model_alone_tells_how_it_uses_its_integers(models):
    _, quantized = models
    found = QuantizationDebugger(quant_debug_model_content=quantized, debug_dataset=representative)
    found.run()
    assert {"conv1", "conv2", "dense", "softmax"} < set(found.layer_statistics)
    figures = found.layer_statistics["conv1"]
    runner = interpreter(quantized)
    runner.allocate_tensors()
    row = next(row for row in found.diagnosis.tensors if row.op == "conv1")
    detail = next(entry for entry in runner.get_tensor_details() if entry["index"] == row.tensor_id)
    assert detail["quantization"] == (pytest.approx(figures["scale"]), figures["zero_point"])
    scale, zero = runner.get_input_details()[0]["quantization"]
    seen = []
    for sample in SAMPLES:
        given = sample[None] if not scale else np.clip(np.rint(sample[None] / scale) + zero, -128, 127).astype(np.int8)
        runner.set_tensor(runner.get_input_details()[0]["index"], given)
        runner.invoke()
        seen.append(runner.get_tensor(row.tensor_id))
    values = np.concatenate(seen)
    assert figures["elements"] == values.size and abs(figures["levels"] - len(np.unique(values))) <= 2
    assert figures["high"] == pytest.approx((int(values.max()) - row.zero_point) * row.scale, abs=row.scale)
    assert figures["saturated_high"] == pytest.approx(np.mean(values == 127), abs=1e-3)


def test_pools_reshapes_and_a_softmax_have_rows_as_in_the_debugger(models):
    found = QuantizationDebugger(
        quant_debug_model_content=models[1], float_model_content=models[0], debug_dataset=representative
    )
    found.run()
    rows = {row.kind: row for row in found.diagnosis.layers if not row.tunable}
    assert set(rows) == {"MAX_POOL_2D", "RESHAPE", "SOFTMAX"} and len(found.layer_statistics) == 6
    assert {row.precision for row in rows.values()} == {"int8"}
    assert rows["MAX_POOL_2D"].scales == rows["RESHAPE"].scales == rows["RESHAPE"].input_scales
    assert rows["MAX_POOL_2D"].local["max_abs_error"] <= 0.51 * rows["MAX_POOL_2D"].scales[0]
    assert rows["SOFTMAX"].scales == (1 / 256,) and 0 < rows["SOFTMAX"].error < 0.01
    before, after = rows["MAX_POOL_2D"].cumulative, rows["RESHAPE"].cumulative
    assert before["mean_squared_error"] == pytest.approx(after["mean_squared_error"], rel=1e-6)


def interpreter(content):
    return tf.lite.Interpreter(model_content=content, experimental_preserve_all_tensors=True)


def test_its_maximum_is_the_mean_over_samples_and_ours_the_largest_of_all(models):
    plain, quantized = models
    found = quaver.diagnose(plain, quantized, representative, samples=None, timing=False)
    figures = found.layer_statistics["conv1"]
    assert found.samples == len(SAMPLES)
    assert figures["num_elements"] == figures["elements_per_sample"] * len(SAMPLES)
    assert figures["mean_max_abs_error"] < figures["max_abs_error"]


@pytest.mark.parametrize("form", [representative, representative(), list(representative()), SAMPLES])
def test_samples_of_any_form_are_used_whole(models, form):
    assert quaver.diagnose(*models, form, samples=None, timing=False).samples == len(SAMPLES)


def test_what_is_missing_is_said_before_any_work():
    options = QuantizationDebugOptions(model_debug_metrics={"same": lambda f, q: 1.0})
    with pytest.raises(quaver.SettingsError, match="float_model_path or float_model_content"):
        QuantizationDebugger(quant_debug_model_content=b"", debug_dataset=representative, debug_options=options)
    with pytest.raises(quaver.SettingsError, match="quant_debug_model_path or quant_debug_model_content"):
        QuantizationDebugger(debug_dataset=representative)
    with pytest.raises(quaver.SettingsError, match="debug_dataset"):
        QuantizationDebugger(quant_debug_model_content=b"1", float_model_content=b"2")
