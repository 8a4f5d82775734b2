"""Views of a quantized model from inside, for diagnosis."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from quaver.adapters.data import InputSpec
from quaver.affine import QuantizedTensor
from quaver.introspection import LocalRun, OpContext, OpWeight, QuantizedOp, QuantizedRun, StandaloneRun, UntunedOp
from quaver.ops import QuantConfig
from quaver.types import Array, Feed

if TYPE_CHECKING:
    from quaver.adapters.base import Adapter


class ModelView:
    """A quantized model next to the float model it was made from, for diagnosis.

    This class needs only `Adapter.record_outputs`; all else stays empty. An adapter that can tell more returns a
    subclass from `inspect_quantized`.
    """

    def __init__(self, adapter: Adapter, config: QuantConfig) -> None:
        self._adapter, self._config = adapter, config

    @property
    def precisions(self) -> Mapping[str, str]:
        """Return the precision that each op runs in."""
        return {name: str(pick.precision) for name, pick in self._config.items()}

    def local(self, ops: Sequence[str], tensors: Sequence[str]) -> Callable[[Feed], LocalRun]:
        """Return a function that runs a feed through the float model, and these ops also in their quantized form.

        Args:
            ops: names of ops.
            tensors: names of other tensors of the float model to return; unknown ones are left out.
        """
        record_outputs, model = self._adapter.record_outputs(None, ops), self._adapter.assemble(None)

        def run(feed: Feed) -> LocalRun:
            return LocalRun(
                {name: (value, None) for name, value in record_outputs(feed).items()}, {}, as_list(model.run(feed))
            )

        return run

    def quantized(self, ops: Sequence[str]) -> Callable[[Feed], QuantizedRun]:
        """Return a function that runs a feed through the quantized model; ops that it does not contain are left out."""
        record_outputs, model = self._adapter.record_outputs(self._config, ops), self._adapter.assemble(self._config)
        return lambda feed: QuantizedRun(record_outputs(feed), as_list(model.run(feed)))

    def weights(self) -> Iterator[OpWeight]:
        """Yield the weights of the ops one by one, because they may be large."""
        return iter(())

    def contexts(self) -> Mapping[str, OpContext]:
        """Return the surroundings of each op."""
        return {}

    def others(self) -> Mapping[str, UntunedOp]:
        """Return operators that are no ops but read or write quantized tensors, by name."""
        return {}

    def seconds(self) -> Mapping[str, float]:
        """Return the seconds of each op in one inference of a probe sample; empty if that cannot be measured."""
        return self._adapter.op_seconds(self._config)


def as_list(outputs: Any) -> list[Array]:
    """Return the outputs of a model as a list of arrays."""
    return [np.asarray(part) for part in (outputs if isinstance(outputs, list) else [outputs])]


class StandaloneView(ABC):
    """A quantized file without its float model. An adapter returns a subclass from `inspect_standalone`.

    Attributes:
        inputs: what the model takes, as float where it takes integers with a scale.
        ops: the operators that write integers with one scale for all of a tensor, in graph order.
    """

    inputs: Sequence[InputSpec]
    ops: Sequence[QuantizedOp]

    @abstractmethod
    def run(self, feed: Feed) -> StandaloneRun:
        """Run a feed. Return the output of each op by its name, and the outputs of the model."""

    @abstractmethod
    def weights(self) -> Iterator[tuple[str, QuantizedTensor]]:
        """Yield the integer constants that operators multiply with or look rows up in, with the operator's name."""
