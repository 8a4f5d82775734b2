"""The benchmark on MLPerf Tiny's models finds its files, predicts in both runtimes, and scores."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks import mlperf_tiny


def test_files_are_found_in_a_checkout_and_in_a_plain_folder(tmp_path):
    inside = tmp_path / mlperf_tiny.INSIDE / "trained_models"
    inside.mkdir(parents=True)
    (inside / "a.tflite").touch()
    assert mlperf_tiny.find_file(tmp_path, "a.tflite") == inside / "a.tflite"
    (tmp_path / "a.tflite").touch()
    assert mlperf_tiny.find_file(tmp_path, "a.tflite") == tmp_path / "a.tflite"


def test_a_folder_without_the_models_is_refused_with_what_to_do(tmp_path):
    with pytest.raises(SystemExit, match=r"has no b\.tflite; give a checkout of https"):
        mlperf_tiny.find_file(tmp_path, "b.tflite")


def test_accuracy_counts_the_right_classes_also_in_a_last_short_batch():
    images = mlperf_tiny.Images(np.eye(5, dtype=np.float32), np.array([0, 1, 2, 0, 0]))
    assert images.accuracy(lambda batch: batch, batch=2) == pytest.approx(0.6)


def test_an_onnx_model_predicts_by_its_only_input(tmp_path):
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 3]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "neg", [x], [y])
    path = tmp_path / "neg.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    for runtime in ("onnxruntime", *(["openvino"] if find_spec("openvino") else [])):
        predict = mlperf_tiny.predictor(path, runtime, (3,))
        np.testing.assert_array_equal(predict(np.ones((2, 3), np.float32)), -np.ones((2, 3)))


def test_a_quantized_litert_model_gets_its_own_integers(tmp_path):
    keras = pytest.importorskip("keras")
    tf = pytest.importorskip("tensorflow")
    keras.utils.set_random_seed(0)
    network = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
    samples = np.random.default_rng(0).uniform(0, 255, (32, 4)).astype(np.float32)
    converter = tf.lite.TFLiteConverter.from_keras_model(network)
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.representative_dataset = lambda: ([sample[None]] for sample in samples)
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
    converter.inference_input_type = converter.inference_output_type = tf.int8
    path = tmp_path / "dense.tflite"
    path.write_bytes(converter.convert())
    integers = mlperf_tiny.predictor(path, "litert")(samples[:8])
    wanted = np.asarray(network(samples[:8]))
    assert integers.dtype == np.int8
    assert [np.corrcoef(a, b)[0, 1] > 0.99 for a, b in zip(integers.T, wanted.T, strict=True)] == [True] * 3
