"""The model just as the user gave it, to compare with what is made of it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import onnx
from onnx import ModelProto, TensorProto

from quaver.adapters.batches import InputSpec
from quaver.adapters.onnxrt.build.provenance import pieces
from quaver.adapters.onnxrt.run import session as sessions
from quaver.adapters.onnxrt.run.model import OrtModel
from quaver.adapters.writing import write_safely


class GivenModel(OrtModel):
    """A path, a ModelProto or bytes, run as it is. Constants may lie in other files beside it."""

    def __init__(self, source: Any, inputs: Sequence[InputSpec], threads: int) -> None:
        super().__init__(inputs, threads)
        self._source = source
        is_path = isinstance(source, str | os.PathLike)
        self._path = Path(os.fspath(source)).resolve() if is_path else None
        self._folder = self._path.parent if self._path is not None else Path().resolve()

    @classmethod
    def opened(cls, source: Any, threads: int) -> Self:
        """A model that nobody has read yet; what it takes is asked of its session."""
        model = cls(source, (), threads)
        model._inputs = sessions.input_specs(model.session)
        return model

    def _open(self) -> Any:
        if self._path is not None:
            return sessions.create(self._path, sessions.options(self._threads))
        return sessions.create(self.SerializeToString(), sessions.options(self._threads), self._folder)

    def chunks(self) -> Iterator[bytes | memoryview]:
        """The bytes of the model file, without those of other files."""
        if self._path is not None:
            yield from pieces(self._path)
        elif isinstance(self._source, ModelProto):
            yield self._source.SerializeToString(deterministic=True)
        else:
            yield bytes(self._source)

    @property
    def model(self) -> ModelProto:
        """The complete model as a `ModelProto`, a new one each time."""
        proto = onnx.load_model_from_string(self.SerializeToString())
        onnx.load_external_data_for_model(proto, str(self._folder))
        return proto

    @property
    def size(self) -> int:
        """Size of the model file in bytes, its external data included."""
        return sum(map(len, self.chunks())) + sum((self._folder / name).stat().st_size for name in self._beside())

    def _write(self, path: Path) -> None:
        """Copy the model, and the files beside it under the names that it calls them by."""
        for name in self._beside():
            target = path.parent / name
            if target.resolve() != (self._folder / name).resolve():
                target.parent.mkdir(parents=True, exist_ok=True)
                write_safely(target, pieces(self._folder / name))
        write_safely(path, self.chunks())

    def _beside(self) -> list[str]:
        proto = onnx.load_model_from_string(self.SerializeToString())
        outside = [entry for entry in proto.graph.initializer if entry.data_location == TensorProto.EXTERNAL]
        names = [item.value for entry in outside for item in entry.external_data if item.key == "location"]
        return list(dict.fromkeys(names))
