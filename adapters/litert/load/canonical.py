"""One spelling of a converted model: the same bytes whether it came as an object, a file or a SavedModel.

The converter's output differs by where a model came from in names, in the order of tensors and in its notes. Here
tensors get the names of ops, in the order in which they are used, and notes are dropped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from quaver.adapters.litert.load import graph as graphs
from quaver.adapters.litert.load.graph import WEIGHTS, Graph
from quaver.adapters.litert.load.model_file import signature
from quaver.types import ModelLike

KEPT_NOTES = (b"min_runtime_version",)


def canonical(content: bytes, inputs: Sequence[str], outputs: Sequence[str], behind: Mapping[str, str]) -> bytes:
    """Spell a model anew.

    Args:
        content: what the converter made.
        inputs: names of the inputs, in order.
        outputs: names of the outputs, in order.
        behind: for tensors that are called after the function's result, the graph node that computes it.
    """
    graph = Graph(content)
    for tensor in graph.main.tensors:
        name = bytes(tensor.name or b"").decode()
        tensor.name = behind.get(name, name).encode()
    _rename(graph, inputs)
    _order_tensors(graph.main)
    _order_buffers(graph.model)
    _order_codes(graph.model)
    graph.model.description = graphs.NAMED
    graph.model.signatureDefs = [signature(graph.main, list(inputs), list(outputs))]
    return graphs.write(graph.model)


def _rename(graph: Graph, inputs: Sequence[str]) -> None:
    names = graph.names
    taken: dict[int, str] = {}
    used: set[str] = set()

    def give(tensor: int, wish: str) -> None:
        if tensor < 0 or tensor in taken:
            return
        fresh, count = wish, 2
        while fresh in used:
            fresh, count = f"{wish}:{count}", count + 1
        used.add(fresh)
        taken[tensor] = fresh

    for tensor, name in zip(graph.inputs, inputs, strict=True):
        give(tensor, name)
    for op, name in zip(graph.operators, names, strict=True):
        for slot, tensor in enumerate(op.outputs):
            give(tensor, f"{name}/{slot}" if slot else name)
    for op, name in zip(graph.operators, names, strict=True):
        roles = dict(zip(WEIGHTS.get(op.kind, ()), ("weight", "bias"), strict=False))
        for slot, tensor in enumerate(op.inputs):
            give(tensor, f"{name}/{roles.get(slot, f'constant{slot}')}")
    for index, tensor in enumerate(graph.main.tensors):
        give(index, "unused")
        tensor.name = taken[index].encode()
    for number, part in enumerate(graph.model.subgraphs[1:], 1):
        for index, tensor in enumerate(part.tensors):
            tensor.name = b"graph%d/%d/" % (number, index) + bytes(tensor.name or b"")


def _order_tensors(main: Any) -> None:
    order = [int(tensor) for tensor in main.inputs]
    order += [tensor for operator in main.operators for tensor in _touched(operator)]
    order += [int(tensor) for tensor in main.outputs]
    kept = list(dict.fromkeys(tensor for tensor in order if tensor >= 0))
    place = {tensor: at for at, tensor in enumerate(kept)} | {-1: -1}
    main.tensors = [main.tensors[tensor] for tensor in kept]
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
    """Constants in the order of their tensors; all that is computed shares the empty buffer."""
    old, new = model.buffers, [schema.BufferT()]
    place: dict[int, int] = {}
    for part in model.subgraphs:
        for tensor in part.tensors:
            tensor.buffer = _move(tensor.buffer, old, new, place)
    notes = [note for note in model.metadata or [] if bytes(note.name or b"") in KEPT_NOTES]
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
