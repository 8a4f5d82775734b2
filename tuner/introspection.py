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
        name: of the tensor.
        parameters: its scale and zero point.
        ranges: what each calibration method would have chosen, if that is known.
        origin: the op that writes it, also when it was moved about since; empty if no op does.
        moved: kinds of the nodes that moved it about since then, in order; they leave it the scale it had.
        axis: which axis holds channels; None if that is not known.
        forced: the op that reads it and makes it take the scale of its result; empty if none does.
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
        axis: which axis of that holds channels; None if that is not known.
        reads: the quantized tensors it reads; empty for an fp32 op.
        writes: its output where that is quantized; None if it writes float.
        one_scale: why its weight can have only one scale; empty if it can have one for each channel, or has no weight.
        before: the ops whose outputs reach it, directly or through nodes that are no ops.
        between: the kinds of these nodes.
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
        context: what surrounds it.
        kind: its type, as the framework spells it.
        precision: what it runs in: it may hand on integers, or compute in float between ops that do not.
    """

    context: OpContext
    kind: str
    precision: str


@dataclass(frozen=True, slots=True)
class OpWeight:
    """The weight of one op in the float and in the quantized model.

    Attributes:
        op: the op's name.
        fp32: in the float model.
        optimized: in the quantized model: in integers, or float for an fp32 op.
        axis: which axis holds output channels; None if none does.
        inner: which axis holds input channels; None if none does.
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
        tensor: the name of what it writes.
        parameters: scale and zero point of that.
        tensor_id: the number of that, where tensors have numbers.
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
        ops: of each op its float output, and its output in reduced precision from the same float inputs, as real
            numbers or in integers; None for an fp32 op.
        tensors: other float tensors that were asked for.
        outputs: of the float model.
    """

    ops: Mapping[str, tuple[Array, Array | QuantizedTensor | None]]
    tensors: Mapping[str, Array]
    outputs: list[Array]


class QuantizedRun(NamedTuple):
    """One feed through the quantized model.

    Attributes:
        ops: the output of each op, as real numbers or in integers.
        outputs: of the model.
    """

    ops: Mapping[str, Array | QuantizedTensor]
    outputs: list[Array]


@dataclass(frozen=True, slots=True)
class KernelTime:
    """The time of one kernel.

    Attributes:
        name: of the graph node, or of the op that it belongs to.
        op: the op that it belongs to; empty if it belongs to none.
        kernel: what the runtime executes, in its own words.
        seconds: in the usual inference.
    """

    name: str
    op: str
    kernel: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Timing:
    """The times of a model's kernels, and of the model end to end.

    Attributes:
        kernels: what each kernel takes, in graph order.
        latencies: seconds of each inference, end to end, without the profiler.
        samples: how many samples one inference holds.
        threads: as asked for; 0 is the runtime's own choice.
        precisions: the precision that each op runs in, if that is known.
        how: where the times of kernels come from, in a sentence.
    """

    kernels: tuple[KernelTime, ...]
    latencies: tuple[float, ...]
    samples: int
    threads: int
    precisions: Mapping[str, str] = field(default_factory=dict)
    how: str = ""
