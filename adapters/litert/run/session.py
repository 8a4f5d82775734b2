"""LiteRT interpreters, created like those of a deployed model: with XNNPACK."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from threading import Lock
from typing import Any

import numpy as np
from ai_edge_litert.interpreter import Interpreter, OpResolverType

from quaver.adapters.data import InputSpec
from quaver.adapters.litert.inspect.matching import parameters_of
from quaver.adapters.litert.load.graph import Graph
from quaver.errors import BuildError
from quaver.types import Array, Feed, PlainDict

WITHOUT_XNNPACK = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES


class Session:
    """An interpreter that is fed by name, with arrays of any batch size that the model takes.

    `keep_all` makes every tensor readable after a run; each operator then is a delegate of its own, with the same
    kernels. `plain` runs without XNNPACK.
    """

    def __init__(
        self, content: bytes, inputs: Sequence[str], threads: int = 0, keep_all: bool = False, plain: bool = False
    ) -> None:
        self._inputs = tuple(inputs)
        self._lock = Lock()
        self._shapes: tuple[tuple[int, ...], ...] | None = None
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # the warning that keeping all tensors takes memory
                self.interpreter: Any = Interpreter(
                    model_content=content,
                    num_threads=threads or None,
                    experimental_preserve_all_tensors=keep_all,
                    experimental_op_resolver_type=WITHOUT_XNNPACK if plain else OpResolverType.AUTO,
                )
            self.interpreter.allocate_tensors()
        except (RuntimeError, ValueError) as error:
            raise BuildError(f"LiteRT cannot load the model: {error}") from error
        inputs_found, outputs_found = self.interpreter.get_input_details(), self.interpreter.get_output_details()
        self.slots = [entry["index"] for entry in inputs_found]
        self.outputs = [entry["index"] for entry in outputs_found]
        self._scaled_inputs = [_scaled(entry) for entry in inputs_found]
        self._scaled_outputs = [_scaled(entry) for entry in outputs_found]

    def as_integers(self, feed: Feed) -> Feed:
        """Return a feed of floats in integers where the model takes them so."""
        if not any(self._scaled_inputs):
            return feed
        integers = {}
        for name, scaled in zip(self._inputs, self._scaled_inputs, strict=True):
            integers[name] = feed[name]
            if scaled is not None and feed[name].dtype.kind == "f":
                scale, zero, kind = scaled
                limits = np.iinfo(kind)
                integers[name] = np.clip(np.rint(feed[name] / scale) + zero, limits.min, limits.max).astype(kind)
        return integers

    def as_float(self, outputs: Sequence[Array]) -> list[Array]:
        """Return outputs as floats where the model returns integers that have a scale."""
        return [
            array if scaled is None else ((array.astype(np.float32) - scaled[1]) * np.float32(scaled[0]))
            for array, scaled in zip(outputs, self._scaled_outputs, strict=True)
        ]

    def run(self, feed: Feed) -> list[Array]:
        """Run the model and return copies of all outputs."""
        with self._lock:
            self.invoke(feed)
            return [self.interpreter.get_tensor(index) for index in self.outputs]

    def invoke(self, feed: Feed) -> None:
        """Run the model without reading outputs."""
        arrays = [np.asarray(feed[name], order="C") for name in self._inputs]
        shapes = tuple(array.shape for array in arrays)
        if shapes != self._shapes:
            self._resize(shapes)
        try:
            self._feed(arrays)
        except ValueError:  # the user has resized the interpreter
            self._resize(shapes)
            self._feed(arrays)
        self.interpreter.invoke()

    def _feed(self, arrays: Sequence[Array]) -> None:
        # Otherwise recurrent layers would continue from the state of the previous sample.
        self.interpreter.reset_all_variables()
        for index, array in zip(self.slots, arrays, strict=True):
            self.interpreter.set_tensor(index, array)

    def _resize(self, shapes: tuple[tuple[int, ...], ...]) -> None:
        self._shapes = None
        for index, shape in zip(self.slots, shapes, strict=True):
            self.interpreter.resize_tensor_input(index, shape)
        self.interpreter.allocate_tensors()
        self._shapes = shapes


def _scaled(entry: PlainDict) -> tuple[float, int, type[np.integer[Any]]] | None:
    """Return scale, zero point and type of a scaled integer input or output; None for any other."""
    scale, zero = entry["quantization"]
    return (float(scale), int(zero), entry["dtype"]) if scale and np.dtype(entry["dtype"]).kind in "iu" else None


def float_specs(graph: Graph) -> tuple[InputSpec, ...]:
    """Return the inputs of a model as its float model has them: scaled inputs are float."""
    return tuple(
        spec if parameters_of(graph, tensor) is None else replace(spec, dtype=np.dtype(np.float32))
        for spec, tensor in zip(graph.input_specs(), graph.inputs, strict=True)
    )


def quantize_inputs(graph: Graph, feed: Feed) -> Feed:
    """Return a feed of the float model as this model takes it."""
    inputs = {}
    for spec, tensor in zip(graph.input_specs(), graph.inputs, strict=True):
        values, parameters = feed[spec.name], parameters_of(graph, tensor)
        if parameters is not None:
            steps = np.rint(values / parameters.scale) + int(parameters.zero_point)
            values = np.clip(steps, *graph.integer_limits(tensor)).astype(spec.dtype)
        inputs[spec.name] = values
    return inputs
