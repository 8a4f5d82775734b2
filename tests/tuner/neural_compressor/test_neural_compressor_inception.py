"""The scripts around Inception v3 run with their import lines changed: on a small graph with its node names."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from scripts import run_script
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

from quaver.adapters.litert.load.image_records import IMAGE, LABEL, ImageRecords
from quaver.errors import CalibrationError, SettingsError
from quaver.neural_compressor.metric import TensorflowTopK
from quaver.neural_compressor.utils.create_obj_from_config import create_dataloader

SIDE, CLASSES, COUNT = 24, 10, 120
# The first convolution has weights that are this many times as large, for a channel that is almost zero.
FACTOR = 300.0
ARGUMENTS = {
    "batch_size": 10,
    "dataset": {"ImageRecord": {"root": "data"}},
    "transform": {"BilinearImagenet": {"height": SIDE, "width": SIDE}},
    "filter": None,
}


def write_graph(path: Path) -> tf.types.experimental.ConcreteFunction:
    """Write a frozen graph of two convolutions and a classifier."""
    rng = np.random.default_rng(1)
    damped = tf.constant(np.float32([1, 1, 1 / FACTOR**2]))
    first = rng.normal(size=(3, 3, 3, 8)).astype(np.float32) * np.float32([1, 1, FACTOR])[:, None]
    second, last = (rng.normal(size=shape).astype(np.float32) for shape in ((3, 3, 8, 16), (16, CLASSES)))

    @tf.function(input_signature=[tf.TensorSpec((None, SIDE, SIDE, 3), tf.float32, name="input")])
    def network(x: tf.Tensor) -> tf.Tensor:
        x = tf.tanh(x) * damped
        for number, (weight, stride) in enumerate(((first, 1), (second, 2))):
            with tf.name_scope(f"v0/cg/conv{number}"):
                x = tf.nn.relu(tf.nn.conv2d(x, weight, stride, "SAME", name="conv2d/Conv2D"), name="Relu")
        return tf.nn.softmax(tf.matmul(tf.reduce_mean(x, [1, 2]), last) / 2, name="predict")

    concrete = network.get_concrete_function()
    path.write_bytes(convert_variables_to_constants_v2(concrete).graph.as_graph_def().SerializeToString())
    return concrete


def write_records(folder: Path, images: list[np.ndarray], labels: list[int]) -> None:
    """Write two files of ImageNet's format, whose records alternate when they are read."""
    folder.mkdir(exist_ok=True)
    for part in (0, 1):
        with tf.io.TFRecordWriter(str(folder / f"validation-0000{part}-of-00002")) as writer:
            for image, label in list(zip(images, labels, strict=True))[part::2]:
                jpeg = tf.io.encode_jpeg(image, quality=100).numpy()
                features = {
                    IMAGE: tf.train.Feature(bytes_list=tf.train.BytesList(value=[jpeg])),
                    LABEL: tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
                }
                writer.write(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The graph, and images with the labels that the graph gives them, without the undecided half."""
    made = tmp_path_factory.mktemp("inception")
    network, rng = write_graph(made / "inception.pb"), np.random.default_rng(0)
    coarse = rng.integers(0, 256, size=(2 * COUNT, 4, 4, 3)).astype(np.uint8)
    images = [np.kron(image, np.ones((8, 8, 1), np.uint8)) for image in coarse]
    write_records(made / "data", images, [0] * len(images))
    inputs = np.stack([image for image, _ in ImageRecords(made / "data", SIDE, SIDE)])
    scores = np.asarray(network(tf.constant(inputs)))
    ranked = np.sort(scores, axis=1)
    decided = sorted(np.argsort(ranked[:, -2] - ranked[:, -1])[:COUNT])
    write_records(made / "data", [images[at] for at in decided], [int(scores[at].argmax()) for at in decided])
    return made


@pytest.fixture(autouse=True)
def _in_the_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)


EVALUATE = """
import time
import numpy as np

def evaluate(model, eval_dataloader, metric):
    from neural_compressor.model import Model
    model = Model(model)
    input_tensor = model.input_tensor
    output_tensor = model.output_tensor if len(model.output_tensor) > 1 else model.output_tensor[0]
    metric.reset()
    latencies = []
    for inputs, labels in eval_dataloader:
        feed_dict = dict(zip(input_tensor, np.array([inputs])))
        start = time.time()
        predictions = model.sess.run(output_tensor, feed_dict)
        latencies.append(time.time() - start)
        metric.update(predictions, labels)
    return metric.result()

from neural_compressor.utils.create_obj_from_config import create_dataloader
from neural_compressor.metric import TensorflowTopK
dataloader = create_dataloader('tensorflow', dataloader_args)
top1 = TensorflowTopK(k=1)

def eval(model):
    return evaluate(model, dataloader, top1)
"""


def run(script: str, **names: object) -> dict[str, object]:
    indented = script.replace("    from neural_compressor", "    from quaver.neural_compressor")
    return run_script(indented, "neural_compressor", "quaver.neural_compressor", dataloader_args=ARGUMENTS, **names)


def test_the_printed_steps_show_the_loss_and_its_end() -> None:
    """Nothing is evaluated in them: all ops are quantized, then all but the one of the rule."""
    with pytest.warns(UserWarning) as warned:
        after = run(
            EVALUATE
            + """
from neural_compressor import quantization
from neural_compressor.config import PostTrainingQuantConfig

fp32 = eval('inception.pb')
conf = PostTrainingQuantConfig(calibration_sampling_size=[50, 100], diagnosis=True)
q_model = quantization.fit('inception.pb', conf=conf, calib_dataloader=dataloader, eval_dataloader=dataloader)
q_model.save('./nc_inception_v3.pb')
lost = eval(q_model)

op_name_dict = {"v0/cg/conv0/conv2d/Conv2D": {"activation": {"dtype": ["fp32"]}}}
conf = PostTrainingQuantConfig(calibration_sampling_size=[50, 100], op_name_list=op_name_dict)
q_model = quantization.fit('inception.pb', conf=conf, calib_dataloader=dataloader, eval_dataloader=dataloader)
restored = eval(q_model)
"""
        )
    messages = " ".join(str(warning.message) for warning in warned)
    assert "eval_dataloader is not used" in messages and "nc_inception_v3.tflite" in messages
    assert Path("nc_inception_v3.tflite").exists()
    assert after["fp32"] > 0.98
    assert after["lost"] < 0.8
    assert after["restored"] > 0.98
    (name,) = after["q_model"].q_config["quant_cfg"]["excluded_symbols"]
    assert "conv0" in name


def test_the_ops_with_the_largest_mse_in_fp32_do_not_restore_the_score(tmp_path: Path) -> None:
    """The op whose weights have the outliers is not among them, but diagnosis names it."""
    after = run(
        EVALUATE
        + """
import pandas as pd
from neural_compressor import quantization
from neural_compressor.config import PostTrainingQuantConfig

conf = PostTrainingQuantConfig(diagnosis=True)
q_model = quantization.fit('inception.pb', conf=conf, calib_dataloader=dataloader, workspace=workspace)
activations = pd.read_csv(workspace / 'activations_table.csv')
largest = list(activations['OP name'][:3])
conf = PostTrainingQuantConfig(op_name_dict={name: {"activation": {"dtype": ["fp32"]}} for name in largest})
score = eval(quantization.fit('inception.pb', conf=conf, calib_dataloader=dataloader))
""",
        workspace=tmp_path / "run",
    )
    assert not any("conv0" in name for name in after["largest"])
    assert after["score"] < 0.8
    causes = after["q_model"].result.diagnosis.causes
    assert [cause.kind for cause in causes if "conv0" in cause.op] == ["weight_outlier"]


def test_an_eval_func_of_the_graphs_tensors_tunes(capsys: pytest.CaptureFixture[str]) -> None:
    after = run(
        EVALUATE
        + """
from neural_compressor import quantization
from neural_compressor.config import PostTrainingQuantConfig

conf = PostTrainingQuantConfig(calibration_sampling_size=[50, 100])
q_model = quantization.fit('inception.pb', conf=conf, calib_dataloader=dataloader, eval_func=eval)
"""
    )
    result = after["q_model"].result
    assert result.met and result.baseline > 0.98
    assert any("conv0" in name for name in result.best.config.fp32_ops)


def test_record_files_are_read_as_tensorflow_reads_them(folder: Path) -> None:
    (inputs, labels), *_ = create_dataloader("tensorflow", ARGUMENTS)
    assert inputs.shape == (10, SIDE, SIDE, 3) and labels.shape == (10, 1)
    assert -1 <= inputs.min() < -0.9 and 0.9 < inputs.max() <= 1
    jpeg = next(iter(tf.data.TFRecordDataset(str(folder / "data" / "validation-00001-of-00002"))))
    example = tf.train.Example.FromString(jpeg.numpy())
    image = tf.image.decode_jpeg(example.features.feature[IMAGE].bytes_list.value[0])
    middle = tf.image.resize(tf.image.central_crop(tf.cast(image, tf.float32) / 255, 0.875), (SIDE, SIDE))
    assert np.allclose(inputs[1], middle * 2 - 1, atol=1e-6)


def test_other_datasets_and_transforms_are_refused_by_name() -> None:
    for change, word in (
        ({"dataset": {"COCORecord": {"root": "data"}}}, "COCORecord"),
        ({"transform": {"Rescale": {}}}, "Rescale"),
        ({"dataset": None}, "dataset"),
        ({"transform": {"BilinearImagenet": {"hight": 3}}}, "hight"),
    ):
        with pytest.raises(SettingsError, match=word):
            create_dataloader("tensorflow", {**ARGUMENTS, **change})
    with pytest.raises(CalibrationError, match="no record files"):
        create_dataloader("tensorflow", {**ARGUMENTS, "dataset": {"ImageRecord": {"root": "none"}}})


def test_top_k_is_tensorflows() -> None:
    rng = np.random.default_rng(0)
    scores, labels = rng.integers(0, 5, size=(200, 7)).astype(np.float32), rng.integers(0, 7, size=200)
    for k in (1, 2, 5):
        metric = TensorflowTopK(k)
        metric.update(scores[:90], labels[:90, None])
        metric.update(scores[90:], labels[90:])
        assert metric.result() == np.mean(tf.math.in_top_k(labels, scores, k))
        metric.reset()
        assert metric.result() == 0


@pytest.mark.parametrize(
    ("line", "advice"),
    [
        ("from quaver.neural_compressor.training import prepare_compression", "quantizes after training"),
        ("from quaver.neural_compressor import mix_precision", "mixes fp32 and int8"),
        ("from quaver.neural_compressor.experimental import common", "assign the model itself"),
        ("from quaver.neural_compressor.data import Datasets", "iterable"),
        ("from quaver.neural_compressor.metric import METRICS", "eval_func"),
        ("from quaver.neural_compressor.config import WeightPruningConfig", "quantizes after training"),
    ],
)
def test_what_is_absent_fails_at_its_import_and_says_what_to_write(line: str, advice: str) -> None:
    with pytest.raises(ImportError, match=advice):
        exec(line, {})
    assert "quaver.neural_compressor.training" not in sys.modules
