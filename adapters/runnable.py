"""What every model object can do, whatever framework runs it."""

from __future__ import annotations

import hashlib
import os
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from threading import Thread
from typing import Any

from quaver.adapters.batches import Feed, InputSpec, match


class Runnable(ABC):
    """A model with its bytes, called by position or by input name. The session is made when it is first run."""

    def __init__(self, inputs: Sequence[InputSpec], threads: int) -> None:
        self._inputs = tuple(inputs)
        self._threads = threads
        self._session: Any = None
        self._sha256: Future[str] | None = None

    @abstractmethod
    def _open(self) -> Any:
        """Make the session."""

    @abstractmethod
    def _outputs(self, feed: Feed) -> list[Any]:
        """Run the session; all outputs."""

    @abstractmethod
    def chunks(self) -> Iterator[bytes | memoryview]:
        """The bytes of the complete model, piece by piece."""

    @property
    @abstractmethod
    def size(self) -> int:
        """Size of the complete model file in bytes."""

    @abstractmethod
    def save(self, path: str | Path) -> Path:
        """Write the complete model to a file. Never leaves half a file."""

    def __call__(self, *args: Any, **inputs: Any) -> Any:
        """Run the model: `model(x)`, `model(x, y)`, `model({"x": x})` or `model(x=x)`."""
        batch = inputs or (args[0] if len(args) == 1 else args)
        return self.run(match(batch, self._inputs, where="the model call"))

    def run(self, feed: Feed) -> Any:
        """Run the model on a dict of arrays. One output comes as an array, several as a list."""
        outputs = self._outputs(feed)
        return outputs[0] if len(outputs) == 1 else outputs

    @property
    def session(self) -> Any:
        """What runs the model, made once."""
        if self._session is None:
            self._session = self._open()
        return self._session

    def SerializeToString(self) -> bytes:  # noqa: N802 - the name that evaluation code for ONNX expects
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

    def close(self) -> None:
        """Let go of the session."""
        self._session = None


def write_safely(path: Path, chunks: Iterable[bytes | memoryview]) -> None:
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


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current
