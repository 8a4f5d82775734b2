"""Debug models of TensorFlow, which `tf.lite.experimental.QuantizationDebugger` makes and reads.

A debug model holds each op twice, in int8 and in float, and a NumericVerify that subtracts the two. LiteRT runs it
unmodified.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from quaver.adapters.litert.inspect.matching import parameters_of
from quaver.adapters.litert.load import sources
from quaver.adapters.litert.load.graph import Graph
from quaver.adapters.litert.run.session import Session, float_specs
from quaver.adapters.model_errors import as_model_error
from quaver.errors import ModelError, SettingsError
from quaver.types import Array, Feed

VERIFY = "CUSTOM:NumericVerify"
_PREFIX = "NumericVerify/"


@dataclass(frozen=True, slots=True)
class VerifiedOp:
    """An op that a debug model computes in int8 and in float.

    Attributes:
        name: the name of its NumericVerify: NumericVerify/{tensor}:{tensor index}.
        kind: the type of the op, such as CONV_2D.
        tensor_name: the tensor of the float model, as `denylisted_nodes` names it.
        tensor: the index of its int8 output.
        float_tensor: the index of its float output.
        difference: the index of the tensor that holds the int8 output minus the float one.
        scale: of the int8 output.
        zero_point: of the int8 output.
    """

    name: str
    kind: str
    tensor_name: str
    tensor: int
    float_tensor: int
    difference: int
    scale: float
    zero_point: int


class DebugModel:
    """A debug model, run sample by sample.

    Attributes:
        ops: the verified ops, in the order in which they run.
        inputs: the inputs; they are float, also where the model takes integers.
    """

    def __init__(self, content: bytes, keep_all: bool) -> None:
        """`keep_all` makes `values` readable; without it, only differences and outputs are."""
        with as_model_error("the debug model"):
            graph = Graph(content)
        verify = [op for op in graph.operators if op.kind == VERIFY and len(op.inputs) > 1 and op.outputs]
        self.ops = tuple(_verified(graph, op.inputs[0], op.inputs[1], op.outputs[0]) for op in verify)
        if not self.ops:
            raise ModelError("the model holds no NumericVerify: make it with mlir_quantize(enable_numeric_verify=True)")
        self.inputs = float_specs(graph)
        self._session = Session(content, [spec.name for spec in self.inputs], keep_all=keep_all)

    def run(self, feed: Feed) -> None:
        """Run one sample; then its tensors can be read."""
        self._session.invoke(self._session.as_integers(feed))

    def differences(self) -> Iterator[tuple[VerifiedOp, Array]]:
        """Yield for each op its int8 output minus its float output."""
        for op in self.ops:
            yield op, self._read(op.difference)

    def values(self) -> Iterator[tuple[VerifiedOp, Array, Array]]:
        """Yield for each op its float output, and its int8 output as stored."""
        for op in self.ops:
            yield op, self._read(op.float_tensor), self._read(op.tensor)

    def outputs(self) -> list[Array]:
        """Return the outputs of the model, as floats."""
        return self._session.as_float([self._read(index) for index in self._session.outputs])

    def _read(self, tensor: int) -> Array:
        array: Array = self._session.interpreter.get_tensor(tensor)
        return array


def _verified(graph: Graph, tensor: int, float_tensor: int, difference: int) -> VerifiedOp:
    parameters = parameters_of(graph, tensor)
    if parameters is None or tensor not in graph.writers:
        raise ModelError(f"NumericVerify reads {graph.tensor_name(tensor)!r}, which is not the int8 output of an op")
    name = graph.tensor_name(difference)
    kind = graph.operators[graph.writers[tensor]].kind
    # The converter appends a digit to the tensor's name, and ":" with its index.
    tensor_name = re.sub(r"\d$", "", name.removeprefix(_PREFIX).rpartition(":")[0])
    scale, zero_point = float(parameters.scale), int(parameters.zero_point)
    return VerifiedOp(name, kind, tensor_name, tensor, float_tensor, difference, scale, zero_point)


class DebugConversion:
    """A TFLiteConverter whose model is calibrated once and then quantized as often as wanted.

    Attributes:
        converter: the user's `tf.lite.TFLiteConverter`. It is as before when the constructor returns.
        calibrated: the float model with the ranges of its tensors.
        float_model: the float model, if it is asked for.
    """

    def __init__(self, converter: Any, with_float_model: bool) -> None:
        sources.need(["tensorflow"], "a converter")
        for name, value in (("optimizations", "[tf.lite.Optimize.DEFAULT]"), ("representative_dataset", "a function")):
            if not getattr(converter, name, None):
                raise SettingsError(f"the converter has no {name}: set converter.{name} = {value}")
        self.converter = converter
        self.float_model: bytes | None = None
        if with_float_model:
            self.float_model = _convert(converter, optimizations=[])
        self.calibrated = _convert(converter, experimental_mlir_quantizer=True, _experimental_calibrate_only=True)

    def quantize(
        self, is_debug: bool, fully_quantize: bool, denylisted_ops: Sequence[str], denylisted_nodes: Sequence[str]
    ) -> bytes:
        """Return the int8 model, as a debug model or as one to deploy.

        Args:
            is_debug: add float ops and NumericVerify.
            fully_quantize: quantize inputs and outputs, too.
            denylisted_ops: types of ops that stay float.
            denylisted_nodes: names of output tensors whose ops stay float.
        """
        from tensorflow.lite.python import convert

        return bytes(
            convert.mlir_quantize(
                self.calibrated,
                disable_per_channel=self.converter._experimental_disable_per_channel,
                fully_quantize=fully_quantize,
                enable_numeric_verify=is_debug,
                denylisted_ops=list(denylisted_ops) or None,
                denylisted_nodes=list(denylisted_nodes) or None,
            )
        )

    def unknown(self, denylisted_ops: Sequence[str], denylisted_nodes: Sequence[str]) -> list[str]:
        """Return the names that stand for nothing in the model."""
        graph = Graph(self.calibrated)
        kinds = {op.kind for op in graph.operators}
        nodes = {graph.tensor_name(tensor) for tensor in graph.writers}
        return [
            *(name for name in denylisted_ops if name not in kinds),
            *(name for name in denylisted_nodes if name not in nodes),
        ]


def _convert(converter: Any, **options: Any) -> bytes:
    """Convert with other options, and set the converter's own again."""
    from quaver.adapters.litert.load.convert import without_converter_warnings

    own: Mapping[str, Any] = {name: getattr(converter, name, None) for name in options}
    try:
        for name, value in options.items():
            setattr(converter, name, value)
        with without_converter_warnings():
            return bytes(converter.convert())
    finally:
        for name, value in own.items():
            setattr(converter, name, value)
