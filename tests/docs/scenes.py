"""Files and names for the code blocks of the pages: a float model, calibration data, an `eval_func`, an earlier run."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

import quaver
from quaver.demo.data import Accuracy, digits
from quaver.demo.run import EVAL

RUN = "quaver_workspace/2026-05-01_10-00-00"
SETTINGS = """\
version: 1.0
tuning:
  strategy:
    name: auto
  accuracy_criterion:
    relative: 0.01
  objective: size
"""


def network() -> onnx.ModelProto:
    """Return a network of two ops, so that runs are short: random filters and a linear classifier of their outputs."""
    from sklearn.linear_model import LogisticRegression

    images, labels, _, _ = digits()
    filters = np.random.default_rng(0).standard_normal((12, 1, 3, 3)).astype(np.float32) / 3
    windows = np.lib.stride_tricks.sliding_window_view(images[:, 0], (3, 3), axis=(1, 2))
    features = np.maximum(np.einsum("nyxij,cij->ncyx", windows, filters[:, 0]), 0).reshape(len(images), -1)
    fitted = LogisticRegression(C=0.1, max_iter=300).fit(features, labels)
    constants = {"filters": filters, "weight": fitted.coef_, "bias": fitted.intercept_}
    nodes = [
        helper.make_node("Conv", ["image", "filters"], ["a"], "conv1"),
        helper.make_node("Relu", ["a"], ["b"], "relu1"),
        helper.make_node("Flatten", ["b"], ["c"], "flatten"),
        helper.make_node("Gemm", ["c", "weight", "bias"], ["logits"], "classifier", transB=1),
    ]
    return _model(nodes, constants, "logits", 10)


def make_folder(folder: Path) -> None:
    """Create the files that pages use."""
    make_data(folder)
    onnx.save(network(), folder / "model.onnx")
    images = digits()[0][:64]
    for name in ("calib.npz", "data.npz"):
        np.savez(folder / name, image=images)
    (folder / "conf.yaml").write_text(SETTINGS, encoding="utf-8")
    result = quaver.fit(
        folder / "model.onnx",
        calib_dataloader=images,
        eval_func=Accuracy(*digits()[2:]),
        strategy="random",
        objective="size",
        timeout=600,
        max_trials=6,
        workspace=folder / RUN,
        verbose=0,
    )
    static = next(trial for trial in result.trials if "static" in {choice.mode for choice in trial.config.values()})
    quaver.recover(folder / "model.onnx", folder / RUN, static.number).save(folder / "int8.onnx")


def make_data(folder: Path) -> None:
    """Create the evaluation data and my_eval.py."""
    np.savez(folder / "test.npz", image=digits()[2])
    np.save(folder / "y.npy", digits()[3])
    (folder / "my_eval.py").write_text(EVAL, encoding="utf-8")


def of_onnx() -> dict[str, Any]:
    """Return the names for pages about ONNX models. The files are in the current folder."""
    train, _, images, labels = digits()
    data = train[:64]
    return {
        "quaver": quaver,
        "np": np,
        "model": "model.onnx",
        "data": data,
        "batches": [data[start : start + 16] for start in range(0, len(data), 16)],
        "loader": [(data[start : start + 16], np.arange(16)) for start in range(0, len(data), 16)],
        "images": images,
        "labels": labels,
        "accuracy": Accuracy(images, labels),
        "workspace": RUN,
        "result": quaver.fit("model.onnx", eval_func=Accuracy(images, labels), resume=RUN, verbose=0),
    }


def of_scores() -> dict[str, Any]:
    """Return the names of `of_onnx`, with the test data in two halves, and batches of pairs of the first half."""
    images, labels = digits()[2:]
    half = len(images) // 2
    batches = [(images[at : min(at + 64, half)], labels[at : min(at + 64, half)]) for at in range(0, half, 64)]
    first, other = {"images": images[:half], "labels": labels[:half]}, {"held_out_images": images[half:]}
    return {**of_onnx(), **first, **other, "held_out_labels": labels[half:], "batches": batches}


def of_gate() -> dict[str, Any]:
    """Create only files: a network that is clearly faster in int8 and loses almost nothing."""
    onnx.save(wide_network(), "model.onnx")
    quaver.fit("model.onnx", calib_dataloader=digits()[0][:256], workspace="made", verbose=0).save("model-int8.onnx")
    return {}


def wide_network() -> onnx.ModelProto:
    """Return two convolutions with many random filters, and a linear classifier of their outputs."""
    from sklearn.linear_model import LogisticRegression

    chance = np.random.default_rng(0)
    shapes = {"first": (64, 1, 3, 3), "second": (256, 64, 3, 3)}
    constants = {
        name: (chance.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)
        for name, shape in shapes.items()
    }
    nodes = [
        helper.make_node("Conv", ["image", "first"], ["a"], "conv1", pads=[1] * 4),
        helper.make_node("Relu", ["a"], ["b"], "relu1"),
        helper.make_node("Conv", ["b", "second"], ["c"], "conv2", pads=[1] * 4),
        helper.make_node("Relu", ["c"], ["d"], "relu2"),
        helper.make_node("MaxPool", ["d"], ["e"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Flatten", ["e"], ["features"], "flatten"),
    ]
    images, labels, _, _ = digits()
    session = onnxruntime.InferenceSession(_model(nodes, constants, "features", 4096).SerializeToString())
    features = session.run(None, {"image": images})[0]
    fitted = LogisticRegression(C=0.1, max_iter=200).fit(features, labels)
    constants |= {"weight": fitted.coef_.astype(np.float32), "bias": fitted.intercept_.astype(np.float32)}
    nodes.append(helper.make_node("Gemm", ["features", "weight", "bias"], ["logits"], "classifier", transB=1))
    return _model(nodes, constants, "logits", 10)


def _model(nodes: Any, constants: Any, output: str, width: int) -> onnx.ModelProto:
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, ["n", 1, 8, 8])
    result = helper.make_tensor_value_info(output, TensorProto.FLOAT, ["n", width])
    initializers = [numpy_helper.from_array(value.astype(np.float32), name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "digits", [image], [result], initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@functools.cache
def keras_network() -> tuple[Any, Any, bytes, bytes]:
    """Return a small trained network, a run on it, and its float and int8 .tflite; created once for all pages."""
    import keras
    from keras import layers

    train, labels, images, test_labels = channels_last()
    keras.utils.set_random_seed(0)
    image = keras.Input((8, 8, 1), name="image")
    x = layers.Conv2D(16, 3, activation="relu", name="stem")(image)
    x = layers.Conv2D(32, 3, activation="relu", name="body")(x)
    x = layers.Dense(10, activation="softmax", name="classes")(layers.Flatten()(x))
    model = keras.Model(image, x)
    model.compile("adam", "sparse_categorical_crossentropy")
    model.fit(train, labels, batch_size=32, epochs=4, verbose=0)
    score = Accuracy(images, test_labels)
    data = train[:64]
    result = quaver.fit(model, calib_dataloader=data, eval_func=score, objective="size", workspace="run", verbose=0)
    assert result.model is not None
    float_model = quaver.recover(model, result.history_path, 0)
    return model, result, float_model.SerializeToString(), result.model.SerializeToString()


def channels_last() -> Any:
    """Return the digits with the channel last, as for TensorFlow."""
    train, train_labels, images, labels = digits()
    return np.moveaxis(train, 1, -1), train_labels, np.moveaxis(images, 1, -1), labels


def of_keras() -> dict[str, Any]:
    """Return the names for pages about Keras models."""
    model, result, float_model, int8 = keras_network()
    Path("float.tflite").write_bytes(float_model)
    Path("int8.tflite").write_bytes(int8)
    train, _, images, labels = channels_last()
    return {
        "quaver": quaver,
        "np": np,
        "model": model,
        "images": train[:128],
        "data": train[:64],
        "accuracy": Accuracy(images, labels),
        "result": result,
        "workspace": result.workspace,
    }


SCENES = {"onnx": of_onnx, "scores": of_scores, "keras": of_keras, "gate": of_gate}
