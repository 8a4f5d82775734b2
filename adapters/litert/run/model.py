"""The model object that eval_func gets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from quaver.adapters.batches import Feed, InputSpec
from quaver.adapters.litert.run.session import Session
from quaver.adapters.model import Model


class LiteRTModel(Model):
    """A .tflite: callable, with its `interpreter`, and complete as bytes."""

    suffix = ".tflite"
    elsewhere = ". Its int8 kernels are LiteRT's: TensorFlow has none, so that no graph and no SavedModel comes out"

    def __init__(self, content: bytes, inputs: Sequence[InputSpec], threads: int) -> None:
        super().__init__(inputs, threads)
        self._content = content

    def _open(self) -> Session:
        return Session(self._content, [spec.name for spec in self._inputs], self._threads)

    def _outputs(self, feed: Feed) -> list[Any]:
        session: Session = self.session
        return session.as_float(session.run(session.as_integers(feed)))

    @property
    def interpreter(self) -> Any:
        """The `ai_edge_litert.interpreter.Interpreter`, made once."""
        return self.session.interpreter

    @property
    def model(self) -> bytes:
        """The complete .tflite file."""
        return self._content

    def chunks(self) -> Iterator[bytes | memoryview]:
        """The bytes of the model file."""
        yield self._content

    @property
    def size(self) -> int:
        """Size of the model file in bytes."""
        return len(self._content)
