"""Check a .tflite: every index in its range, every constant as large as its shape says, and no crash when it runs.

The runtime trusts the file, so this is done before anything else reads it.

"""

from __future__ import annotations

import hashlib
import math
import signal
import subprocess  # nosec B404 - it runs only this interpreter
import sys
from collections.abc import Iterable
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from quaver.errors import ModelError
from quaver.types import ModelLike

_SIZES: dict[int, int] = {
    code: np.dtype(name.lower()).itemsize
    for name, code in vars(schema.TensorType).items()
    if name.lower() in np.sctypeDict and isinstance(code, int)
}
_TYPES = frozenset(code for code in vars(schema.TensorType).values() if isinstance(code, int))
# Operands that may be missing. The runtime reads any other without a check; kernels of recurrent and custom operators
# check theirs themselves.
_OPTIONAL = {
    schema.BuiltinOperator.CONV_2D: (2,),
    schema.BuiltinOperator.CONV_3D: (2,),
    schema.BuiltinOperator.CONV_3D_TRANSPOSE: (3,),
    schema.BuiltinOperator.DEPTHWISE_CONV_2D: (2,),
    schema.BuiltinOperator.FULLY_CONNECTED: (2,),
    schema.BuiltinOperator.SVDF: (3,),
    schema.BuiltinOperator.TRANSPOSE_CONV: (3,),
}
_CHECKED_BY_KERNEL = (
    schema.BuiltinOperator.BIDIRECTIONAL_SEQUENCE_LSTM,
    schema.BuiltinOperator.BIDIRECTIONAL_SEQUENCE_RNN,
    schema.BuiltinOperator.CUSTOM,
    schema.BuiltinOperator.LSTM,
    schema.BuiltinOperator.UNIDIRECTIONAL_SEQUENCE_LSTM,
)


def check_structure(model: ModelLike) -> None:
    """Refuse a file with parts that are missing or out of range; name the tensor or the operator."""
    buffers, codes = _listed(model.buffers), _listed(model.operatorCodes)
    for at, buffer in enumerate(buffers):
        if buffer is None:
            raise ModelError(f"the .tflite file is damaged: buffer {at} is missing")
    for at, code in enumerate(codes):
        _text(code.customCode, f"the name of operator type {at}", is_required=False)
    for part, graph in enumerate(model.subgraphs):
        tensors = _listed(graph.tensors)
        for at, tensor in enumerate(tensors):
            _check_tensor(tensor, f"{part}.{at}", buffers)
        for at, operator in enumerate(_listed(graph.operators)):
            what = f"operator {at} of graph {part}"
            _check_indices([operator.opcodeIndex], len(codes), f"the type of {what}")
            _check_indices(_listed(operator.inputs), len(tensors), f"an input of {what}", least=-1)
            _check_operands(operator, codes[operator.opcodeIndex], what)
            _check_indices(_listed(operator.outputs), len(tensors), f"an output of {what}")
        for what, ends in (("input", graph.inputs), ("output", graph.outputs)):
            if part == 0 and not _listed(ends):
                raise ModelError(f"the .tflite file is damaged: its main graph has no {what}")
            _check_indices(_listed(ends), len(tensors), f"an {what} of graph {part}")
    for entry in _listed(model.signatureDefs):
        _check_signature(model, entry)


def _check_operands(operator: Any, code: Any, what: str) -> None:
    kind = max(code.builtinCode, code.deprecatedBuiltinCode)
    for place, tensor in enumerate(_listed(operator.inputs)):
        if tensor < 0 and place not in _OPTIONAL.get(kind, ()) and (kind not in _CHECKED_BY_KERNEL or place == 0):
            raise ModelError(f"the .tflite file is damaged: {what} lacks its operand {place}, which it needs")


def _check_signature(model: ModelLike, entry: Any) -> None:
    key = _text(entry.signatureKey, "the name of a signature")
    what = f"signature {key!r}"
    _check_indices([entry.subgraphIndex], len(model.subgraphs), f"the graph of {what}")
    tensors = len(_listed(model.subgraphs[entry.subgraphIndex].tensors))
    for item in (*_listed(entry.inputs), *_listed(entry.outputs)):
        _text(item.name, f"a name in {what}")
        _check_indices([item.tensorIndex], tensors, f"a tensor of {what}")


