"""The measurements of one op, from which its causes are found."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from quaver.diagnosis.causes.advice import AllowedChoices, Remedy
from quaver.diagnosis.causes.base import Cause
from quaver.diagnosis.recorder import OpRecord, Recorder
from quaver.diagnosis.statistics.activations import Activation
from quaver.diagnosis.statistics.weights import WeightShape
from quaver.introspection import ActivationContext, OpContext
from quaver.ops import Op, OpConfig, Precision

# An op is bad when its own squared error exceeds this part of its output's power (13 dB). Judgement: healthy ops of the
# benchmark models stay below 0.01.
BAD_ERROR = 0.05


@dataclass(frozen=True, slots=True)
class OpEvidence:
    """One op with everything that was measured of it.

    Attributes:
        op: the op, with all the choices that the framework offers.
        choice: how it runs; None if that is not known.
        precision: the precision it runs in.
        context: the tensors and ops around it.
        record: the statistics of its output.
        weight: how the values of its weight are distributed; None if it has no weight or is healthy.
        activations: the float tensors that it reads and writes, by name.
        readers: for each op, the ops that read its quantized output.
        samples: the number of samples.
        allowed: the choices that the user's rules allow.
        repair: the repair that helps it most; None if none was tried.
        modes: the effects of other modes, where they were tried.
    """

    op: Op
    choice: OpConfig | None
    precision: Precision
    context: OpContext
    record: OpRecord
    weight: WeightShape | None
    activations: Mapping[str, Activation]
    readers: Mapping[str, Sequence[str]]
    samples: int
    allowed: AllowedChoices
    repair: Improvement | None = None
    modes: tuple[Improvement, ...] = ()

    @property
    def name(self) -> str:
        """The op's name."""
        return self.op.name

    @property
    def is_bad(self) -> bool:
        """True if the op is quantized and its own error is too large."""
        return self.precision.quantized and self.record.error > BAD_ERROR

    def cause(
        self,
        kind: str,
        sentence: str,
        remedies: Sequence[Remedy] = (),
        *,
        before: str = "",
        weight: float | None = None,
    ) -> Cause:
        """Return a cause with the first remedy that the rules allow.

        Args:
            kind: the kind of cause, in one word.
            sentence: the reason, with figures.
            remedies: what to do, the best first.
            before: advice in front of the remedy.
            weight: how bad it is; by default the op's error.
        """
        advice, rules = self.allowed.advise(remedies, before)
        return Cause(self.name, kind, sentence, advice, rules, self.record.error if weight is None else weight)

    def tensors(self) -> Iterator[tuple[str, ActivationContext, Activation]]:
        """Yield the quantized tensors that it writes and reads, each with a name for sentences."""
        if self.context.writes is not None:
            yield "output", self.context.writes, self.record.output
        for number, tensor in enumerate(self.context.reads, 1):
            if tensor.name in self.activations:
                which = "input" if len(self.context.reads) == 1 else f"input {number}"
                yield which, tensor, self.activations[tensor.name]

    def ops_around(self, tensor: ActivationContext) -> list[str]:
        """Return the ops that must all run in fp32 for a tensor to stay float: its writer and its readers."""
        owner = tensor.origin
        names = [owner, *self.readers.get(owner, ())] if owner else [self.name]
        return list(dict.fromkeys([*names, self.name]))


@dataclass(frozen=True, slots=True)
class ModelEvidence:
    """All ops with everything that was measured.

    Attributes:
        ops: the evidence of each op, in graph order.
        fp32_seconds: the seconds of each op in the float model, measured once or several times.
        quantized_seconds: the seconds of each op in the quantized model.
    """

    ops: Sequence[OpEvidence]
    fp32_seconds: Sequence[Mapping[str, float]] = ()
    quantized_seconds: Sequence[Mapping[str, float]] = ()


ErrorsByVariant = Mapping[str, Mapping[str, float]]
"""Repair or mode -> the error of each op that offers it; the empty name holds the errors without any."""


class Improvement(NamedTuple):
    """The effect of a repair or a mode on an op's own error.

    Attributes:
        spelled: the repair or the mode.
        before: the error without it.
        after: the error with it.
        ops: the ops that have to be repaired together.
    """

    spelled: str
    before: float
    after: float
    ops: tuple[str, ...]


def best_repairs(errors: ErrorsByVariant, inputs: Mapping[str, str]) -> dict[str, Improvement]:
    """Return the repair that cuts the error most, for each op.

    Args:
        errors: the errors with each repair.
        inputs: the tensor that each op reads; ops that read the same tensor are repaired together.
    """
    unrepaired = errors.get("", {})
    best: dict[str, Improvement] = {}
    for spelled, repaired in errors.items():
        for name, after in repaired.items() if spelled else ():
            if name in unrepaired and (name not in best or after < best[name].after):
                ops = tuple(other for other in repaired if other == name or _have_same_input(inputs, other, name))
                best[name] = Improvement(spelled, unrepaired[name], after, ops)
    return best


def mode_improvements(errors: ErrorsByVariant) -> dict[str, tuple[Improvement, ...]]:
    """Return the effect of each other mode that was tried, for each op, in the order of the trials."""
    unchanged = errors.get("", {})
    return {
        name: tuple(
            Improvement(mode, unchanged[name], errors_in_mode[name], (name,))
            for mode, errors_in_mode in errors.items()
            if mode and name in errors_in_mode
        )
        for name in unchanged
    }


def _have_same_input(inputs: Mapping[str, str], first: str, second: str) -> bool:
    return bool(inputs.get(first)) and inputs.get(first) == inputs.get(second)


def readers(contexts: Mapping[str, OpContext]) -> dict[str, list[str]]:
    """Return, for each op, the ops that read its quantized output."""
    result: dict[str, list[str]] = {}
    for context in contexts.values():
        for tensor in context.reads:
            if tensor.origin:
                result.setdefault(tensor.origin, []).append(context.op)
    return result


def input_reach(context: OpContext, recorder: Recorder) -> np.ndarray[tuple[int], np.dtype[np.float64]] | None:
    """Return the largest absolute value of each channel of an op's first input; None if it is not known."""
    if not context.reads or context.reads[0].name not in recorder.read:
        return None
    return recorder.read[context.reads[0].name].channel_reach
