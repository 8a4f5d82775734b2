"""Whether a rewritten graph computes what the model as given does, on an input that is made up."""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, TensorShapeProto, helper

from quaver.adapters.batches import Feed
from quaver.adapters.onnxrt.read.graph import Array, Graph
from quaver.adapters.onnxrt.read.inference import light_model
from quaver.adapters.onnxrt.run import session as sessions
from quaver.errors import BuildError

log = logging.getLogger(__name__)

# Of the largest value of an output. More than this is still rounding, if the model as given differs by about as much
# when each weight changes by a millionth: sums of products are that exact.
TOLERANCE = 1e-4
_ROUNDING, _TIMES_THAT = 1e-6, 4.0
# Sizes of a batch, and of other axes that a model leaves open; the first that the model takes is used. Integers are row
# numbers of tables: most have a hundred, and all have two.
_SIZES = ((2, 8), (1, 32), (1, 64), (1, 128), (1, 1))
_ROWS = (100, 2)
# What squeezes any number into 0 to 1. On an input that means nothing all may be next to 0, with hardly a digit left.
_SQUEEZING = ("Sigmoid", "Softmax")
_MOVING = ("Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze")
# Inputs larger than this are not made up: a file of a few bytes may ask for any size.
_MOST_ELEMENTS = 2**24


def differs(given: Graph, rewritten: Graph) -> str | None:
    """How the outputs of two graphs differ beyond rounding, in words; None if they do not, or nobody can tell."""
    before = _before_squeezing(given, rewritten)
    plain = _run(given, before)
    feed, expected = next(((feed, out) for feed in _feeds(given) if (out := plain(feed)) is not None), (None, None))
    if feed is None or expected is None:
        log.info("the rewritten graph could not be compared: the model runs on no input that can be made up")
        return None
    found = _run(rewritten, before)(feed)
    if found is None:
        return "the rewritten graph does not run"
    name, error = _worst(given, before, expected, found)
    if error <= TOLERANCE:
        return None
    shaken = plain(feed, _ROUNDING)
    if shaken is not None and error <= _TIMES_THAT * _worst(given, before, expected, shaken)[1]:
        return None
    return f"{name!r} differs by {error:.1e} of its largest value"


def _before_squeezing(given: Graph, rewritten: Graph) -> dict[str, str]:
    """By output, what becomes it by a Sigmoid or Softmax, where both graphs have it: that is compared instead."""
    makers = {name: node for node in given.nodes for name in node.output}
    kept = makers.keys() & {name for node in rewritten.nodes for name in node.output}
    found = {}
    for value in given.outputs:
        node = makers.get(value.name)
        while node is not None and node.op_type in _MOVING:
            node = makers.get(node.input[0])
        if node is not None and node.op_type in _SQUEEZING and node.input[0] in kept:
            found[value.name] = str(node.input[0])
    return found


def _run(graph: Graph, before: Mapping[str, str]) -> Callable[..., list[Any] | None]:
    """A function that runs a graph as it stands, or with its weights changed by some part of them. Large constants are
    fed, so that they are neither copied nor written to a file. What is `before` an output is given, too.
    """
    model = light_model(graph)
    known = {value.name for value in model.graph.output}
    more = [name for name in dict.fromkeys(before.values()) if name not in known]
    model.graph.output.extend(helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in more)
    wanted = [before.get(value.name, value.name) for value in graph.outputs]
    names = {value.name for value in model.graph.input} - {value.name for value in graph.inputs}
    large = {name: np.asarray(graph.constants[name]) for name in names}
    options = sessions.options(1)
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        session = sessions.create(model.SerializeToString(), options)
    except (BuildError, ValueError):
        return lambda feed: None

    def run(feed: Feed, change: float = 0.0) -> list[Any] | None:
        constants = {name: _shaken(array, change) for name, array in large.items()} if change else large
        try:
            return list(session.run(wanted, {**feed, **constants}))
        except Exception as error:  # a size that does not fit; the runtime has no class of its own for it
            log.debug("a made-up input does not fit: %s", error)
            return None

    return run


def _shaken(array: Array, change: float) -> Array:
    """An array of float32 with each value changed by at most this part of it."""
    if array.dtype != np.float32:
        return array
    rng = np.random.default_rng(0)
    return np.asarray(array * (1 + np.float32(change) * (2 * rng.random(array.shape, np.float32) - 1)))


def _feeds(graph: Graph) -> Iterator[Feed]:
    """Made-up inputs of several sizes; none where an input is no tensor, of strings, or of unknown rank."""
    for (batch, size), rows in itertools.product(_SIZES, _ROWS):
        rng = np.random.default_rng(0)
        feed = {}
        for value in graph.inputs:
            kind = value.type.tensor_type
            if not kind.elem_type or not kind.HasField("shape"):
                return
            dtype = np.dtype(helper.tensor_dtype_to_np_dtype(kind.elem_type))
            sizes = [_size(dim, size if axis else batch) for axis, dim in enumerate(kind.shape.dim)]
            if math.prod(sizes) > _MOST_ELEMENTS:
                return
            if dtype.kind == "f":
                feed[value.name] = np.asarray(rng.standard_normal(sizes), dtype)
            elif dtype.kind in "iub":
                feed[value.name] = np.asarray(rng.integers(0, 2 if dtype.kind == "b" else rows, sizes), dtype)
            else:
                return
        yield feed


def _size(dim: TensorShapeProto.Dimension, usual: int) -> int:
    return dim.dim_value if dim.dim_value > 0 else usual


def _worst(graph: Graph, before: Mapping[str, str], expected: list[Any], found: list[Any]) -> tuple[str, float]:
    """The float output that differs most, and by what part of its largest value. Choices (integers, and what varies in
    size with them) may fall the other way by rounding, and are not compared.
    """
    names = [before.get(value.name, value.name) for value in graph.outputs]
    pairs = zip(names, expected, found, strict=True)
    errors = {name: _error(one, other) for name, one, other in pairs if _comparable(one, other)}
    return max(errors.items(), key=lambda item: item[1], default=("", 0.0))


def _comparable(one: Any, other: Any) -> bool:
    arrays = isinstance(one, np.ndarray) and isinstance(other, np.ndarray)
    return arrays and one.dtype.kind == "f" and one.shape == other.shape and one.size > 0


def _error(one: Array, other: Array) -> float:
    fine = np.isfinite(one)
    if not np.array_equal(fine, np.isfinite(other)):
        return float("inf")
    if not fine.any():
        return 0.0
    difference = np.abs(one[fine].astype(np.float64) - other[fine])
    return float(difference.max() / max(float(np.abs(one[fine]).max()), 1e-30))