def _check_tensor(tensor: Any, place: str, buffers: list[Any]) -> None:
    name = _text(tensor.name, f"the name of tensor {place}", is_required=False) or place
    what = f"tensor {name!r}"
    if tensor.type not in _TYPES:
        raise ModelError(f"the .tflite file is damaged: {what} is of the unknown type {tensor.type}")
    _check_indices([tensor.buffer], len(buffers), f"the buffer of {what}")
    shape = [int(dim) for dim in _listed(tensor.shape)]
    if any(dim < 0 for dim in shape):
        raise ModelError(f"the .tflite file is damaged: {what} has the shape {shape[:8]}, but no size may be below 0")
    declared = _listed(tensor.shapeSignature)
    if declared and len(declared) != len(shape):
        raise ModelError(
            f"the .tflite file is damaged: {what} has two shapes, of {len(shape)} and {len(declared)} axes"
        )
    data = buffers[tensor.buffer].data
    if data is None or len(data) == 0 or tensor.type not in _SIZES or tensor.sparsity is not None:
        return
    size = math.prod(shape) * _SIZES[tensor.type]
    if size != len(data):
        raise ModelError(
            f"the .tflite file is damaged: {what} of shape {shape[:8]} takes {size} bytes, but holds {len(data)}"
        )


def _check_indices(values: Iterable[Any], count: int, what: str, least: int = 0) -> None:
    for value in values:
        if not least <= int(value) < count:
            raise ModelError(f"the .tflite file is damaged: {what} is number {int(value)} of {count}")


def _text(value: Any, what: str, is_required: bool = True) -> str:
    if value is None or not len(value):
        if is_required and value is None:
            raise ModelError(f"the .tflite file is damaged: {what} is missing")
        return ""
    try:
        return bytes(value).decode()
    except UnicodeDecodeError:
        raise ModelError(f"the .tflite file is damaged: {what} is not text ({bytes(value)[:40]!r})") from None


def _listed(values: Any) -> list[Any]:
    return [] if values is None else list(values)


# Runs the model on zeros, with XNNPACK and all tensors kept as calibration does, and without. A model that is refused
# here may crash another process, so it must not be loaded anywhere else.
_SCRIPT = """
import sys, warnings
import numpy as np
from ai_edge_litert.interpreter import Interpreter, OpResolverType
warnings.simplefilter("ignore")
content = sys.stdin.buffer.read()
for kind in (OpResolverType.AUTO, OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES):
    try:
        interpreter = Interpreter(
            model_content=content,
            num_threads=1,
            experimental_preserve_all_tensors=True,
            experimental_op_resolver_type=kind,
        )
        interpreter.allocate_tensors()
    except Exception as error:
        print(error)
        sys.exit(3)
    for entry in interpreter.get_input_details():
        if np.dtype(entry["dtype"]).kind in "fiub":
            interpreter.set_tensor(entry["index"], np.zeros(entry["shape"], entry["dtype"]))
    interpreter.invoke()
"""
_REFUSED = 3
_CRASHES = {-int(number) for number in (signal.SIGSEGV, signal.SIGABRT, signal.SIGFPE, signal.SIGILL, signal.SIGBUS)}
# A model that takes longer on zeros is not checked any further. Judgement.
_SECONDS = 60
_loadable: set[bytes] = set()


def check_loads(content: bytes) -> None:
    """Load a model in a process of its own, and run it.

    Raises:
        ModelError: if it cannot be loaded, or crashes.
    """
    digest = hashlib.sha256(content).digest()
    if digest in _loadable or not sys.executable:
        return
    command = [sys.executable, "-P", "-c", _SCRIPT]
    try:
        done = subprocess.run(  # nosec B603 - our own script; the model comes by a pipe
            command, input=content, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return
    if done.returncode in _CRASHES:
        name = signal.Signals(-done.returncode).name
        raise ModelError(f"the .tflite file is damaged: LiteRT crashes on it ({name}). Convert the model again")
    if done.returncode == _REFUSED:
        raise ModelError(f"LiteRT cannot load the model: {done.stdout.decode(errors='replace').strip()[:500]}")
    _loadable.add(digest)
