"""A frozen graph of TensorFlow: its node names in rules, and the files that come out of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

import quaver
from quaver.adapters.litert.adapter import LiteRTAdapter
from quaver.adapters.options import AdapterOptions

IMAGES = np.random.default_rng(0).normal(size=(8, 8, 8, 3)).astype(np.float32)


@pytest.fixture(scope="module")
def frozen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two convolutions in one outer scope."""
    rng = np.random.default_rng(0)
    shapes = [(3, 3, 3, 4), (3, 3, 4, 4)]
    weights = [tf.constant(rng.normal(size=shape).astype(np.float32)) for shape in shapes]

    @tf.function(input_signature=[tf.TensorSpec((None, 8, 8, 3), tf.float32, name="image")])
    def network(x: tf.Tensor) -> tf.Tensor:
        for number, weight in enumerate(weights):
            with tf.name_scope(f"v0/cg/conv{number}"):
                x = tf.nn.relu(tf.nn.conv2d(x, weight, 1, "SAME", name="conv2d/Conv2D"), name="Relu")
        return tf.reduce_mean(x, [1, 2])

    path = tmp_path_factory.mktemp("frozen") / "model.pb"
    graph = convert_variables_to_constants_v2(network.get_concrete_function()).graph
    path.write_bytes(graph.as_graph_def().SerializeToString())
    return path


@pytest.fixture(scope="module")
def result(frozen: Path, tmp_path_factory: pytest.TempPathFactory) -> quaver.TuneResult:
    return quaver.fit(
        frozen,
        calib_dataloader=IMAGES,
        strategy="basic",
        op_name_dict={"v0/cg/conv0/conv2d/Conv2D": {"activation": {"dtype": ["fp32"]}}},
        workspace=tmp_path_factory.mktemp("run") / "run",
        verbose=0,
    )


def test_the_name_of_a_node_of_the_graph_means_the_op_it_became(result: quaver.TuneResult) -> None:
    assert result.best is not None
    (kept,) = (name for name in result.best.config.fp32_ops if "conv" in name)
    assert "conv0" in kept and any("conv1" in name for name in result.best.config.quantized_ops)


@pytest.mark.parametrize("name", ["int8.pb", "saved_model"])
def test_saving_a_graph_or_saved_model_is_refused_with_the_reason(
    result: quaver.TuneResult, name: str, tmp_path: Path
) -> None:
    if name == "saved_model":
        (tmp_path / name).mkdir()
    with pytest.raises(quaver.QuaverError, match=r"\.tflite.*TensorFlow has no int8 kernels"):
        result.save(tmp_path / name)


def test_an_input_mask_stays_float_at_any_distance_from_the_softmax() -> None:
    rng = np.random.default_rng(0)
    weight = tf.constant(rng.normal(size=(8, 8)).astype(np.float32))

    @tf.function(
        input_signature=[
            tf.TensorSpec((None, 8), tf.float32, name="x"),
            tf.TensorSpec((None, 8), tf.float32, name="mask"),
        ]
    )
    def network(x: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        scores = tf.multiply(tf.add(tf.matmul(x, weight), mask, name="masked"), 0.5)
        return tf.matmul(tf.nn.softmax(scores - tf.reduce_max(scores, -1, keepdims=True)), weight)

    mask = np.where(rng.random((16, 8)) < 0.3, -1e9, 0.0).astype(np.float32)
    adapter = LiteRTAdapter.load(network, AdapterOptions())
    adapter.calibrate({"x": rng.normal(size=(16, 8)).astype(np.float32), "mask": mask})
    kept = [op.kind for op in adapter.ops() if op.name in adapter.ops_with_mask_values]
    assert "ADD" in kept and "FULLY_CONNECTED" not in kept
    adapter.close()
