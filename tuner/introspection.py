"""Records of the inside of a quantized model, which adapters return and diagnosis reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from quaver.affine import QuantizationParameters, QuantizedTensor
from quaver.types import Array


@dataclass(frozen=True, slots=True)
class ActivationContext:
    """A quantized activation and its origin.

    Attributes:
        name: the name of the tensor.
        parameters: its scale and zero point.
        ranges: the range that each calibration method would have chosen, if that is known.
        origin: the op that computes it, also if nodes moved it since; empty if no op does.
        moved: kinds of the nodes that moved it since then, in order; they keep its scale.
        axis: the axis that holds channels; None if that is not known.
        forced: the op that reads it and forces the scale of its own result on it; empty if none does.
    """

    name: str
    parameters: QuantizationParameters
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    origin: str = ""
    moved: tuple[str, ...] = ()
    axis: int | None = None
    forced: str = ""


@dataclass(frozen=True, slots=True)
class OpContext:
    """The surroundings of one op.

    Attributes:
        op: its name.
        output: the tensor it writes.
        axis: the axis of the output that holds channels; None if that is not known.
        reads: the quantized tensors it reads; empty for an fp32 op.
        writes: its output where that is quantized; None if it writes float.
        one_scale: why its weight can have only one scale; empty if it can have one for each channel, or has no weight.
        before: the ops whose outputs reach it, directly or through other nodes.
        between: the kinds of those nodes.
        module: the module of the user's code that it comes from, such as "layer1.0.conv1", where the exporter left it.
        tensor_id: the number of its output in the quantized model, where tensors have numbers.
    """

    op: str
    output: str
    axis: int | None = None
    reads: tuple[ActivationContext, ...] = ()
    writes: ActivationContext | None = None
    one_scale: str = ""
    before: tuple[str, ...] = ()
    between: tuple[str, ...] = ()
    module: str = ""
    tensor_id: int | None = None


@dataclass(frozen=True, slots=True)
class UntunedOp:
    """An operator that is not tuned, but reads or writes a quantized tensor, such as a pool, a reshape or a Softmax.

    Attributes:
        context: its surroundings.
        kind: its type, as the framework spells it.
        precision: its precision: it may pass on integers, or compute in float between int8 ops.
    """

    context: OpContext
    kind: str
    precision: str


@dataclass(frozen=True, slots=True)
class OpWeight:
    """The weight of one op in the float and in the quantized model.

    Attributes:
        op: the op's name.
        fp32: the weight in the float model.
        optimized: the weight in the quantized model: in integers, or float for an fp32 op.
        axis: the axis that holds output channels; None if none does.
        inner: the axis that holds input channels; None if none does.
    """

    op: str
    fp32: Array
    optimized: Array | QuantizedTensor
    axis: int | None
    inner: int | None


@dataclass(frozen=True, slots=True)
class QuantizedOp:
    """An operator of a quantized model that writes integers.

    Attributes:
        name: the operator's, or that of the model's input that is quantized; unique in the model.
        kind: its type, as the framework spells it.
        tensor: the name of its output.
        parameters: scale and zero point of its output.
        tensor_id: the number of its output, where tensors have numbers.
    """

    name: str
    kind: str
    tensor: str
    parameters: QuantizationParameters
    tensor_id: int | None = None


class QuantizedPair(NamedTuple):
    """The integers that an operator writes, and the float value of the same tensor where the model computes it."""

    integers: QuantizedTensor
    real: Array | None = None


class StandaloneRun(NamedTuple):
    """One feed through a quantized model: the integers that each operator writes, and the outputs as real numbers."""

    ops: Mapping[str, QuantizedPair]
    outputs: list[Array]


class LocalRun(NamedTuple):
    """One feed through the float model, with each op also computed in its quantized form.

    Attributes:
        ops: of each op its float output, and its quantized output from the same float inputs, as real numbers or in
            integers; None for an fp32 op.
        tensors: other float tensors that were asked for.
        outputs: the outputs of the float model.
    """

    ops: Mapping[str, tuple[Array, Array | QuantizedTensor | None]]
    tensors: Mapping[str, Array]
    outputs: list[Array]


class QuantizedRun(NamedTuple):
    """One feed through the quantized model.

    Attributes:
        ops: the output of each op, as real numbers or in integers.
        outputs: the outputs of the model.
    """

    ops: Mapping[str, Array | QuantizedTensor]
    outputs: list[Array]


@dataclass(frozen=True, slots=True)
class KernelTime:
    """The time of one kernel.

    Attributes:
        name: the name of the graph node, or of the op that it belongs to.
        op: the op that it belongs to; empty if it belongs to none.
        kernel: the runtime's name of the kernel.
        seconds: its time in the median inference.
    """

    name: str
    op: str
    kernel: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Timing:
    """The times of a model's kernels, and of the model end to end.

    Attributes:
        kernels: the time of each kernel, in graph order.
        latencies: seconds of each inference, end to end, without the profiler.
        samples: the number of samples in one inference.
        threads: threads of one inference; 0 is the runtime's own choice.
        precisions: the precision that each op runs in, if that is known.
        how: the source of the kernel times, in a sentence.
    """

    kernels: tuple[KernelTime, ...]
    latencies: tuple[float, ...]
    samples: int
    threads: int
    precisions: Mapping[str, str] = field(default_factory=dict)
    how: str = ""
