"""One spelling of a graph, however it came: the same model gives the same bytes."""

from __future__ import annotations

import json
from typing import Any

# Outputs that are made for training take labels, which nobody has when the model is used. What they compute then:
_HEADS = {
    "SoftmaxOutput": "softmax",
    "LogisticRegressionOutput": "sigmoid",
    "LinearRegressionOutput": "_copy",
    "MAERegressionOutput": "_copy",
}
# Of what a variable is told, this alone is about what it holds; the rest is for training.
_TOLD = ("__shape__", "__dtype__")


def canonical(mx: Any, symbol: Any) -> Any:
    """The same graph without labels and without what training left in it: rates, and how often a block was traced."""
    graph = json.loads(symbol.tojson())
    for node in graph["nodes"]:
        attributes = node.pop("attrs", {})
        if node["op"] == "null":
            attributes = {name: value for name, value in attributes.items() if name in _TOLD}
        elif node["op"] in _HEADS:
            each_place = attributes.get("multi_output") in ("True", "true", "1")
            attributes = {"axis": "1"} if each_place else {}
            node.update(op=_HEADS[node["op"]], inputs=node["inputs"][:1])
        node["inputs"] = [[at, output, 0] for at, output, *_ in node["inputs"]]
        node["attrs"] = attributes
    return mx.sym.load_json(json.dumps(graph))
