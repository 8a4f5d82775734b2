"""A quantized model seen from inside with no float model beside it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

from quaver.adapters.batches import Feed, InputSpec
from quaver.introspection import AloneRun, QuantizedOp
from quaver.quantization import QuantizedTensor


class QuantizedView(ABC):
    """What can be told of a quantized file by itself; an adapter returns a subclass from `Adapter.look_alone`.

    Attributes:
        inputs: what the model takes, as float where it takes integers with a scale.
        ops: the operators that write integers with one scale for all of a tensor, in graph order.
    """

    inputs: Sequence[InputSpec]
    ops: Sequence[QuantizedOp]

    @abstractmethod
    def run(self, feed: Feed) -> AloneRun:
        """Run a feed; what each of the ops writes, by its name, and what the model gives."""

    @abstractmethod
    def weights(self) -> Iterator[tuple[str, QuantizedTensor]]:
        """The constants in integers that operators multiply with or look rows up in, by the operator's name."""
