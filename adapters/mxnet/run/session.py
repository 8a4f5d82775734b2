"""A graph bound to its parameters, which is bound again for inputs of another shape."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock
from typing import Any

import numpy as np

from quaver.adapters.calibration.calibrator import StreamingCalibrator, Values
from quaver.adapters.mxnet.build.builder import Builder
from quaver.adapters.mxnet.load.sources import import_mxnet
from quaver.adapters.mxnet.run.worker_thread import use_threads
from quaver.errors import BuildError
from quaver.types import Array, Feed, PlainMapping


class Session:
    """Runs a symbol on feeds. Its inputs are the arguments that are no parameters."""

    def __init__(self, symbol: Any, parameters: PlainMapping, threads: int = 0) -> None:
        self._mx = import_mxnet()
        self.symbol, self._threads = symbol, threads
        states = symbol.list_auxiliary_states()
        self._args = {name: parameters[name] for name in symbol.list_arguments() if name in parameters}
        self._aux = {name: parameters[name] for name in states}
        self._inputs = [name for name in symbol.list_arguments() if name not in parameters]
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._lock = Lock()
        self.executor: Any = None

    def run(self, feed: Feed) -> list[Array]:
        """Run a feed, and return copies of all outputs."""
        with self._lock:
            return [output.asnumpy() for output in self.forward(feed)]

    def forward(self, feed: PlainMapping) -> list[Any]:
        """Start a run. Return all outputs, whose memory the next run uses again, and which may not be computed yet."""
        use_threads(self._threads)
        arrays = {name: feed[name] for name in self._inputs}
        shapes = {name: tuple(array.shape) for name, array in arrays.items()}
        if self.executor is None or shapes != self._shapes:
            self._bind(arrays)
            self._shapes = shapes
        for name, array in arrays.items():
            self.executor.arg_dict[name][:] = array
        outputs: list[Any] = self.executor.forward(is_train=False)
        return outputs

    def _bind(self, arrays: PlainMapping) -> None:
        nd, cpu = self._mx.nd, self._mx.cpu()
        places = {name: nd.empty(array.shape, cpu, np.dtype(array.dtype)) for name, array in arrays.items()}
        try:
            self.executor = self.symbol.bind(cpu, {**self._args, **places}, aux_states=self._aux, grad_req="null")
        except self._mx.base.MXNetError as error:
            reason = str(error).strip().splitlines()[-1]
            raise BuildError(f"MXNet cannot load the model: {reason[:300]}") from error


def with_first_outputs(symbol: Any, tensors: Sequence[str]) -> Any:
    """Return the graph with these tensors as its first outputs, before its own."""
    inner = symbol.get_internals()
    return import_mxnet().sym.Group([*(inner[name] for name in tensors), symbol])


class Calibrator(StreamingCalibrator):
    """Runs the float model with these tensors as its outputs."""

    def __init__(self, builder: Builder, threads: int) -> None:
        names = builder.tensors_to_calibrate()
        super().__init__(builder.network.inputs, names)
        self._graph = builder.graph
        self._input_names = {spec.name for spec in builder.network.inputs}
        self._outputs = [name for name in names if name not in self._input_names]
        self._session = Session(
            with_first_outputs(builder.network.symbol, self._outputs), builder.network.parameters, threads
        )

    def values(self, feed: Feed) -> Values:
        outputs = dict(zip(self._outputs, self._session.run(feed), strict=False))
        return [(name, feed[name] if name in self._input_names else outputs[name]) for name in self.tensors]

    def origin_of(self, tensor: str) -> str:
        return "an input" if tensor in self._input_names else "inside the model"
