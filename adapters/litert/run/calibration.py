"""Ranges of all tensors from one pass over the calibration data, and a look at whether the conversion was right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quaver.adapters.batches import Feed, InputSpec
from quaver.adapters.channels import Statistic
from quaver.adapters.litert.read.graph import Graph
from quaver.adapters.litert.read.intake import Source
from quaver.adapters.litert.run.model import LiteRTModel
from quaver.adapters.litert.run.session import Session
from quaver.adapters.streaming import StreamingCalibrator, Values
from quaver.errors import ModelError

# How far the float .tflite may be from the model it was converted from, as a part of the largest output.
DRIFT = 1e-3


class Calibrator(StreamingCalibrator):
    """The float model with all tensors kept."""

    def __init__(
        self,
        graph: Graph,
        inputs: Sequence[InputSpec],
        tensors: Sequence[int],
        statistics: Sequence[Statistic],
        threads: int,
    ) -> None:
        super().__init__(inputs, [graph.tensor_name(tensor) for tensor in tensors], statistics)
        self._graph = graph
        self._tensors = {graph.tensor_name(tensor): tensor for tensor in tensors}
        self._session = Session(graph.content, [spec.name for spec in inputs], threads, keep_all=True)

    def values(self, feed: Feed) -> Values:
        self._session.invoke(feed)
        return [(name, self._session.interpreter.get_tensor(tensor)) for name, tensor in self._tensors.items()]

    def whose(self, tensor: str) -> str:
        writer = self._graph.writers.get(self._tensors[tensor])
        return "an input" if writer is None else f"the output of {self._graph.names[writer]!r}"


def check_conversion(model: LiteRTModel, source: Source, feeds: Sequence[Feed]) -> None:
    """Compare the float .tflite with the model it was converted from; raises where they do not agree."""
    for feed in feeds:
        outputs = model.run(feed)
        for at, (before, after) in enumerate(
            zip(source(feed), outputs if isinstance(outputs, list) else [outputs], strict=True)
        ):
            _compare(at, before, after)


def _compare(at: int, before: NDArray[Any], after: NDArray[Any]) -> None:
    which = f"output {at} of the converted model"
    if before.shape != after.shape:
        raise ModelError(f"{which} has shape {list(after.shape)}, but the source model's has {list(before.shape)}")
    if not before.size:
        return
    if before.dtype.kind != "f":
        wrong = float(np.mean(before != after))
        if wrong > DRIFT:
            raise ModelError(
                f"{which} differs from the source model's in {wrong:.1%} of its values: it is not the same model"
            )
        return
    strange = np.isnan(after) & ~np.isnan(before)
    if strange.any():
        raise ModelError(f"{which} is NaN where the source model's is not: TensorFlow's converter got it wrong")
    known = np.isfinite(before)
    scale = float(np.max(np.abs(before[known]), initial=1e-6))
    drift = float(np.max(np.abs(before[known].astype(np.float64) - after[known]), initial=0.0)) / scale
    if drift > DRIFT:
        raise ModelError(
            f"{which} is off from the source model's by {drift:.2%} of its largest value: it is not the same model. "
            "Layers that behave otherwise in training, or that draw random numbers, are the usual cause"
        )
