"""A .tflite that lies about itself is refused as a whole, by the name of the tensor or the operator that does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from quaver.adapters.litert.adapter import LiteRTAdapter
from quaver.adapters.litert.load import graph as graphs
from quaver.adapters.options import AdapterOptions
from quaver.errors import ModelError

SOUND = (Path(__file__).parents[3] / "fuzz" / "corpus" / "litert" / "convolution").read_bytes()


def constant(model: Any) -> Any:
    """A float tensor that lies in the file."""
    return next(
        tensor
        for tensor in model.subgraphs[0].tensors
        if model.buffers[tensor.buffer].data is not None and len(model.buffers[tensor.buffer].data) and not tensor.type
    )


def _tensor(**changes: Any) -> Callable[[Any], None]:
    def change(model: Any) -> None:
        found = constant(model)
        found.name = b"kernel"
        for name, value in changes.items():
            setattr(found, name, value)

    return change


def _operator(**changes: Any) -> Callable[[Any], None]:
    return lambda model: [setattr(model.subgraphs[0].operators[0], *item) for item in changes.items()]  # type: ignore


def _graph(**changes: Any) -> Callable[[Any], None]:
    return lambda model: [setattr(model.subgraphs[0], *item) for item in changes.items()]  # type: ignore


def _signature(**changes: Any) -> Callable[[Any], None]:
    return lambda model: [setattr(model.signatureDefs[0], *item) for item in changes.items()]  # type: ignore


def _entry(**changes: Any) -> Callable[[Any], None]:
    return lambda model: [setattr(model.signatureDefs[0].inputs[0], *item) for item in changes.items()]  # type: ignore


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            _tensor(shape=np.array([2, 3, 3, 2], np.int32)),
            r"tensor 'kernel' of shape .* takes 144 bytes, but holds \d+",
        ),
        (
            _tensor(shape=np.array([-2, 3], np.int32)),
            r"tensor 'kernel' has the shape \[-2, 3\], but no size may be",
        ),
        (_tensor(shape=np.array([2**31 - 1] * 4, np.int32)), r"tensor 'kernel' of shape .* takes \d+ bytes"),
        (_tensor(shape=None), r"tensor 'kernel' of shape \[\] takes 4 bytes"),
        (_tensor(shapeSignature=np.array([1], np.int32)), r"tensor 'kernel' has two shapes"),
        (_tensor(type=99), r"tensor 'kernel' is of the unknown type 99"),
        (_tensor(buffer=10_000), r"cannot be read \(IndexError: index 10000"),
        (_tensor(name=b"\xff\xfe"), r"the name of tensor 0\.\d+ is not text"),
        (_operator(opcodeIndex=500), r"the type of operator 0 of graph 0 is number 500 of"),
        (_operator(inputs=[0, 999]), r"an input of operator 0 of graph 0 is number 999 of"),
        (_operator(inputs=[-7]), r"an input of operator 0 of graph 0 is number -7 of"),
        (_operator(inputs=[0, -1, 2]), r"operator 0 of graph 0 lacks its operand 1, which it needs"),
        (_operator(outputs=[-1]), r"an output of operator 0 of graph 0 is number -1 of"),
        (_graph(inputs=[]), r"its main graph has no input"),
        (_graph(outputs=[777]), r"an output of graph 0 is number 777 of"),
        (_signature(subgraphIndex=9), r"the graph of signature 'serving_default' is number 9 of 1"),
        (_signature(signatureKey=b"\xff"), r"the name of a signature is not text"),
        (_entry(tensorIndex=500), r"a tensor of signature 'serving_default' is number 500 of"),
        (_entry(name=None), r"a name in signature 'serving_default' is missing"),
    ],
)
def test_an_invalid_part_is_named(change: Callable[[Any], None], message: str) -> None:
    model = graphs.read(SOUND)
    change(model)
    with pytest.raises(ModelError, match=message):
        LiteRTAdapter.load(graphs.write(model), AdapterOptions())


def test_a_file_without_faults_stays_unchanged() -> None:
    adapter = LiteRTAdapter.load(SOUND, AdapterOptions())
    assert adapter.assemble(None).SerializeToString() == SOUND


@pytest.mark.parametrize("kept", [8, 100, 700, len(SOUND) - 1])
def test_a_truncated_file_is_refused(kept: int) -> None:
    with pytest.raises(ModelError):
        LiteRTAdapter.load(SOUND[:kept], AdapterOptions())
