"""What an adapter can tell about the inside of a quantized model: records that diagnosis reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


class Steps(NamedTuple):
    """A tensor as it is in 8 bits, one scale for all of it: real = scale * (values - zero_point)."""

    values: Array
    scale: float
    zero_point: int

    @property
    def shape(self) -> tuple[int, ...]:
        """The tensor's shape."""
        return self.values.shape

    @property
    def nbytes(self) -> int:
        """How much memory it takes."""
        return self.values.nbytes

    def scaled(self, room: Array) -> Array:
        """Turn steps that were copied into an array of floats into real numbers, in place."""
        if self.zero_point:
            room -= self.zero_point
        room *= self.scale
        return room

    def real(self) -> Array:
        """The tensor as float32."""
        return self.scaled(self.values.astype(np.float32))


@dataclass(frozen=True, slots=True)
class Tensor8:
    """An activation that is written in 8 bits: real = scale * (integer - zero_point).

    Attributes:
        name: of the tensor.
        scale: one step.
        zero_point: the integer that stands for zero.
        low: the smallest value that 8 bits hold in this scale; what lies below is clipped to it.
        high: the largest.
        ranges: what each calibration method would have chosen, if that is known.
        origin: the op that writes it, also when it was moved about since; empty if no op does.
        moved: kinds of the nodes that moved it about since then, in order; they leave it the scale it had.
        axis: which axis holds channels; None if that is not known.
        forced: the op that reads it and makes it take the scale of its result; empty if none does.
    """

    name: str
    scale: float
    zero_point: int
    low: float
    high: float
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    origin: str = ""
    moved: tuple[str, ...] = ()
    axis: int | None = None
    forced: str = ""

    @property
    def span(self) -> float:
        """From the smallest value to the largest."""
        return self.high - self.low


@dataclass(frozen=True, slots=True)
class OpInside:
    """What surrounds one op.

    Attributes:
        op: its name.
        output: the tensor it writes.
        axis: which axis of that holds channels; None if that is not known.
        reads: the 8-bit tensors it reads; empty for an fp32 op.
        writes: its output in 8 bits; None if it writes float.
        one_scale: why its weight can have only one scale; empty if it can have one for each channel, or has no weight.
        before: the ops whose outputs reach it, directly or through nodes that are no ops.
        between: the kinds of these nodes.
    """

    op: str
    output: str
    axis: int | None = None
    reads: tuple[Tensor8, ...] = ()
    writes: Tensor8 | None = None
    one_scale: str = ""
    before: tuple[str, ...] = ()
    between: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OpWeight:
    """The weight of one op, as it was and as the quantized model computes with it.

    Attributes:
        op: the op's name.
        fp32: in the float model.
        optimized: in the quantized model, as real numbers again; the same as `fp32` for an fp32 op.
        axis: which axis holds output channels; None if none does.
        inner: which axis holds input channels; None if none does.
        scales: one, or one for each output channel; empty for an fp32 op.
        zero_points: as many.
    """

    op: str
    fp32: Array
    optimized: Array
    axis: int | None
    inner: int | None
    scales: tuple[float, ...] = ()
    zero_points: tuple[int, ...] = ()


class LocalRun(NamedTuple):
    """One feed through the float model, with each op computed in int8 beside it.

    Attributes:
        ops: of each op its float output, and its int8 output from the same float inputs, as real numbers or as it is
            in 8 bits; None for an fp32 op.
        tensors: other float tensors that were asked for.
        outputs: of the float model.
    """

    ops: Mapping[str, tuple[Array, Array | Steps | None]]
    tensors: Mapping[str, Array]
    outputs: list[Array]


class WholeRun(NamedTuple):
    """One feed through the quantized model.

    Attributes:
        ops: the output of each op, as real numbers or as it is in 8 bits.
        outputs: of the model.
    """

    ops: Mapping[str, Array | Steps]
    outputs: list[Array]


@dataclass(frozen=True, slots=True)
class KernelTime:
    """What one kernel takes.

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
    """A model that was run for its time.

    Attributes:
        kernels: what each kernel takes, in graph order.
        latencies: seconds of each inference, end to end, without the profiler.
        samples: how many samples one inference holds.
        threads: as asked for; 0 is the runtime's own choice.
        precisions: how each op runs ("fp32" or "int8"), if that is known.
        how: where the times of kernels come from, in a sentence.
    """

    kernels: tuple[KernelTime, ...]
    latencies: tuple[float, ...]
    samples: int
    threads: int
    precisions: Mapping[str, str] = field(default_factory=dict)
    how: str = ""
