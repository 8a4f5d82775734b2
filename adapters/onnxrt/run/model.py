"""The model object that eval_func gets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import onnx

from quaver.adapters.batches import Feed, InputSpec
from quaver.adapters.onnxrt.build.assembly import Assembly
from quaver.adapters.onnxrt.run import session as sessions
from quaver.adapters.runnable import Runnable, write_safely
from quaver.errors import BuildError

# A protobuf message cannot be larger; beyond it the constants go to a second file.
PROTOBUF_LIMIT = 2**31 - 2**20


class RuntimeModel(Runnable):
    """A model that ONNX Runtime runs; `session` is its `onnxruntime.InferenceSession`."""

    def _outputs(self, feed: Feed) -> list[Any]:
        return list(self.session.run(None, feed))

    @property
    def model(self) -> onnx.ModelProto:
        """The complete model as a `ModelProto`, a new one each time."""
        return onnx.load_model_from_string(self.SerializeToString())


class OnnxModel(RuntimeModel):
    """A model in one configuration: callable, with its `session`, and complete as `model` or as bytes."""

    def __init__(self, assembly: Assembly, inputs: Sequence[InputSpec], threads: int) -> None:
        super().__init__(inputs, threads)
        self._assembly = assembly

    def _open(self) -> Any:
        folder = self._assembly.store.path.parent
        return sessions.create(self._assembly.skeleton(), sessions.options(self._threads), folder)

    def chunks(self) -> Iterator[bytes | memoryview]:
        """The bytes of the complete model, piece by piece."""
        return self._assembly.chunks()

    @property
    def size(self) -> int:
        """Size of the complete model file in bytes."""
        return self._assembly.size()

    def save(self, path: str | Path) -> Path:
        """Write the complete model; over 2 GB its constants go to `<path>.data`. Never leaves half a file."""
        path = Path(path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if self.size <= PROTOBUF_LIMIT:
                write_safely(path, self.chunks())
            else:
                data = path.with_name(path.name + ".data")
                skeleton, parts = self._assembly.split(data.name)
                write_safely(data, parts)
                write_safely(path, [skeleton])
        except OSError as error:
            raise BuildError(f"cannot write {str(path)!r}: {error.strerror}") from error
        return path


class SavedModel(RuntimeModel):
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

    def save(self, path: str | Path) -> Path:
        """Copy the file. External data goes by its name, so the name must stay where there is some."""
        path = Path(path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if self._data.exists():
                data = path.with_name(path.name + ".data")
                write_safely(data, pieces(self._data))
                write_safely(path, [_pointing_at(self._path, data.name)])
            else:
                write_safely(path, self.chunks())
        except OSError as error:
            raise BuildError(f"cannot write {str(path)!r}: {error.strerror}") from error
        return path


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
