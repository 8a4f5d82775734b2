"""The model object that eval_func gets."""

from __future__ import annotations

import hashlib
import os
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from threading import Thread
from typing import Any

import onnx

from quaver.adapters.batches import Feed, InputSpec, match
from quaver.adapters.onnxrt import session as sessions
from quaver.adapters.onnxrt.assembly import Assembly
from quaver.errors import BuildError

# A protobuf message cannot be larger; beyond it the constants go to a second file.
PROTOBUF_LIMIT = 2**31 - 2**20


class _Runnable(ABC):
    """What every model object can do, whatever its bytes come from."""

    def __init__(self, inputs: Sequence[InputSpec], threads: int) -> None:
        self._inputs = tuple(inputs)
        self._threads = threads
        self._session: Any = None
        self._sha256: Future[str] | None = None

    @abstractmethod
    def _open(self) -> Any:
        """Make the session."""

    @abstractmethod
    def chunks(self) -> Iterator[bytes | memoryview]:
        """The bytes of the complete model, piece by piece."""

    @property
    @abstractmethod
    def size(self) -> int:
        """Size of the complete model file in bytes."""

    def __call__(self, *args: Any, **inputs: Any) -> Any:
        """Run the model: `model(x)`, `model(x, y)`, `model({"x": x})` or `model(x=x)`."""
        batch = inputs or (args[0] if len(args) == 1 else args)
        return self.run(match(batch, self._inputs, where="the model call"))

    def run(self, feed: Feed) -> Any:
        """Run the model on a dict of arrays. One output comes as an array, several as a list."""
        outputs = self.session.run(None, feed)
        return outputs[0] if len(outputs) == 1 else outputs

    @property
    def session(self) -> Any:
        """The `onnxruntime.InferenceSession`, made once."""
        if self._session is None:
            self._session = self._open()
        return self._session

    @property
    def model(self) -> onnx.ModelProto:
        """The complete model as a `ModelProto`, a new one each time."""
        return onnx.load_model_from_string(self.SerializeToString())

    def SerializeToString(self) -> bytes:  # noqa: N802 - as ModelProto has it
        """The complete model file."""
        return b"".join(self.chunks())

    def start_hashing(self) -> None:
        """Begin to compute `sha256` aside: hashing needs no interpreter lock, and goes on while eval_func runs."""
        if self._sha256 is None:
            self._sha256 = Future()
            Thread(target=self._hash, args=(self._sha256,), daemon=True).start()

    def _hash(self, future: Future[str]) -> None:
        try:
            digest = hashlib.sha256()
            for chunk in self.chunks():
                digest.update(chunk)
            future.set_result(digest.hexdigest())
        except BaseException as error:
            future.set_exception(error)

    @property
    def sha256(self) -> str:
        """Hash of the complete model file."""
        self.start_hashing()
        assert self._sha256 is not None
        return self._sha256.result()

    @abstractmethod
    def save(self, path: str | Path) -> Path:
        """Write the complete model to a file. Never leaves half a file."""

    def close(self) -> None:
        """Let go of the session."""
        self._session = None


class OnnxModel(_Runnable):
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


class SavedModel(_Runnable):
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
                write_safely(data, _pieces(self._data))
                write_safely(path, [_pointing_at(self._path, data.name)])
            else:
                write_safely(path, self.chunks())
        except OSError as error:
            raise BuildError(f"cannot write {str(path)!r}: {error.strerror}") from error
        return path


def write_safely(path: Path, chunks: Sequence[bytes | memoryview] | Iterator[bytes | memoryview]) -> None:
    """Write to a temporary name, then rename: a reader sees the old file or the whole new one."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            for chunk in chunks:
                file.write(chunk)
        os.chmod(name, 0o666 & ~_umask())
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _pieces(path: Path) -> Iterator[bytes]:
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


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current
