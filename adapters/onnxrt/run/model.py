"""The model object that eval_func gets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import onnx

from quaver.adapters.batches import Feed, InputSpec
from quaver.adapters.model import Model
from quaver.adapters.onnxrt.build.assembly import Assembly
from quaver.adapters.onnxrt.run import session as sessions
from quaver.adapters.writing import write_safely

# A protobuf message cannot be larger; beyond it the constants go to a second file.
PROTOBUF_LIMIT = 2**31 - 2**20


class OrtModel(Model):
    """A model that ONNX Runtime runs; `session` is its `onnxruntime.InferenceSession`."""

    suffix = ".onnx"

    def _outputs(self, feed: Feed) -> list[Any]:
        return list(self.session.run(None, feed))

    @property
    def model(self) -> onnx.ModelProto:
        """The complete model as a `ModelProto`, a new one each time."""
        return onnx.load_model_from_string(self.SerializeToString())


class OnnxModel(OrtModel):
    """A model in one configuration: callable, with its `session`, and complete as `model` or as bytes."""

    def __init__(self, assembly: Assembly, inputs: Sequence[InputSpec], threads: int) -> None:
        super().__init__(inputs, threads)
        self._assembly = assembly

    def source(self) -> tuple[bytes, Path | None]:
        """What sessions are made from: the model, and where its large constants lie if they are not inside."""
        return self._assembly.skeleton(), self._assembly.store.path.parent

    def _open(self) -> Any:
        model, folder = self.source()
        return sessions.create(model, sessions.options(self._threads), folder)

    def chunks(self) -> Iterator[bytes | memoryview]:
        """The bytes of the complete model, piece by piece."""
        return self._assembly.chunks()

    @property
    def size(self) -> int:
        """Size of the complete model file in bytes."""
        return self._assembly.size()

    def _write(self, path: Path) -> None:
        """Over 2 GB the constants go to `<path>.data`."""
        if self.size <= PROTOBUF_LIMIT:
            write_safely(path, self.chunks())
            return
        data = path.with_name(path.name + ".data")
        skeleton, parts = self._assembly.split(data.name)
        write_safely(data, parts)
        write_safely(path, [skeleton])


class SavedModel(OrtModel):
    """A model that lies in a file."""

    def __init__(self, path: Path, inputs: Sequence[InputSpec], threads: int) -> None:
        super().__init__(inputs, threads)
        self._path = path.resolve()

    def _open(self) -> Any:
        return sessions.create(self._path, sessions.options(self._threads))

    @property
    def model(self) -> onnx.ModelProto:
        """The complete model as a `ModelProto`, a new one each time."""
        return onnx.load_model(self._path)

    def chunks(self) -> Iterator[bytes | memoryview]:
        """The bytes of the model file."""
        yield self._path.read_bytes()

    @property
    def size(self) -> int:
        """Size of the model file in bytes, its external data included."""
        return self._path.stat().st_size + (self._data.stat().st_size if self._data.exists() else 0)

    @property
    def _data(self) -> Path:
        return self._path.with_name(self._path.name + ".data")

    def _write(self, path: Path) -> None:
        """Copy the file. External data goes by its name, so it is written anew where there is some."""
        if not self._data.exists():
            write_safely(path, self.chunks())
            return
        data = path.with_name(path.name + ".data")
        write_safely(data, pieces(self._data))
        write_safely(path, [_pointing_at(self._path, data.name)])


def pieces(path: Path) -> Iterator[bytes]:
    """The bytes of a file, a part at a time."""
    with open(path, "rb") as file:
        while piece := file.read(16 * 2**20):
            yield piece


def _pointing_at(path: Path, location: str) -> bytes:
    """A model whose external data lies in another file."""
    model = onnx.load_model(path, load_external_data=False)
    for tensor in model.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = location
    return bytes(model.SerializeToString(deterministic=True))
