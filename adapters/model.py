"""The model object that `eval_func` gets, whatever framework runs it."""

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
from typing import Any, ClassVar, Protocol, Self

from quaver.adapters.data import InputSpec, match
from quaver.errors import BuildError, QuaverError
from quaver.files.atomic import write_safely
from quaver.types import Feed


class Forkable(Protocol):
    """Something that can do without what its parent process had."""

    def after_fork(self) -> None:
        """Called in the child."""


_known: weakref.WeakSet[Any] = weakref.WeakSet()


def watch_for_fork(thing: Forkable) -> None:
    """Let a thing know when this process is the forked child of the one it was made in."""
    _known.add(thing)


def never_close(session: Any) -> None:
    """Keep an object for ever: to close a session would wait for its threads, and the end of the process does."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(session))


def _after_fork() -> None:
    for thing in list(_known):
        thing.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


# File names that end so hold models of one kind, and no other may be written under them.
SUFFIXES = {
    ".onnx": "ONNX", ".ort": "ONNX Runtime's own format", ".tflite": "LiteRT", ".lite": "LiteRT", ".keras": "Keras",
    ".h5": "Keras", ".hdf5": "Keras", ".pb": "TensorFlow", ".pt": "PyTorch", ".pth": "PyTorch",
    ".safetensors": "safetensors", ".params": "MXNet",
}  # fmt: skip


class Model(ABC):
    """A model in one configuration: what `eval_func` gets, what `recover` returns, what `TuneResult.model` is.

    Whoever has one may

    - call it: `model(x)`, `model(x, y)` by position, `model({"x": x})` or `model(x=x)` by input name. One output comes
      as an array, several as a list. `model.run(feed)` is the same for a dict of arrays that fit, without a check;
    - go on with the framework's own objects: `session` is what runs the model, `model` what it is made of;
    - ask for its bytes: `SerializeToString()` is the complete model file, `size` its length, `sha256` the hash of the
      model in it;
    - `save` it to a file, and `close` it to let go of the session; it is made anew when it is needed again.

    An adapter's subclass says in `suffix` how files of such models end, and writes three methods: `_open` makes the
    session, `_outputs` runs it, `chunks` gives the bytes. `size`, `model` and `_write` may be done better than here.
    `file_chunks` adds `provenance` to those bytes, where the format has a place for it.
    """

    suffix: ClassVar[str]
    elsewhere: ClassVar[str] = ""  # why it is not written in other forms of its framework, behind "save it as ..."

    def __init__(self, inputs: Sequence[InputSpec], threads: int) -> None:
        self._inputs = tuple(inputs)
        self._threads = threads
        self._session: Any = None
        self._sha256: Future[str] | None = None
        self._provenance: dict[str, str] = {}
        watch_for_fork(self)

    @abstractmethod
    def _open(self) -> Any:
        """Make the session."""

    @abstractmethod
    def _outputs(self, feed: Feed) -> list[Any]:
        """Run the session; all outputs."""

    @abstractmethod
    def chunks(self) -> Iterator[bytes | memoryview]:
        """The bytes of the complete model, piece by piece, without provenance."""

    def file_chunks(self) -> Iterator[bytes | memoryview]:
        """Yield the bytes of the file that `save` writes: the model, and its provenance where the format has a place.

        Here provenance is left out. An adapter that writes it must give the same `chunks` after `load`.
        """
        return self.chunks()

    @property
    def provenance(self) -> Mapping[str, str]:
        """Where the model comes from, as text by name; empty until the model is the result of a run."""
        return self._provenance

    def add_provenance(self, properties: Mapping[str, str]) -> None:
        """Write these properties into the file when the model is saved. `sha256` stays the hash of the model alone."""
        self._provenance = dict(properties)

    def __call__(self, *args: Any, **inputs: Any) -> Any:
        """Run the model: `model(x)`, `model(x, y)`, `model({"x": x})` or `model(x=x)`."""
        where = "the model call"
        if len(args) == 1 and not inputs:
            return self.run(match(args[0], self._inputs, where))
        return self.run(match(inputs or args, self._inputs, where, labels=False))

    def run(self, feed: Feed) -> Any:
        """Run the model on a dict of arrays. One output comes as an array, several as a list."""
        outputs = self._outputs(feed)
        return outputs[0] if len(outputs) == 1 else outputs

    def processor_time(self) -> float:
        """Seconds on a processor: of this thread, and of the one that computes, where the runtime has one for it."""
        return time.thread_time()

    @property
    def inputs(self) -> tuple[InputSpec, ...]:
        """What the model takes."""
        return self._inputs

    @property
    def threads(self) -> int:
        """Threads of one inference; 0 lets the runtime decide."""
        return self._threads

    def on_threads(self, threads: int) -> Self:
        """The same model, whose inferences take so many threads from the next session on; 0 lets the runtime decide."""
        if threads != self._threads:
            self._threads, self._session = threads, None
        return self

    @property
    def session(self) -> Any:
        """What runs the model, made once."""
        if self._session is None:
            self._session = self._open()
        return self._session

    @property
    def model(self) -> Any:
        """The complete model in the framework's own form; its bytes where there is no other."""
        return self.SerializeToString()

    @property
    def size(self) -> int:
        """Size of the complete model file in bytes."""
        return sum(len(chunk) for chunk in self.file_chunks())

    def SerializeToString(self) -> bytes:  # noqa: N802 - the name that evaluation code for ONNX expects
        """The complete model file."""
        return b"".join(self.file_chunks())

    def save(self, path: str | Path) -> Path:
        """Write the complete model to a file, in folders that are made if need be. Never leaves half a file."""
        path = Path(os.path.expanduser(path))
        other = SUFFIXES.get(path.suffix.lower())
        if other is not None and other != SUFFIXES.get(self.suffix):
            raise BuildError(
                f"{str(path)!r} is the name of a file for {other}, and this model is written as {self.suffix}: "
                f"save it as {path.with_suffix(self.suffix).name!r}{self.elsewhere}"
            )
        if path.is_dir():
            raise BuildError(
                f"{str(path)!r} is a folder, and this model is written as one file: save it as "
                f"{str(path / f'model{self.suffix}')!r}{self.elsewhere}"
            )
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._write(path)
        except QuaverError:
            raise
        except (OSError, ValueError) as error:  # ValueError: a name that no file can have
            reason = error.strerror if isinstance(error, OSError) and error.strerror else error
            raise BuildError(f"cannot write {str(path)!r}: {reason}") from error
        return path

    def _write(self, path: Path) -> None:
        write_safely(path, self.file_chunks())

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
        """Hash of the model as it was scored: of its file without provenance, as the history records it."""
        self.start_hashing()
        assert self._sha256 is not None
        return self._sha256.result()

    def close(self) -> None:
        """Let go of the session."""
        self._session = None

    def after_fork(self) -> None:
        """In a forked child (a worker of eval_func's) session and hash are made anew when they are asked for."""
        if self._session is not None:
            never_close(self._session)
        self._session = self._sha256 = None
