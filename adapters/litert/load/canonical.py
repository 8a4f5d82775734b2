"""Canonical form of a converted model: the same bytes whether it came as an object, a file or a SavedModel.

Depending on the form of the model, the converter's output has other names, another order of tensors and other metadata.
Here tensors get the names of ops, in the order in which they are used, and metadata is dropped.

"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from quaver.adapters.litert.load import graph as graphs
from quaver.adapters.litert.load.graph import WEIGHT_AND_BIAS, Graph
from quaver.adapters.litert.load.model_file import signature
from quaver.types import ModelLike

KEPT_METADATA = (b"min_runtime_version",)


def canonical(content: bytes, inputs: Sequence[str], outputs: Sequence[str], output_nodes: Mapping[str, str]) -> bytes:
    """Return the canonical form of a model.

    Args:
        content: the converter's output.
        inputs: names of the inputs, in order.
        outputs: names of the outputs, in order.
        output_nodes: for tensors named after the function's result, the graph node that computes them.
    """
    graph = Graph(content)
    for tensor in graph.main.tensors:
        name = bytes(tensor.name or b"").decode()
        tensor.name = output_nodes.get(name, name).encode()
    _rename(graph, inputs)
    _order_tensors(graph.main)
    _order_buffers(graph.model)
    _order_codes(graph.model)
    graph.model.description = graphs.NAMED_BY_QUAVER
    graph.model.signatureDefs = [signature(graph.main, list(inputs), list(outputs))]
    return graphs.write(graph.model)


def _rename(graph: Graph, inputs: Sequence[str]) -> None:
    names = graph.names
    new_names: dict[int, str] = {}
    used: set[str] = set()

    def assign(tensor: int, wanted: str) -> None:
        if tensor < 0 or tensor in new_names:
            return
        fresh, count = wanted, 2
        while fresh in used:
            fresh, count = f"{wanted}:{count}", count + 1
        used.add(fresh)
        new_names[tensor] = fresh

    for tensor, name in zip(graph.inputs, inputs, strict=True):
        assign(tensor, name)
    for op, name in zip(graph.operators, names, strict=True):
        for slot, tensor in enumerate(op.outputs):
            assign(tensor, f"{name}/{slot}" if slot else name)
    for op, name in zip(graph.operators, names, strict=True):
        roles = dict(zip(WEIGHT_AND_BIAS.get(op.kind, ()), ("weight", "bias"), strict=False))
        for slot, tensor in enumerate(op.inputs):
            assign(tensor, f"{name}/{roles.get(slot, f'constant{slot}')}")
    for index, tensor in enumerate(graph.main.tensors):
        assign(index, "unused")
        tensor.name = new_names[index].encode()
    for number, part in enumerate(graph.model.subgraphs[1:], 1):
        for index, tensor in enumerate(part.tensors):
            tensor.name = b"graph%d/%d/" % (number, index) + bytes(tensor.name or b"")


def _order_tensors(main: Any) -> None:
    order = [int(tensor) for tensor in main.inputs]
    order += [tensor for operator in main.operators for tensor in _touched(operator)]
    order += [int(tensor) for tensor in main.outputs]
    ordered = list(dict.fromkeys(tensor for tensor in order if tensor >= 0))
    place = {tensor: at for at, tensor in enumerate(ordered)} | {-1: -1}
    main.tensors = [main.tensors[tensor] for tensor in ordered]
    main.inputs, main.outputs = (
        np.array([place[int(at)] for at in part], np.int32) for part in (main.inputs, main.outputs)
    )
    for operator in main.operators:
        for field in ("inputs", "outputs", "intermediates"):
            tensors = getattr(operator, field)
            if tensors is not None:
                setattr(operator, field, [place[int(at)] for at in tensors])


def _touched(operator: Any) -> Iterator[int]:
    for field in (operator.inputs, operator.intermediates, operator.outputs):
        yield from (int(tensor) for tensor in (field if field is not None else ()))


def _order_buffers(model: ModelLike) -> None:
    """Store constants in the order of their tensors; all computed tensors share the empty buffer."""
    old, new = model.buffers, [schema.BufferT()]
    place: dict[int, int] = {}
    for part in model.subgraphs:
        for tensor in part.tensors:
            tensor.buffer = _move(tensor.buffer, old, new, place)
    notes = [note for note in model.metadata or [] if bytes(note.name or b"") in KEPT_METADATA]
    for note in notes:
        note.buffer = _move(note.buffer, old, new, place)
    model.buffers, model.metadata = new, notes


def _move(buffer: int, old: Sequence[Any], new: list[Any], place: dict[int, int]) -> int:
    data = old[buffer].data
    if data is None or len(data) == 0:
        return 0
    if buffer not in place:
        place[buffer] = len(new)
        new.append(old[buffer])
    return place[buffer]


def _order_codes(model: ModelLike) -> None:
    order = dict.fromkeys(operator.opcodeIndex for part in model.subgraphs for operator in part.operators)
    place = {code: at for at, code in enumerate(order)}
    model.operatorCodes = [model.operatorCodes[code] for code in order]
    for part in model.subgraphs:
        for operator in part.operators:
            operator.opcodeIndex = place[operator.opcodeIndex]
