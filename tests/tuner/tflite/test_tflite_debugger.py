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
from quaver.tflite.debugger import QuantizationDebugger

SAMPLES = np.random.default_rng(0).normal(size=(24, 8, 8, 2)).astype(np.float32)


def representative():
    for sample in SAMPLES:
        yield [sample[None]]


@pytest.fixture(scope="module")
def models():
    """A small network as a float and as a full-integer .tflite."""
    keras.utils.set_random_seed(0)
    x = image = keras.Input((8, 8, 2), name="image")
    x = layers.Conv2D(4, 3, activation="relu", name="conv1")(x)
    x = layers.MaxPooling2D(name="pool")(layers.Conv2D(8, 3, name="conv2")(x))
    network = keras.Model(image, layers.Dense(5, activation="softmax", name="dense")(layers.Flatten()(x)))
    converter = tf.lite.TFLiteConverter.from_keras_model(network)
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
    with pytest.raises(quaver.SettingsError, match="float_model_path or float_model_content"):
        QuantizationDebugger(quant_debug_model_content=b"", debug_dataset=representative)
    with pytest.raises(quaver.SettingsError, match="debug_dataset"):
        QuantizationDebugger(quant_debug_model_content=b"1", float_model_content=b"2")
