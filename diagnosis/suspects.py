"""What is known of one op when its causes are looked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from quaver.diagnosis.activations import Activation
from quaver.diagnosis.recorder import OpRecord, Recorder
from quaver.diagnosis.weights import WeightShape
from quaver.introspection import OpInside, Tensor8
from quaver.ops import Op, OpConfig

# An op is bad when its own error is more than this part of what it computes: 13 dB. Healthy ops are below a hundredth.
BAD = 0.05


@dataclass(frozen=True, slots=True)
class Suspect:
    """One op with all that was measured of it.

    Attributes:
        op: the op, with all the choices that the framework offers.
        pick: how it runs; None if that is not known.
        precision: "fp32" or "int8".
        inside: what surrounds it.
        record: what was seen of it.
        weight: how its weight lies in channels; None if it has none, or was not looked at.
        seen: the float tensors that it reads and writes, by name.
        readers: of each op, the ops that read what it writes in 8 bits.
        samples: how many samples were seen.
    """

    op: Op
    pick: OpConfig | None
    precision: str
    inside: OpInside
    record: OpRecord
    weight: WeightShape | None
    seen: Mapping[str, Activation]
    readers: Mapping[str, Sequence[str]]
    samples: int

    @property
    def name(self) -> str:
        """The op's name."""
        return self.op.name

    @property
    def bad(self) -> bool:
        """Whether it is an int8 op whose own error is too large."""
        return self.precision == "int8" and self.record.error > BAD

    def tensors(self) -> Iterator[tuple[str, Tensor8, Activation]]:
        """What it writes and reads in 8 bits, with a word for it."""
        if self.inside.writes is not None:
            yield "output", self.inside.writes, self.record.output
        for number, tensor in enumerate(self.inside.reads, 1):
            if tensor.name in self.seen:
                which = "input" if len(self.inside.reads) == 1 else f"input {number}"
                yield which, tensor, self.seen[tensor.name]

    def around(self, tensor: Tensor8) -> list[str]:
        """The ops that must all run in fp32 for a tensor to stay float: who writes it and who reads it."""
        owner = tensor.origin
        names = [owner, *self.readers.get(owner, ())] if owner else [self.name]
        return list(dict.fromkeys([*names, self.name]))


def readers(insides: Mapping[str, OpInside]) -> dict[str, list[str]]:
    """Of each op, the ops that read what it writes in 8 bits."""
    found: dict[str, list[str]] = {}
    for inside in insides.values():
        for tensor in inside.reads:
            if tensor.origin:
                found.setdefault(tensor.origin, []).append(inside.op)
    return found


def carried(inside: OpInside, recorder: Recorder) -> np.ndarray[tuple[int], np.dtype[np.float64]] | None:
    """The largest size of what an op reads in each channel of its first input; None if that is not known."""
    if not inside.reads or inside.reads[0].name not in recorder.read:
        return None
    return recorder.read[inside.reads[0].name].channel_reach
