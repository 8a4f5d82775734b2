"""A model of MXNet once it is read: a symbol, its parameters, and the names of what it takes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from quaver.adapters.batches import InputSpec


@dataclass(frozen=True, eq=False)
class Network:
    """A model of MXNet.

    Attributes:
        symbol: its graph.
        args: weights and the like, by name, as NDArrays.
        aux: what is not trained by gradients, such as the means of a BatchNorm.
        inputs: what it takes.
    """

    symbol: Any
    args: Mapping[str, Any]
    aux: Mapping[str, Any]
    inputs: tuple[InputSpec, ...]

    @property
    def parameters(self) -> dict[str, Any]:
        """Both kinds together."""
        return {**self.args, **self.aux}


def fingerprint(network: Network) -> str:
    """A hash of graph and parameters."""
    graph = json.dumps(json.loads(network.symbol.tojson()), sort_keys=True)
    digest = hashlib.sha256(graph.encode())
    for name, array in sorted(network.parameters.items()):
        values = array.asnumpy()
        digest.update(f"{name}\0{values.dtype}\0{values.shape}\0".encode())
        digest.update(values.tobytes())
    return digest.hexdigest()
