"""Causes that a repair or another mode would remove, as far as these were tried."""

from __future__ import annotations

from collections.abc import Iterator

from quaver.diagnosis.causes.advice import repair, run_in_mode
from quaver.diagnosis.causes.base import Cause
from quaver.diagnosis.causes.op_evidence import BAD_ERROR, Improvement, OpEvidence
from quaver.diagnosis.causes.registry import Stage, op_cause
from quaver.formatting import percent
from quaver.repairs import name_of

# Judgement: a repair or a mode is worth a line if it divides the op's own error by more than this.
MIN_IMPROVEMENT = 3.0
# Judgement: a smaller error, as a part of the output's power, needs no repair.
MIN_REPAIRED_ERROR = 1e-2


@op_cause(Stage.MODES)
def other_mode(evidence: OpEvidence) -> Iterator[Cause]:
    """Find the first mode, in the order of their speed, that makes a bad op healthy."""
    for improvement in evidence.modes:
        if _is_cure(improvement):
            sentence = f"mode {improvement.spelled} would {_cut(improvement)}."
            yield evidence.cause("other_mode", sentence, [run_in_mode(evidence.name, improvement.spelled)])
            return


@op_cause(Stage.REPAIRS)
def repairable(evidence: OpEvidence) -> Iterator[Cause]:
    """Find the repair that makes an op healthy."""
    improvement = evidence.repair
    if improvement is None or not evidence.precision.quantized or improvement.before < MIN_REPAIRED_ERROR:
        return
    if _is_cure(improvement):
        sentence = f"{name_of(improvement.spelled).replace('_', ' ')} would {_cut(improvement)}."
        remedy = repair(improvement.ops, improvement.spelled)
        yield evidence.cause("repairable", sentence, [remedy], weight=improvement.before)


def _is_cure(improvement: Improvement) -> bool:
    return improvement.before > MIN_IMPROVEMENT * improvement.after and improvement.after < BAD_ERROR


def _cut(improvement: Improvement) -> str:
    ratio = improvement.before / max(improvement.after, 1e-12)
    return (
        f"cut this op's error {ratio:.2g}x, from {percent(improvement.before)} of its output's power to "
        f"{percent(improvement.after)}"
    )
