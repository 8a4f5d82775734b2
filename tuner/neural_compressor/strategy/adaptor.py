"""The adaptor of Neural Compressor's strategies, which reads tensors of the float model and of configurations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from quaver.ops import QuantConfig
from quaver.probe import Probe
from quaver.space import TuningSpace
from quaver.types import Array


class QuantizedHandle:
    """A configuration that stands for its model: it is built where its tensors are read."""

    def __init__(self, config: QuantConfig) -> None:
        self.config = config


class Adaptor:
    """Reads tensors on the probe samples, which are taken from the calibration data."""

    def __init__(self, space: TuningSpace, probe: Probe, read: Callable[[Any, TuningSpace], QuantConfig]) -> None:
        self._space, self._probe, self._read = space, probe, read

    def quantize(self, tune_cfg: Any, model: Any = None, dataloader: Any = None, q_func: Any = None) -> QuantizedHandle:
        """Return a handle of a configuration for `inspect_tensor`; nothing is calibrated again."""
        return QuantizedHandle(self._read(tune_cfg, self._space))

    def inspect_tensor(
        self,
        model: Any,
        dataloader: Any = None,
        op_list: Sequence[Any] = (),
        iteration_list: Sequence[int] = (1,),
        inspect_type: str = "activation",
        **options: Any,
    ) -> dict[str, Any]:
        """Return {"activation": [{op: {op: array}}]}, one entry for each batch of `iteration_list`, from 1 on.

        `model` is a handle from `quantize`; anything else stands for the float model.
        """
        names = [entry[0] if isinstance(entry, tuple) else str(entry) for entry in op_list] or list(self._space.tunable)
        is_quantized = isinstance(model, QuantizedHandle)
        config = model.config if is_quantized else self._space.default_config()
        outputs = {
            name: observed.quantized if is_quantized else observed.fp32
            for name, observed in self._probe.inspect(config, names).items()
        }
        batches = max((len(arrays) for arrays in outputs.values()), default=0)
        chosen = [number - 1 for number in iteration_list if 0 < number <= batches]
        return {"activation": [{name: {name: _at(arrays, at)} for name, arrays in outputs.items()} for at in chosen]}


def _at(arrays: Sequence[Array], number: int) -> Array:
    return np.asarray(arrays[number])
