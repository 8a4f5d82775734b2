"""The models that eval_func gets: built, saved and unmodified ones, and those in the QOperator format."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import onnx
import onnxruntime as ort
from onnx import ModelProto, TensorProto

from quaver.adapters.data import InputSpec
from quaver.adapters.decoder_inputs import with_derived_inputs
from quaver.adapters.generation import GenerationFolder, head_size
from quaver.adapters.model import Model
from quaver.adapters.onnxrt.build.provenance import pieces, relocated, split, tail, with_original
from quaver.adapters.onnxrt.build.serialized_model import SerializedModel
from quaver.adapters.onnxrt.run import session as sessions
from quaver.errors import BuildError
from quaver.files.atomic import write_safely
from quaver.files.temporary import temporary_folder
from quaver.types import Array, Feed, ModelLike

if TYPE_CHECKING:
    from quaver.adapters.onnxrt.runtime import Runtime

# A protobuf message is limited to 2 GB; the constants of a larger model go to a second file.
PROTOBUF_LIMIT = 2**31 - 2**20


class OrtModel(Model):
    """An ONNX model; `session` is its session in the runtime, such as an `onnxruntime.InferenceSession`.

    Attributes:
        folder: the folder of onnxruntime-genai that its float model lies in; None for other models.
    """

    suffix = ".onnx"
    folder: GenerationFolder | None = None

    def __init__(self, inputs: Sequence[InputSpec], threads: int, runtime: Runtime) -> None:
        super().__init__(inputs, threads)
        self._runtime = runtime

    @property
    def runtime(self) -> Runtime:
        """The runtime that runs the model."""
        return self._runtime

    def _outputs(self, feed: Feed) -> list[Array]:
        return list(self.session.run(None, feed))

    def save(self, path: str | Path) -> Path:
        """Write the model to a file, in the format that its ending says: .onnx, or one that the runtime writes.

        A model from a folder of onnxruntime-genai is also written as such a folder, to a path without an ending.
        """
        target = Path(os.path.expanduser(path))
        if self.folder is not None and (not target.suffix or target.is_dir()):
            return self.folder.write(target, super().save, _external_files(self.folder.model_file))
        if target.suffix.lower() not in self._runtime.exports:
            return super().save(path)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            self._runtime.export(self, target)
        except (OSError, RuntimeError) as error:
            raise BuildError(f"cannot write {str(target)!r}: {error}") from error
        return target

    @property
    def model(self) -> onnx.ModelProto:
        """The complete model as a `ModelProto`, a new one each time."""
        return onnx.load_model_from_string(self.SerializeToString())

    def file_chunks(self) -> Iterator[bytes | memoryview]:
        """Yield the bytes of the model, followed by its provenance."""
        yield from self.chunks()
        if self._provenance:
            yield tail(self._provenance)


class OnnxModel(OrtModel):
    """A model in one configuration: callable, with its `session`, and complete as `model` or as bytes."""

    def __init__(
        self, serialized: SerializedModel, inputs: Sequence[InputSpec], threads: int, runtime: Runtime
    ) -> None:
        super().__init__(inputs, threads, runtime)
        self._serialized = serialized

    def source(self) -> tuple[bytes, Path | None]:
        """Return the model as bytes, and the folder of its large constants if they are not inside."""
        return self._serialized.skeleton(), self._serialized.store.path.parent

    def _open(self) -> Any:
        model, folder = self.source()
        return self._runtime.open(model, self._threads, folder)

    def chunks(self) -> Iterator[bytes | memoryview]:
        """Yield the bytes of the complete model, piece by piece."""
        return self._serialized.chunks()

    @property
    def size(self) -> int:
        """Size of the complete model file in bytes."""
        return self._serialized.size() + len(tail(self._provenance))

    def add_provenance(self, properties: Mapping[str, str]) -> None:
        """Write these properties into the saved file, together with the producer of the float model."""
        super().add_provenance(with_original(properties, self._serialized.shell))

    def _write(self, path: Path) -> None:
        """Write the model; over 2 GB the constants go to `<path>.data`."""
        if self.size <= PROTOBUF_LIMIT:
            write_safely(path, self.file_chunks())
            return
        data = path.with_name(path.name + ".data")
        skeleton, parts = self._serialized.split(data.name)
        write_safely(data, parts)
        write_safely(path, [skeleton, tail(self._provenance)])


class SavedModel(OrtModel):
    """A model that was saved to a file."""

    def __init__(self, path: Path, inputs: Sequence[InputSpec], threads: int, runtime: Runtime) -> None:
        super().__init__(inputs, threads, runtime)
        self._path = path.resolve()
        self._length, self._provenance = split(self._path)

    def _open(self) -> Any:
        return self._runtime.open(self._path, self._threads)

    @property
    def model(self) -> onnx.ModelProto:
        """The complete model as a `ModelProto`, a new one each time."""
        return onnx.load_model(self._path)

    def chunks(self) -> Iterator[bytes | memoryview]:
        """Yield the bytes of the model file, without its provenance."""
        return pieces(self._path, self._length)

    @property
    def size(self) -> int:
        """Size of the model file in bytes, its external data included."""
        return self._path.stat().st_size + (self._data.stat().st_size if self._data.exists() else 0)

    @property
    def _data(self) -> Path:
        return self._path.with_name(self._path.name + ".data")

    def _write(self, path: Path) -> None:
        """Copy the file. External data is found by its name, so the model is rewritten if it has some."""
        if not self._data.exists():
            write_safely(path, self.file_chunks())
            return
        data = path.with_name(path.name + ".data")
        write_safely(data, pieces(self._data))
        write_safely(path, [relocated(self._path, data.name)])


class UnmodifiedModel(OrtModel):
    """A path, a ModelProto or bytes, run unmodified. Constants may lie in other files beside it."""

    def __init__(self, source: ModelLike, inputs: Sequence[InputSpec], threads: int, runtime: Runtime) -> None:
        super().__init__(inputs, threads, runtime)
        self._source = source
        is_path = isinstance(source, str | os.PathLike)
        self._path = Path(os.fspath(source)).resolve() if is_path else None
        self._folder = self._path.parent if self._path is not None else Path().resolve()

    @classmethod
    def opened(cls, source: ModelLike, threads: int, runtime: Runtime) -> Self:
        """Open a model that was not read before. Its inputs come from its session."""
        model = cls(source, (), threads, runtime)
        model._inputs = with_derived_inputs(runtime.input_specs(model.session), head_size(source))
        return model

    def _open(self) -> Any:
        if self._path is not None:
            return self._runtime.open(self._path, self._threads)
        return self._runtime.open(self.SerializeToString(), self._threads, self._folder)

    def chunks(self) -> Iterator[bytes | memoryview]:
        """Yield the bytes of the model file, without those of other files."""
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
        return sum(map(len, self.chunks())) + sum(
            (self._folder / name).stat().st_size for name in self._external_files()
        )

    def _write(self, path: Path) -> None:
        """Copy the model, and its external data under the names that it uses."""
        for name in self._external_files():
            target = path.parent / name
            if target.resolve() != (self._folder / name).resolve():
                target.parent.mkdir(parents=True, exist_ok=True)
                write_safely(target, pieces(self._folder / name))
        write_safely(path, self.chunks())

    def _external_files(self) -> list[str]:
        return _external_files(onnx.load_model_from_string(self.SerializeToString()))


def _external_files(model: ModelProto | Path) -> list[str]:
    """Return the names of the files that hold constants of a model."""
    proto = onnx.load(model, load_external_data=False) if isinstance(model, Path) else model
    external = [entry for entry in proto.graph.initializer if entry.data_location == TensorProto.EXTERNAL]
    names = [item.value for entry in external for item in entry.external_data if item.key == "location"]
    return list(dict.fromkeys(names))


class QOperatorModel(OnnxModel):
    """A model as ONNX Runtime's own optimiser writes it: fused, with integer kernels named in the graph."""

    @functools.cached_property
    def _optimised(self) -> bytes:
        with temporary_folder() as folder:
            path = folder / "optimised.onnx"
            options = sessions.options(1)
            # Beyond this level the layout is rewritten for this machine, and the file would not run elsewhere.
            options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
            options.optimized_model_filepath = str(path)
            sessions.create(b"".join(self._serialized.chunks()), options)
            return path.read_bytes()

    def start_hashing(self) -> None:
        """Start computing `sha256` in the background, once the bytes exist."""
        self._optimised  # noqa: B018
        super().start_hashing()

    def source(self) -> tuple[bytes, Path | None]:
        """Return the model as bytes, which hold all its constants."""
        return self._optimised, None

    def chunks(self) -> Iterator[bytes | memoryview]:
        """Yield the bytes of the complete model."""
        yield self._optimised

    @property
    def size(self) -> int:
        """Size of the complete model file in bytes."""
        return len(self._optimised) + len(tail(self._provenance))
