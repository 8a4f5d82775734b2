"""Denormal weights: too small to matter, but their products slow the processor down below 1e-38."""

from __future__ import annotations

import numpy as np

from quaver.adapters.onnxrt.load.graph import Graph
from quaver.types import Array

TINY = np.float32(1e-30)
# A tensor whose values are all small may be scaled up later. Judgement: no trained layer has weights below 1e-20 only.
_USUAL = np.float32(1e-20)
# Inputs that only enter sums of products, where a term below 1e-30 beside others changes nothing. A tiny number that is
# added before a logarithm or a division is there on purpose.
_SUMS = {
    "Conv": (1, 2), "ConvTranspose": (1, 2), "Gemm": (0, 1, 2), "MatMul": (0, 1), "LSTM": (1, 2, 3), "GRU": (1, 2, 3),
    "RNN": (1, 2, 3),
}  # fmt: skip
_CHUNK = 1 << 20


def flush_denormals(graph: Graph) -> int:
    """Set weights below 1e-30 to zero, and return how many there were."""
    count = 0
    for name, array in list(graph.constants.items()):
        if array.dtype == np.float32 and name not in graph.pinned and _only_summed(graph, name):
            tiny = _count(array)
            if tiny:
                graph.constants[name] = np.where(np.abs(array) < TINY, np.float32(0), array)
                count += tiny
    return count


def _only_summed(graph: Graph, name: str) -> bool:
    readers = [graph.nodes[index] for index in graph.consumers.get(name, [])]
    return bool(readers) and all(
        node.domain in ("", "ai.onnx")
        and all(slot in _SUMS.get(node.op_type, ()) for slot, used in enumerate(node.input) if used == name)
        for node in readers
    )


def _count(array: Array) -> int:
    """Count values that are tiny but not zero; 0 if all are small. In pieces: a weight may exceed the memory."""
    flat, tiny, largest = array.reshape(-1), 0, np.float32(0)
    for start in range(0, flat.size, _CHUNK):
        sizes = np.abs(flat[start : start + _CHUNK])
        tiny += int(np.count_nonzero(sizes < TINY)) - int(np.count_nonzero(sizes == 0))
        largest = max(largest, sizes.max())
    return tiny if largest > _USUAL else 0
