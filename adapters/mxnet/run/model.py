"""The MXNet model object that eval_func gets."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from quaver.adapters.data import InputSpec
from quaver.adapters.model import Model
from quaver.adapters.mxnet.load.network import SYMBOL_ENTRY, Network, load_network, symbol_text
from quaver.adapters.mxnet.load.sources import import_mxnet
from quaver.adapters.mxnet.ops.units import QUANTIZE_GRANULARITY
from quaver.adapters.mxnet.run import worker_thread as engine
from quaver.adapters.mxnet.run.session import Session
from quaver.errors import BuildError
from quaver.files.atomic import write_safely
from quaver.provenance import own_properties
from quaver.types import Array, Feed, PlainDict, PlainMapping

_LIST, _ARRAY = 0x112, 0xF993FAC9
_DENSE, _CPU = 0, 1
_KINDS = ("float32", "float64", "float16", "uint8", "int32", "int8", "int64", "bool")


def file_chunks(arrays: PlainMapping) -> Iterator[bytes | memoryview]:
    """Yield the bytes of a parameter file that holds these arrays, in this order."""
    yield struct.pack("<QQQ", _LIST, 0, len(arrays))
    for array in arrays.values():
        values = np.ascontiguousarray(array.asnumpy() if hasattr(array, "asnumpy") else array)
        yield _header(values)
        yield values.reshape(-1).view(np.uint8).data
    yield struct.pack("<Q", len(arrays))
    for name in arrays:
        text = name.encode()
        yield struct.pack("<Q", len(text)) + text


def file_size(arrays: PlainMapping) -> int:
    """Return the size of that file."""
    size = 32
    for name, array in arrays.items():
        size += len(_header(array)) + math.prod(array.shape) * np.dtype(array.dtype).itemsize + 8 + len(name.encode())
    return size


def _header(array: Array | Any) -> bytes:
    shape = struct.pack(f"<i{len(array.shape)}q", len(array.shape), *array.shape)
    kind = _KINDS.index(np.dtype(array.dtype).name)
    return struct.pack("<Ii", _ARRAY, _DENSE) + shape + struct.pack("<iii", _CPU, 0, kind)


# The graph attribute that holds the provenance.
PROVENANCE = "quaver.provenance"


class MXNetModel(Model):
    """A symbol with its parameters. Called with NDArrays it returns NDArrays, as a Gluon block does.

    Its file is one of MXNet's parameters that also holds the graph; `export` writes the usual two.
    """

    suffix = ".params"
    quantize_granularity = QUANTIZE_GRANULARITY

    def __init__(self, network: Network, threads: int) -> None:
        super().__init__(network.inputs, threads)
        self._network = network

    def _open(self) -> Session:
        return Session(self._network.symbol, self._network.parameters, self._threads)

    def _outputs(self, feed: Feed) -> list[Any]:
        return list(self.session.run(feed))

    def __call__(self, *args: Any, **inputs: Any) -> Any:
        outputs = super().__call__(*args, **inputs)
        if not any(hasattr(value, "asnumpy") for value in (*args, *inputs.values())):
            return outputs
        arrays = import_mxnet().nd
        return (
            [arrays.array(output, dtype=output.dtype) for output in outputs]
            if isinstance(outputs, list)
            else arrays.array(outputs, dtype=outputs.dtype)
        )

    forward = __call__

    def processor_time(self) -> float:
        return super().processor_time() + engine.processor_time()

    @property
    def symbol(self) -> Any:
        """Return the graph, with the subgraphs that oneDNN runs."""
        return self._network.symbol

    @property
    def model(self) -> tuple[Any, PlainDict, PlainDict]:
        """Return (symbol, arg_params, aux_params), as MXNet's own functions take them."""
        return self._network.symbol, dict(self._network.args), dict(self._network.aux)

    @property
    def block(self) -> Any:
        """Return the model as a Gluon block."""
        mx = import_mxnet()
        block = mx.gluon.SymbolBlock(self._network.symbol, [mx.sym.var(spec.name) for spec in self._inputs])
        values = self._network.parameters
        for name, parameter in block.collect_params().items():
            parameter.grad_req = "null"
            parameter._load_init(values[name], [mx.cpu()], cast_dtype=True, dtype_source="saved")
        block.hybridize(static_alloc=True)
        return block

    def export(self, prefix: str | Path, epoch: int = 0) -> tuple[Path, Path]:
        """Write PREFIX-symbol.json and PREFIX-0000.params, for `SymbolBlock.imports` and `load_checkpoint`."""
        base = Path(prefix).expanduser()
        paths = base.with_name(f"{base.name}-symbol.json"), base.with_name(f"{base.name}-{epoch:04d}.params")
        try:
            base.parent.mkdir(parents=True, exist_ok=True)
            write_safely(paths[0], [self._json(self._provenance).encode()])
            write_safely(paths[1], file_chunks(self._named()))
        except OSError as error:
            raise BuildError(f"cannot write {str(paths[0])!r}: {error.strerror or error}") from error
        return paths

    def save(self, path: str | Path) -> Path:
        if str(path).endswith(".json"):
            raise BuildError(
                f"{str(path)!r} would hold only the graph: `save` writes one file, such as 'model.params', and "
                "`model.export(prefix)` both files, of graph and parameters"
            )
        return super().save(path)

    @property
    def size(self) -> int:
        return file_size(self._entries(self._provenance))

    def chunks(self) -> Iterator[bytes | memoryview]:
        yield from file_chunks(self._entries({}))

    def file_chunks(self) -> Iterator[bytes | memoryview]:
        """Yield the bytes of the file, whose graph has the provenance as an attribute."""
        yield from file_chunks(self._entries(self._provenance))

    def _entries(self, provenance: Mapping[str, str]) -> PlainDict:
        return {SYMBOL_ENTRY: np.frombuffer(self._json(provenance).encode(), np.uint8), **self._named()}

    def _named(self) -> PlainDict:
        """Return the parameters by their names in files, sorted."""
        kinds = ("arg", self._network.args), ("aux", self._network.aux)
        return {f"{kind}:{name}": values[name] for kind, values in kinds for name in sorted(values)}

    def _json(self, provenance: Mapping[str, str]) -> str:
        graph = json.loads(self._network.symbol.tojson())
        if provenance:  # an attribute of the whole graph, which MXNet ignores
            graph.setdefault("attrs", {})[PROVENANCE] = ["str", json.dumps(dict(provenance), sort_keys=True)]
        return json.dumps(graph, sort_keys=True, separators=(",", ":"))


def load_saved_model(path: Path, inputs: Sequence[InputSpec] | None, threads: int) -> MXNetModel:
    """Return a model from a file, with the inputs of the float model if they are given."""
    network = load_network(path)
    if inputs is not None:
        network = Network(network.symbol, network.args, network.aux, tuple(inputs))
    model = MXNetModel(network, threads)
    model.add_provenance(_properties(path))
    return model


def _properties(path: Path) -> dict[str, str]:
    """Return the provenance in the graph of a file; empty if there is none."""
    try:
        stored = json.loads(symbol_text(path)).get("attrs", {}).get(PROVENANCE)
        properties = json.loads(stored[1]) if stored else {}
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return {}
    is_text = isinstance(properties, dict) and all(isinstance(text, str) for text in properties.values())
    return own_properties(properties) if is_text else {}
