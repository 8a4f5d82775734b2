"""From whatever the user has to a float .tflite that the quantizer and the interpreter can work with."""

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
from quaver.adapters.litert.load.structure import try_out
from quaver.adapters.model_errors import as_model_error
from quaver.errors import ModelError
from quaver.types import Array, Feed, ModelLike

DEFAULT = "serving_default"

# Runs the model a .tflite was converted from.
Source = Callable[[Feed], list[Array]]


@dataclass(frozen=True)
class Taken:
    """A model that was read.

    Attributes:
        graph: the float model.
        source: the model it was converted from, to compare with; None if it was a .tflite already.
        versions: the packages that converted it.
    """

    graph: Graph
    source: Source | None = None
    versions: dict[str, str] = field(default_factory=dict)


def take_in(model: ModelLike) -> Taken:
    """Read a model in any form, converting it where it is no .tflite yet. What is wrong with it is a `ModelError`."""
    with as_model_error("the model"):
        return _take_in(model)


def _take_in(model: ModelLike) -> Taken:
    wanted = None
    if isinstance(model, Signature):
        model, wanted = model.model, model.name
    if isinstance(model, bytes | bytearray | memoryview):
        return Taken(Graph(_tidy(bytes(model), wanted)))
    if isinstance(model, str | os.PathLike):
        path = sources.existing(model)
        if path.suffix.lower() in sources.LITE and path.is_file():
            return Taken(Graph(_tidy(path.read_bytes(), wanted)))
        model = path
    if wanted is not None and not (isinstance(model, Path) and sources.is_saved_model(model)):
        raise ModelError("a Signature is of a SavedModel folder or of a .tflite")
    if isinstance(model, FrozenGraph):
        sources.existing(model.path)
    sources.need(["tensorflow"], "converting a TensorFlow model")
    from quaver.adapters.litert.load import convert as conversion

    return _converted(conversion.convert(model, wanted))


def any_lite(model: ModelLike) -> bytes:
    """A model in any form as a .tflite, also if it is quantized already."""
    with as_model_error("the model"):
        return _any_lite(model)


def _any_lite(model: ModelLike) -> bytes:
    path = Path(os.fspath(model)) if isinstance(model, str | os.PathLike) else None
    if path is not None and (path.suffix.lower() in sources.LITE or not path.exists()):
        return _tidy(sources.existing(path).read_bytes(), None, quantized=True)
    if isinstance(model, bytes | bytearray | memoryview):
        return _tidy(bytes(model), None, quantized=True)
    return take_in(model).graph.content


def _converted(converted: Any) -> Taken:
    from quaver.adapters.litert.load.canonical import canonical

    _refuse_quantized(graphs.read(converted.content))
    content = canonical(converted.content, converted.inputs, converted.outputs, converted.behind)
    return Taken(Graph(content), converted.source, converted.versions)


def _tidy(content: bytes, wanted: str | None, quantized: bool = False) -> bytes:
    """Check a .tflite, and mend what the quantizer stumbles over. A file without faults stays as it is."""
    if not sources.is_lite(content):
        raise ModelError("the file is no .tflite: it lacks the mark TFL3")
    content = content[split(content)[0] :]  # what quaver wrote before a model that it saved is no part of the model
    model = graphs.read(content)
    if not quantized:
        _refuse_quantized(model)
    mended = [_choose(model, wanted), _mend_codes(model), _mend_names(model), _mend_signature(model)]
    content = graphs.write(model) if any(mended) else content
    try_out(content)
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
                    "model; give it the one this was made from"
                )
            halves += tensor.type == schema.TensorType.FLOAT16
    if halves:
        raise ModelError("the weights of the model are float16: give the float32 model")


def _choose(model: ModelLike, wanted: str | None) -> bool:
    """Bring the wanted signature's graph to the front."""
    known = {bytes(entry.signatureKey).decode(): entry for entry in model.signatureDefs or []}
    if wanted is None:
        wanted = DEFAULT if DEFAULT in known else next(iter(known), None)
    if wanted is None:
        return False
    if wanted not in known:
        raise ModelError(f"the model has no signature {wanted!r}; it has: {', '.join(map(repr, known)) or 'none'}")
    at = known[wanted].subgraphIndex
    if at == 0:
        return False
    if any(_calls(model, operator) for operator in model.subgraphs[at].operators):
        raise ModelError(f"the signature {wanted!r} calls other graphs of the file: convert it alone")
    model.subgraphs = [model.subgraphs[at]]
    known[wanted].subgraphIndex = 0
    model.signatureDefs = [known[wanted]]
    return True


def _calls(model: ModelLike, operator: Any) -> bool:
    return graphs.kind_of(model, operator) in ("IF", "WHILE", "CALL", "CALL_ONCE", "STABLEHLO_COMPOSITE")


def _mend_codes(model: ModelLike) -> bool:
    """Files of before 2020 keep the operator's type in another field."""
    old = [code for code in model.operatorCodes if code.builtinCode < code.deprecatedBuiltinCode]
    for code in old:
        code.builtinCode = code.deprecatedBuiltinCode
    return bool(old)


def _mend_names(model: ModelLike) -> bool:
    """Every tensor needs a name of its own."""
    tensors = [tensor for part in model.subgraphs for tensor in part.tensors]
    given = {bytes(tensor.name or b"") for tensor in tensors}
    taken: set[bytes] = set()
    mended = False
    for tensor in tensors:
        name = bytes(tensor.name or b"")
        fresh, count = name or b"tensor", 1
        while fresh in taken or (fresh != name and fresh in given):
            fresh, count = b"%s:%d" % (name or b"tensor", count), count + 1
        taken.add(fresh)
        if fresh != name:
            tensor.name, mended = fresh, True
    return mended


def _mend_signature(model: ModelLike) -> bool:
    if model.signatureDefs:
        return False
    main = model.subgraphs[0]
    names = [[bytes(main.tensors[at].name).split(b":")[0] for at in tensors] for tensors in (main.inputs, main.outputs)]
    model.signatureDefs = [signature(main, *([name.decode() for name in part] for part in names))]
    return True


def signature(main: Any, inputs: list[str], outputs: list[str]) -> Any:
    """A signature of the main graph."""
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
