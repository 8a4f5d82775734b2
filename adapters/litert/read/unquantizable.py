"""The operators of a model that compute and are no op: recurrent ones, WHILE and IF, custom ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from quaver.adapters.litert.read.graph import STILL, Graph
from quaver.adapters.litert.read.units import Unit, activations
from quaver.unquantizable import Unquantizable

# Their bodies are other graphs of the file, in which no op is looked for.
_BODIES = {"CALL", "CALL_ONCE", "IF", "WHILE"}


def unquantizable_operators(graph: Graph, units: Iterable[Unit]) -> dict[int, str]:
    """The kind of each such operator, by its index."""
    taken = {unit.operator.index for unit in units}
    return {
        op.index: op.kind
        for op in graph.operators
        if op.index not in taken
        and (op.kind in _BODIES or op.kind.startswith("CUSTOM") or (op.kind not in STILL and activations(graph, op)))
    }


def unquantizable(graph: Graph, units: Iterable[Unit]) -> list[Unquantizable]:
    """How many there are of each kind, in graph order."""
    counts = Counter(unquantizable_operators(graph, units).values())
    return [Unquantizable(kind, count) for kind, count in counts.items()]
