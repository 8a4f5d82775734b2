"""Turn a model in any form into a float .tflite that the quantizer and the interpreter can work with."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ai_edge_litert import schema_py_generated as schema

from quaver.adapters.litert.build.provenance import split
from quaver.adapters.litert.load import graph as graphs
from quaver.adapters.litert.load import sources
from quaver.adapters.litert.load.graph import Graph
from quaver.adapters.litert.load.sources import FrozenGraph, Signature
from quaver.adapters.litert.load.structure import check_loads
from quaver.adapters.model_errors import as_model_error
from quaver.errors import ModelError
from quaver.types import Array, Feed, ModelLike

DEFAULT = "serving_default"

# Runs the model a .tflite was converted from.
SourceRunner = Callable[[Feed], list[Array]]


@dataclass(frozen=True)
class LoadedModel:
    """A float model that was loaded.

    Attributes:
        graph: the float model.
        source: the model it was converted from, to compare with; None if it was a .tflite already.
        versions: of the packages that converted it.
    """

    graph: Graph
    source: SourceRunner | None = None
    versions: dict[str, str] = field(default_factory=dict)


def load_float_model(model: ModelLike) -> LoadedModel:
    """Load a float model in any form, and convert it unless it is a .tflite.

    Raises:
        ModelError: whatever is wrong with it.
    """
    with as_model_error("the model"):
        return _load_float_model(model)


def _load_float_model(model: ModelLike) -> LoadedModel:
    wanted = None
    if isinstance(model, Signature):
        model, wanted = model.model, model.name
    if isinstance(model, bytes | bytearray | memoryview):
        return LoadedModel(Graph(_checked(bytes(model), wanted)))
    if isinstance(model, str | os.PathLike):
        path = sources.existing(model)
        if path.suffix.lower() in sources.LITE and path.is_file():
            return LoadedModel(Graph(_checked(path.read_bytes(), wanted)))
        model = path
    if wanted is not None and not (isinstance(model, Path) and sources.is_saved_model(model)):
        raise ModelError("a Signature must name a SavedModel folder or a .tflite")
    if isinstance(model, FrozenGraph):
        sources.existing(model.path)
    sources.need(["tensorflow"], "converting a TensorFlow model")
    from quaver.adapters.litert.load import convert as conversion

    return _converted(conversion.convert(model, wanted))


def load_tflite(model: ModelLike) -> bytes:
    """Return a model in any form as the bytes of a .tflite, also if it is quantized already."""
    with as_model_error("the model"):
        return _load_tflite(model)


def _load_tflite(model: ModelLike) -> bytes:
    path = Path(os.fspath(model)) if isinstance(model, str | os.PathLike) else None
    if path is not None and (path.suffix.lower() in sources.LITE or not path.exists()):
        return _checked(sources.existing(path).read_bytes(), None, quantized=True)
    if isinstance(model, bytes | bytearray | memoryview):
        return _checked(bytes(model), None, quantized=True)
    return load_float_model(model).graph.content


def _converted(converted: Any) -> LoadedModel:
    from quaver.adapters.litert.load.canonical import canonical

    _refuse_quantized(graphs.read(converted.content))
    content = canonical(converted.content, converted.inputs, converted.outputs, converted.output_nodes)
    return LoadedModel(Graph(content), converted.source, converted.versions)


def _checked(content: bytes, wanted: str | None, quantized: bool = False) -> bytes:
    """Check a .tflite, and repair what the quantizer cannot handle. A file without such faults stays as it is."""
    if not sources.is_lite(content):
        raise ModelError("the file is not a .tflite: it lacks the identifier TFL3")
    content = content[split(content)[0] :]  # without the provenance that quaver wrote
    model = graphs.read(content)
    if not quantized:
        _refuse_quantized(model)
    repairs = [
        _select_signature(model, wanted),
        _repair_operator_codes(model),
        _make_names_unique(model),
        _add_signature(model),
    ]
    content = graphs.write(model) if any(repairs) else content
    check_loads(content)
    return content


def _refuse_quantized(model: ModelLike) -> None:
    halves = 0
    for part in model.subgraphs:
        for tensor in part.tensors:
            scale = tensor.quantization.scale if tensor.quantization is not None else None
            if scale is not None and len(scale):
                name = bytes(tensor.name or b"").decode()
                raise ModelError(
                    f"the model is quantized already (tensor {name!r} has a scale). quaver starts from the float "
                    "model: pass the one that this was made from"
                )
            halves += tensor.type == schema.TensorType.FLOAT16
    if halves:
        raise ModelError("the weights of the model are float16: pass the float32 model")


def _select_signature(model: ModelLike, wanted: str | None) -> bool:
    """Move the graph of the wanted signature to the front."""
    signatures = {bytes(entry.signatureKey).decode(): entry for entry in model.signatureDefs or []}
    if wanted is None:
        wanted = DEFAULT if DEFAULT in signatures else next(iter(signatures), None)
    if wanted is None:
        return False
    if wanted not in signatures:
        raise ModelError(f"the model has no signature {wanted!r}; it has: {', '.join(map(repr, signatures)) or 'none'}")
    at = signatures[wanted].subgraphIndex
    if at == 0:
        return False
    if any(_calls(model, operator) for operator in model.subgraphs[at].operators):
        raise ModelError(f"the signature {wanted!r} calls other graphs of the file: convert it by itself")
    model.subgraphs = [model.subgraphs[at]]
    signatures[wanted].subgraphIndex = 0
    model.signatureDefs = [signatures[wanted]]
    return True


def _calls(model: ModelLike, operator: Any) -> bool:
    return graphs.kind_of(model, operator) in ("IF", "WHILE", "CALL", "CALL_ONCE", "STABLEHLO_COMPOSITE")


def _repair_operator_codes(model: ModelLike) -> bool:
    """Copy the operator type from the field that files before 2020 have it in."""
    old = [code for code in model.operatorCodes if code.builtinCode < code.deprecatedBuiltinCode]
    for code in old:
        code.builtinCode = code.deprecatedBuiltinCode
    return bool(old)


def _make_names_unique(model: ModelLike) -> bool:
    """Give every tensor a name of its own."""
    tensors = [tensor for part in model.subgraphs for tensor in part.tensors]
    names = {bytes(tensor.name or b"") for tensor in tensors}
    used: set[bytes] = set()
    changed = False
    for tensor in tensors:
        name = bytes(tensor.name or b"")
        fresh, count = name or b"tensor", 1
        while fresh in used or (fresh != name and fresh in names):
            fresh, count = b"%s:%d" % (name or b"tensor", count), count + 1
        used.add(fresh)
        if fresh != name:
            tensor.name, changed = fresh, True
    return changed


def _add_signature(model: ModelLike) -> bool:
    if model.signatureDefs:
        return False
    main = model.subgraphs[0]
    names = [[bytes(main.tensors[at].name).split(b":")[0] for at in tensors] for tensors in (main.inputs, main.outputs)]
    model.signatureDefs = [signature(main, *([name.decode() for name in part] for part in names))]
    return True


def signature(main: Any, inputs: list[str], outputs: list[str]) -> Any:
    """Return a signature of the main graph."""
    made = schema.SignatureDefT()
    made.signatureKey, made.subgraphIndex = DEFAULT.encode(), 0
    made.inputs, made.outputs = (
        [_entry(name, int(tensor)) for name, tensor in zip(names, tensors, strict=True)]
        for names, tensors in ((inputs, main.inputs), (outputs, main.outputs))
    )
    return made


def _entry(name: str, tensor: int) -> Any:
    entry = schema.TensorMapT()
    entry.name, entry.tensorIndex = name.encode(), tensor
    return entry
