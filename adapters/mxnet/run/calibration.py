"""Ranges of all tensors that some trial may quantize, from one pass over the calibration data."""

from __future__ import annotations

from quaver.adapters.batches import Feed
from quaver.adapters.mxnet.build.quantizing import Builder
from quaver.adapters.mxnet.run.session import Session, shown
from quaver.adapters.streaming import StreamingCalibrator, Values


class Calibrator(StreamingCalibrator):
    """The float model, with these tensors as its outputs."""

    def __init__(self, builder: Builder, threads: int) -> None:
        names = builder.needed()
        super().__init__(builder.network.inputs, names)
        self._graph = builder.graph
        self._given = {spec.name for spec in builder.network.inputs}
        self._shown = [name for name in names if name not in self._given]
        self._session = Session(shown(builder.network.symbol, self._shown), builder.network.parameters, threads)

    def values(self, feed: Feed) -> Values:
        found = dict(zip(self._shown, self._session.run(feed), strict=False))
        return [(name, feed[name] if name in self._given else found[name]) for name in self.tensors]

    def whose(self, tensor: str) -> str:
        return "an input" if tensor in self._given else "inside the model"
