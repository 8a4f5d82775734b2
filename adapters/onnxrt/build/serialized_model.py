"""A serialized model: its bytes in parts, with large constants inside or in a separate file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from quaver.adapters.onnxrt.build import protobuf
from quaver.adapters.onnxrt.build.shared_weights import align
from quaver.adapters.onnxrt.build.weight_store import Entry, StoredTensor, WeightStore


@dataclass(frozen=True, slots=True)
class SerializedModel:
    """A model in parts.

    Attributes:
        shell: the bytes before the graph.
        graph: the entries of the graph.
        store: where large constants lie.
    """

    shell: bytes
    graph: tuple[Entry, ...]
    store: WeightStore

    def skeleton(self) -> bytes:
        """Return the model with its large constants left in the weight file."""
        location = self.store.path.name
        body = b"".join(part.external(location) if isinstance(part, StoredTensor) else part for part in self.graph)
        return self.shell + protobuf.block(protobuf.MODEL_GRAPH, body)

    def size(self) -> int:
        """Return the number of bytes of the complete model."""
        body = self._body_size()
        return len(self.shell) + len(protobuf.head(protobuf.MODEL_GRAPH, body)) + body

    def chunks(self) -> Iterator[bytes | memoryview]:
        """Yield the complete model, piece by piece. Large constants are mapped and never copied."""
        yield self.shell
        yield protobuf.head(protobuf.MODEL_GRAPH, self._body_size())
        for part in self.graph:
            if isinstance(part, StoredTensor):
                yield part.head()
                yield self.store.read(part)
            else:
                yield part

    def split(self, location: str) -> tuple[bytes, Iterator[bytes | memoryview]]:
        """Return the model with its large constants in a second file at `location`, and the bytes of that file."""
        placed: dict[str, StoredTensor] = {}
        pieces: list[bytes | StoredTensor] = []
        end = 0
        for part in self.graph:
            if isinstance(part, StoredTensor):
                offset = align(end)
                placed[part.name] = replace(part, offset=offset)
                pieces += [bytes(offset - end), part]
                end = offset + part.nbytes
        body = b"".join(
            placed[part.name].external(location) if isinstance(part, StoredTensor) else part for part in self.graph
        )
        data = (self.store.read(piece) if isinstance(piece, StoredTensor) else piece for piece in pieces)
        return self.shell + protobuf.block(protobuf.MODEL_GRAPH, body), data

    def _body_size(self) -> int:
        return sum(
            len(part.head()) + part.nbytes if isinstance(part, StoredTensor) else len(part) for part in self.graph
        )


def merged(parts: Iterable[Entry]) -> Iterator[Entry]:
    """Join neighbouring bytes."""
    run: list[bytes] = []
    for part in parts:
        if isinstance(part, StoredTensor):
            if run:
                yield b"".join(run)
                run = []
            yield part
        else:
            run.append(part)
    if run:
        yield b"".join(run)
