"""The model object that eval_func gets, whatever framework runs it."""

from __future__ import annotations

import ctypes
import hashlib
import os
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

from quaver.adapters.data import InputSpec, match_inputs
from quaver.errors import BuildError, QuaverError
from quaver.files.atomic import write_safely
from quaver.types import Feed


class ForkAware(Protocol):
    """An object that can drop what a forked child cannot use."""

    def after_fork(self) -> None:
        """Drop it. Called in the child."""


_fork_aware: weakref.WeakSet[Any] = weakref.WeakSet()


def notify_after_fork(target: ForkAware) -> None:
    """Call `after_fork` of an object if this process forks."""
    _fork_aware.add(target)


def keep_alive(session: Any) -> None:
    """Prevent that an object is freed: closing a session waits for its threads, which a forked child does not have."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(session))


def _after_fork() -> None:
    for target in list(_fork_aware):
        target.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


# Each of these endings belongs to one format; a model of another format must not be saved under it.
SUFFIXES = {
    ".onnx": "ONNX", ".ort": "ONNX Runtime's own format", ".tflite": "LiteRT", ".lite": "LiteRT", ".keras": "Keras",
    ".h5": "Keras", ".hdf5": "Keras", ".pb": "TensorFlow", ".pt": "PyTorch", ".pth": "PyTorch",
    ".safetensors": "safetensors", ".params": "MXNet", ".xml": "OpenVINO",
}  # fmt: skip


class CallStyle(Protocol):
    """How a model is called, where that is not by arrays."""

    def call(self, model: Model, args: Sequence[Any], inputs: Mapping[str, Any]) -> Any:
        """Run the model."""

    def attribute(self, model: Model, name: str) -> Any:
        """Return an attribute that the model itself does not have; raise AttributeError if there is none."""


class Model(ABC):
    """A model in one configuration: the argument of `eval_func`, and the result of `recover` and `TuneResult.model`.

    - Call it: `model(x)`, `model(x, y)` by position, `model({"x": x})` or `model(x=x)` by input name. One output comes
      as an array, several as a list. `model.run(feed)` does the same for a dict of arrays, without a check.
    - Use the framework's own objects: `session` runs the model, `model` is the framework's form of it.
    - Read its bytes: `SerializeToString()` is the complete model file, `size` its length, `sha256` the hash of the
      model in it.
    - `save` it to a file, and `close` it to release the session, which is created again when it is needed.

    An adapter's subclass sets `suffix`, the ending of file names, and implements three methods: `_open` creates the
    session, `_outputs` runs it, `chunks` yields the bytes. It may improve `size`, `model` and `_write`. `file_chunks`
    adds `provenance` to those bytes, where the format has a place for it.
    """

    suffix: ClassVar[str]
    # Ends the error about another form of the framework: why the model is not written in it.
    elsewhere: ClassVar[str] = ""

    def __init__(self, inputs: Sequence[InputSpec], threads: int) -> None:
        self._inputs = tuple(inputs)
        self._threads = threads
        self._session: Any = None
        self._sha256: Future[str] | None = None
        self._provenance: dict[str, str] = {}
        self._call_style: CallStyle | None = None
        notify_after_fork(self)

    def call_like(self, style: CallStyle) -> None:
        """Let the model be called in another way, such as the module that it was exported from."""
        self._call_style = style

    @abstractmethod
    def _open(self) -> Any:
        """Create the session."""

    @abstractmethod
    def _outputs(self, feed: Feed) -> list[Any]:
        """Run the session and return all outputs."""

    @abstractmethod
    def chunks(self) -> Iterator[bytes | memoryview]:
        """Yield the bytes of the complete model without provenance."""

    def file_chunks(self) -> Iterator[bytes | memoryview]:
        """Yield the bytes of the file that `save` writes: the model, and its provenance where the format has a place.

        Here provenance is left out. An adapter that writes it must yield the same `chunks` after `load_saved`.
        """
        return self.chunks()

    @property
    def provenance(self) -> Mapping[str, str]:
        """Return where the model comes from, as text by name; empty until the model is the result of a run."""
        return self._provenance

    def add_provenance(self, properties: Mapping[str, str]) -> None:
        """Write these properties into the file when the model is saved. `sha256` stays the hash of the model alone."""
        self._provenance = dict(properties)

    def __call__(self, *args: Any, **inputs: Any) -> Any:
        """Run the model: `model(x)`, `model(x, y)`, `model({"x": x})` or `model(x=x)`."""
        if self._call_style is not None:
            return self._call_style.call(self, args, inputs)
        where = "the model call"
        if len(args) == 1 and not inputs:
            return self.run(match_inputs(args[0], self._inputs, where))
        return self.run(match_inputs(inputs or args, self._inputs, where, labels=False))

    if not TYPE_CHECKING:  # a type checker would accept every attribute

        def __getattr__(self, name: str) -> Any:
            style = self.__dict__.get("_call_style")
            if style is None or name.startswith("_"):
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            return style.attribute(self, name)

    def run(self, feed: Feed) -> Any:
        """Run the model on a dict of arrays. One output comes as an array, several as a list."""
        outputs = self._outputs(feed)
        return outputs[0] if len(outputs) == 1 else outputs

    def processor_time(self) -> float:
        """Return the processor seconds of this thread, or of the thread that computes where the runtime has its own."""
        return time.thread_time()

    @property
    def inputs(self) -> tuple[InputSpec, ...]:
        """Return the inputs of the model."""
        return self._inputs

    @property
    def threads(self) -> int:
        """Return the threads of one inference; 0 lets the runtime decide."""
        return self._threads

    def with_threads(self, threads: int) -> Self:
        """Set the threads of one inference for the next session, and return the model; 0 lets the runtime decide."""
        if threads != self._threads:
            self._threads, self._session = threads, None
        return self

    @property
    def session(self) -> Any:
        """Return the session, which is created once."""
        if self._session is None:
            self._session = self._open()
        return self._session

    @property
    def model(self) -> Any:
        """Return the complete model in the framework's own form; its bytes where there is no other."""
        return self.SerializeToString()

    @property
    def size(self) -> int:
        """Return the size of the complete model file in bytes."""
        return sum(len(chunk) for chunk in self.file_chunks())

    def SerializeToString(self) -> bytes:  # noqa: N802 - the name that evaluation code for ONNX expects
        """Return the complete model file."""
        return b"".join(self.file_chunks())

    def save(self, path: str | Path) -> Path:
        """Write the complete model to a file, and create its folder. A partial file is never left."""
        path = Path(os.path.expanduser(path))
        owner = SUFFIXES.get(path.suffix.lower())
        if owner is not None and owner != SUFFIXES.get(self.suffix):
            raise BuildError(
                f"{str(path)!r} is a file name for {owner}, but this model is written as {self.suffix}: "
                f"save it as {path.with_suffix(self.suffix).name!r}{self.elsewhere}"
            )
        if path.is_dir():
            raise BuildError(
                f"{str(path)!r} is a folder, but this model is written as one file: save it as "
                f"{str(path / f'model{self.suffix}')!r}{self.elsewhere}"
            )
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._write(path)
        except QuaverError:
            raise
        except (OSError, ValueError) as error:  # ValueError: the name is invalid, such as one with a null character
            reason = error.strerror if isinstance(error, OSError) and error.strerror else error
            raise BuildError(f"cannot write {str(path)!r}: {reason}") from error
        return path

    def _write(self, path: Path) -> None:
        write_safely(path, self.file_chunks())

    def start_hashing(self) -> None:
        """Start to compute `sha256` in a thread: hashing releases the interpreter lock while eval_func runs."""
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
        """Return the hash of the model as it was scored: of its file without provenance, as the history records it."""
        self.start_hashing()
        assert self._sha256 is not None
        return self._sha256.result()

    def close(self) -> None:
        """Release the session."""
        self._session = None

    def after_fork(self) -> None:
        """Forget session and hash in a forked child, such as a worker; they are created again on demand."""
        if self._session is not None:
            keep_alive(self._session)
        self._session = self._sha256 = None
