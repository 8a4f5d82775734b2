"""A quantized ONNX file by itself: the tensors that it keeps in integers, and its weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from onnx import NodeProto

from quaver.adapters.alone import QuantizedView
from quaver.adapters.batches import Feed
from quaver.adapters.onnxrt.look.observation import Tap
from quaver.adapters.onnxrt.look.quantized_file import QuantizedFile
from quaver.adapters.onnxrt.run import session as sessions
from quaver.introspection import AloneRun, QuantizedOp, QuantizedPair
from quaver.quantization import QuantizedTensor

# What multiplies with a weight, or looks rows up in a table.
_WEIGHTY = {
    "Conv", "ConvTranspose", "Gather", "Gemm", "MatMul", "MatMulIntegerToFloat", "QGemm", "QLinearConv",
    "QLinearMatMul",
}  # fmt: skip


class FileAlone(QuantizedView):
    """A quantized file, whoever made it."""

    def __init__(self, source: Any, threads: int) -> None:
        self._file = QuantizedFile(source)
        makers = {name: node for node in self._file.model.graph.node for name in node.output}
        found: dict[str, QuantizedOp] = {}
        for node in self._file.model.graph.node:
            parameters = self._file.writes(node)
            if parameters is None or parameters.zero_point.dtype not in (np.int8, np.uint8, np.int16, np.uint16):
                continue
            named = _named(node, makers)
            if named is not None and named[0] not in found:
                found[named[0]] = QuantizedOp(*named, node.output[0], parameters)
        self.ops = tuple(found.values())
        taps = [Tap(op.tensor, op.parameters) for op in self.ops]
        self._session = sessions.create(self._file.giving(taps), sessions.options(threads))
        self.inputs = sessions.input_specs(self._session)

    def run(self, feed: Feed) -> AloneRun:
        given = self._file.outputs()
        wanted = list(dict.fromkeys([*given, *(op.tensor for op in self.ops)]))
        values = dict(zip(wanted, self._session.run(wanted, feed), strict=True))
        seen = {op.name: QuantizedPair(QuantizedTensor(values[op.tensor], op.parameters)) for op in self.ops}
        return AloneRun(seen, [values[name] for name in given])

    def weights(self) -> Iterator[tuple[str, QuantizedTensor]]:
        for node in self._file.model.graph.node:
            found = self._file.weight(node) if node.op_type in _WEIGHTY and len(node.input) > 1 else None
            if found is not None:
                yield node.name or node.output[0], found


def _named(node: NodeProto, makers: Mapping[str, NodeProto]) -> tuple[str, str] | None:
    """Name and type of what computes the integers that a node writes; None for a constant."""
    if node.op_type != "QuantizeLinear":
        return node.name or node.output[0], node.op_type
    source = node.input[0]
    if source not in makers:
        return source, "input"
    maker = makers[source]
    return None if maker.op_type == "Constant" else (maker.name or source, maker.op_type)
