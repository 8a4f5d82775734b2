"""The LiteRT model object that eval_func gets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Self

import numpy as np

from quaver.adapters.data import InputSpec
from quaver.adapters.litert.build.provenance import head, split
from quaver.adapters.litert.inspect.matching import parameters_of
from quaver.adapters.litert.load.graph import Graph
from quaver.adapters.litert.run.session import Session, float_specs, quantize_inputs
from quaver.adapters.model import Model
from quaver.types import Feed


class LiteRTModel(Model):
    """A .tflite: callable, with its `interpreter`, and complete as bytes."""

    suffix = ".tflite"
    elsewhere = ". It cannot become a graph or a SavedModel: TensorFlow has no int8 kernels"

    def __init__(self, content: bytes, inputs: Sequence[InputSpec], threads: int) -> None:
        super().__init__(inputs, threads)
        self._content = content

    @classmethod
    def loaded(cls, content: bytes, inputs: Sequence[InputSpec], threads: int) -> Self:
        """Return the model in the bytes of a saved file, with the provenance that it has."""
        start, properties = split(content)
        model = cls(content[start:], inputs, threads)
        model.add_provenance(properties)
        return model

    def _open(self) -> Session:
        return Session(self._content, [spec.name for spec in self._inputs], self._threads)

    def _outputs(self, feed: Feed) -> list[Any]:
        session: Session = self.session
        return session.as_float(session.run(session.as_integers(feed)))

    @property
    def interpreter(self) -> Any:
        """Return the `ai_edge_litert.interpreter.Interpreter`, which is created once."""
        return self.session.interpreter

    @property
    def model(self) -> bytes:
        """Return the complete .tflite file."""
        return self.SerializeToString()

    def chunks(self) -> Iterator[bytes | memoryview]:
        """Yield the bytes of the model without its provenance."""
        yield self._content

    def file_chunks(self) -> Iterator[bytes | memoryview]:
        """Yield the provenance, then the bytes of the model."""
        yield from filter(None, (head(self._content, self._provenance), self._content))


class GivenModel(LiteRTModel):
    """A file of any tool. Scaled inputs and outputs are quantized and dequantized around each run."""

    def __init__(self, graph: Graph, threads: int) -> None:
        super().__init__(graph.content, float_specs(graph), threads)
        self._graph = graph
        self._scales = [parameters_of(graph, tensor) for tensor in graph.outputs]

    def _outputs(self, feed: Feed) -> list[Any]:
        session: Session = self.session
        outputs = session.run(quantize_inputs(self._graph, feed))
        return [
            values if scale is None else (values.astype(np.float32) - int(scale.zero_point)) * np.float32(scale.scale)
            for values, scale in zip(outputs, self._scales, strict=True)
        ]
