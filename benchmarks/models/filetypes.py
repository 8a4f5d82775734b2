"""Magika, which tells the type of a file from its first and last bytes."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import onnx

from benchmarks.models.bench import Array, write
from benchmarks.models.fetch import Package
from benchmarks.models.lines import FONTS

MAGIKA = Package(
    "pypi",
    "magika",
    "1.0.3",
    "3e9b49134e8116ee40b431664dcbed9e199413efddcce1a173c734b4e0521529",
    platform="manylinux_2_28_x86_64",
)
DJANGO = Package("pypi", "Django", "4.2.7", "e1d37c51ad26186de355cbcec16613ebdabfa9689bbade9c538835205a8abbe9")
# Packages that hold files of many types.
SOURCES = (
    Package("npm", "react-native", "0.72.6", "e0566bf2758e30fc904723ac763b2cf7e134d43eb6b7941bd173c4c6baf21c78"),
    Package("npm", "font-awesome", "4.7.0", "92042b715919e17499ded134884b0318fd88041efac9b0f3204069df52222a61"),
    DJANGO,
    *FONTS,
)
# What the model calls a file with this ending. Endings that several types share are left out.
LABELS = {
    ".cpp": "cpp", ".css": "css", ".dll": "pebin", ".gradle": "gradle", ".java": "java",
    ".json": "json", ".kt": "kotlin", ".m": "objectivec", ".md": "markdown", ".mm": "objectivec",
    ".otf": "otf", ".png": "png", ".po": "po", ".py": "python", ".rb": "ruby", ".scss": "scss", ".sh": "shell",
    ".svg": "svg", ".ts": "typescript", ".ttf": "ttf", ".woff": "woff", ".woff2": "woff2", ".xml": "xml",
}  # fmt: skip
SMALLEST, PER_LABEL = 64, 48
CALIBRATION = 100
ENDS, BLOCK, PADDING = 1024, 4096, 256


def magika_filetype(folder: Path) -> None:
    """Magika's standard model on files labelled by their endings."""
    home = MAGIKA.fetch() / "magika" / "models" / "standard_v3_3"
    onnx.save(onnx.load(home / "model.onnx"), folder / "model.onnx")
    labels = json.loads((home / "config.min.json").read_text(encoding="utf-8"))["target_labels_space"]
    files = choose_files()
    inputs = np.stack([features(path.read_bytes()) for path in files])
    targets = np.array([labels.index(LABELS[path.suffix]) for path in files])
    write(folder, {"bytes": inputs[:CALIBRATION]}, {"bytes": inputs[CALIBRATION:]}, targets[CALIBRATION:])


def choose_files() -> list[Path]:
    """Return a limited number of files of each type, in an order that is random but always the same."""
    chosen: list[Path] = []
    roots = [package.fetch() for package in SOURCES]
    files = sorted(path for root in roots for path in root.rglob("*") if path.suffix in LABELS)
    chance = random.Random(0)
    for label in sorted(set(LABELS.values())):
        alike = [path for path in files if LABELS[path.suffix] == label and path.stat().st_size >= SMALLEST]
        chosen += chance.sample(alike, min(PER_LABEL, len(alike)))
    chance.shuffle(chosen)
    return chosen


def features(content: bytes) -> Array:
    """The first and the last 1,024 bytes without outer white space, filled up with 256."""
    first, last = content[:BLOCK].lstrip()[:ENDS], content[-BLOCK:].rstrip()[-ENDS:]
    values = np.full(2 * ENDS, PADDING, np.int32)
    values[: len(first)] = np.frombuffer(first, np.uint8)
    values[2 * ENDS - len(last) :] = np.frombuffer(last, np.uint8)
    return values
