"""What is known of one op when its causes are looked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from quaver.diagnosis.causes.advice import AllowedChoices, Remedy
from quaver.diagnosis.causes.base import Cause
from quaver.diagnosis.causes.what_if import Improvement
from quaver.diagnosis.recorder import OpRecord, Recorder
from quaver.diagnosis.statistics.activations import Activation
from quaver.diagnosis.statistics.weights import WeightShape
from quaver.introspection import ActivationContext, OpContext
from quaver.ops import Op, OpConfig, Precision

# An op is bad when its own error is more than this part of what it computes: 13 dB. Healthy ops are below a hundredth.
BAD = 0.05


@dataclass(frozen=True, slots=True)
class OpEvidence:
    """One op with all that was measured of it.

    Attributes:
        op: the op, with all the choices that the framework offers.
        pick: how it runs; None if that is not known.
        precision: what it runs in.
        context: what surrounds it.
        record: what was seen of it.
        weight: how its weight lies in channels; None if it has none, or was not looked at.
        seen: the float tensors that it reads and writes, by name.
        readers: of each op, the ops that read what it writes in integers.
        samples: how many samples were seen.
        leeway: what the rules leave all ops.
        relief: what the repair that helps it most would bring; None if none was tried.
        modes: what other modes would bring, where they were tried.
    """

    op: Op
    pick: OpConfig | None
    precision: Precision
    context: OpContext
    record: OpRecord
    weight: WeightShape | None
    seen: Mapping[str, Activation]
    readers: Mapping[str, Sequence[str]]
    samples: int
    leeway: AllowedChoices
    relief: Improvement | None = None
    modes: tuple[Improvement, ...] = ()

    @property
    def name(self) -> str:
        """The op's name."""
        return self.op.name

    @property
    def bad(self) -> bool:
        """Whether it runs in reduced precision, and its own error is too large."""
        return self.precision.quantized and self.record.error > BAD

    def cause(
        self,
        kind: str,
        sentence: str,
        remedies: Sequence[Remedy] = (),
        *,
        before: str = "",
        weight: float | None = None,
    ) -> Cause:
        """A cause, with the first remedy that the rules allow.

        `before` is what to do besides, in words that the remedy follows. It is as bad as the op's error, unless a
        `weight` is given.
        """
        advice, rules = self.leeway.advise(remedies, before)
        return Cause(self.name, kind, sentence, advice, rules, self.record.error if weight is None else weight)

    def tensors(self) -> Iterator[tuple[str, ActivationContext, Activation]]:
        """What it writes and reads in integers, with a word for it."""
        if self.context.writes is not None:
            yield "output", self.context.writes, self.record.output
        for number, tensor in enumerate(self.context.reads, 1):
            if tensor.name in self.seen:
                which = "input" if len(self.context.reads) == 1 else f"input {number}"
                yield which, tensor, self.seen[tensor.name]

    def around(self, tensor: ActivationContext) -> list[str]:
        """The ops that must all run in fp32 for a tensor to stay float: who writes it and who reads it."""
        owner = tensor.origin
        names = [owner, *self.readers.get(owner, ())] if owner else [self.name]
        return list(dict.fromkeys([*names, self.name]))


def readers(contexts: Mapping[str, OpContext]) -> dict[str, list[str]]:
    """Of each op, the ops that read what it writes in integers."""
    found: dict[str, list[str]] = {}
    for context in contexts.values():
        for tensor in context.reads:
            if tensor.origin:
                found.setdefault(tensor.origin, []).append(context.op)
    return found


def carried(context: OpContext, recorder: Recorder) -> np.ndarray[tuple[int], np.dtype[np.float64]] | None:
    """The largest size of what an op reads in each channel of its first input; None if that is not known."""
    if not context.reads or context.reads[0].name not in recorder.read:
        return None
    return recorder.read[context.reads[0].name].channel_reach
