"""Images and labels of ImageNet in TensorFlow's record files, prepared as Inception wants them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from quaver.errors import CalibrationError
from quaver.files.paths import expanded
from quaver.types import Array

# Names of the files: "validation-00000-of-00128".
PATTERN = "*-*-of-*"
IMAGE, LABEL = "image/encoded", "image/class/label"


class ImageRecords:
    """Iterate over (image, label): the middle of each image, resized, with values from -1 to 1.

    Args:
        root: the folder of the files.
        height: height of an image; with 0, or a width of 0, it keeps its size.
        width: width of an image.
        central_fraction: the part of each side that is kept; None keeps all.
        mean_value: a value to subtract from each channel.
        scale: a factor for the result.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        height: int = 0,
        width: int = 0,
        central_fraction: float | None = 0.875,
        mean_value: Sequence[float] = (0.0, 0.0, 0.0),
        scale: float = 1.0,
    ) -> None:
        self.files = sorted(str(path) for path in Path(expanded(root)).glob(PATTERN))
        if not self.files:
            raise CalibrationError(f"no record files in {os.fspath(root)!r}: their names must be like {PATTERN!r}")
        self._size, self._central_fraction = (height, width), central_fraction
        self._mean_value, self._scale = tuple(mean_value), scale

    def __iter__(self) -> Iterator[tuple[Array, Array]]:
        import tensorflow as tf

        files = tf.data.Dataset.from_tensor_slices(self.files)
        records = files.interleave(tf.data.TFRecordDataset, cycle_length=len(self.files))
        for image, label in records.map(self._prepare):
            yield image.numpy(), label.numpy()

    def _prepare(self, record: Any) -> tuple[Any, Any]:
        import tensorflow as tf

        features = {IMAGE: tf.io.FixedLenFeature([], tf.string), LABEL: tf.io.FixedLenFeature([1], tf.int64, -1)}
        parsed = tf.io.parse_single_example(record, features)
        image = tf.image.convert_image_dtype(tf.image.decode_jpeg(parsed[IMAGE], channels=3), tf.float32)
        if self._central_fraction:
            image = tf.image.central_crop(image, self._central_fraction)
        if all(self._size):
            image = tf.image.resize(image, self._size)
        image = ((image - 0.5) * 2.0 - tf.constant(self._mean_value)) * self._scale
        return image, tf.cast(parsed[LABEL], tf.int32)
