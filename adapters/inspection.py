"""A quantized model seen from inside, beside the float model it was made from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from quaver.adapters.data import InputSpec
from quaver.affine import QuantizedTensor
from quaver.introspection import AloneRun, LocalRun, OpContext, OpWeight, OtherOp, QuantizedOp, QuantizedRun
from quaver.ops import QuantConfig
from quaver.types import Array, Feed

if TYPE_CHECKING:
    from quaver.adapters.base import Adapter


class View:
    """Show a quantized model to diagnosis. This class needs only `Adapter.record_outputs`; all else stays empty.

    An adapter that can tell more returns a subclass from `Adapter.inspect_quantized`.
    """

    def __init__(self, adapter: Adapter, config: QuantConfig) -> None:
        self._adapter, self._config = adapter, config

    @property
    def precisions(self) -> Mapping[str, str]:
        """The precision that each op runs in."""
        return {name: str(pick.precision) for name, pick in self._config.items()}

    def local(self, ops: Sequence[str], tensors: Sequence[str]) -> Callable[[Feed], LocalRun]:
        """A function that runs a feed through the float model, and these ops in reduced precision beside it.

        `tensors` are others of the float model to give out; one that is not known is left out.
        """
        record_outputs, model = self._adapter.record_outputs(None, ops), self._adapter.assemble(None)

        def run(feed: Feed) -> LocalRun:
            return LocalRun(
                {name: (value, None) for name, value in record_outputs(feed).items()}, {}, listed(model.run(feed))
            )

        return run

    def quantized(self, ops: Sequence[str]) -> Callable[[Feed], QuantizedRun]:
        """A function that runs a feed through the quantized model; ops that cannot be found in it are left out."""
        record_outputs, model = self._adapter.record_outputs(self._config, ops), self._adapter.assemble(self._config)
        return lambda feed: QuantizedRun(record_outputs(feed), listed(model.run(feed)))

    def weights(self) -> Iterator[OpWeight]:
        """The weights of the ops that have one, one by one: they may be large."""
        return iter(())

    def contexts(self) -> Mapping[str, OpContext]:
        """What surrounds each op."""
        return {}

    def others(self) -> Mapping[str, OtherOp]:
        """Operators beside the ops that read or write quantized tensors, by name; `local` and `quantized` know them."""
        return {}

    def seconds(self) -> Mapping[str, float]:
        """Seconds of each op in one inference of a kept sample; empty if that cannot be measured."""
        return self._adapter.op_seconds(self._config)


def listed(outputs: Any) -> list[Array]:
    """What a model gave, as a list."""
    return [np.asarray(part) for part in (outputs if isinstance(outputs, list) else [outputs])]


class QuantizedView(ABC):
    """What can be told of a quantized file by itself; an adapter returns a subclass from `Adapter.inspect_standalone`.

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
