"""Errors of ops that another mode would take away."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from quaver.diagnosis.causes import activations as activation_causes
from quaver.diagnosis.causes import weights as weight_causes
from quaver.diagnosis.causes import whole_model as other_causes
from quaver.diagnosis.causes.advice import repair, run_in_mode
from quaver.diagnosis.causes.base import Cause
from quaver.diagnosis.causes.op_evidence import BAD, OpEvidence
from quaver.diagnosis.text import percent
from quaver.ops import FP32
from quaver.repairs import name_of

# A mode is worth a word if it cuts an op's own error so many times.
_MODE_CUTS = 3.0


def other_mode(suspect: OpEvidence) -> Iterator[Cause]:
    """An op whose own error would be several times less, and not bad, with dynamic ranges or its weight alone reduced.

    The first of the modes that does so is named: they come in the order of their speed.
    """
    for relief in suspect.modes:
        if relief.before > _MODE_CUTS * relief.after and relief.after < BAD:
            cut = relief.before / max(relief.after, 1e-12)
            sentence = (
                f"mode {relief.spelled} would cut this op's error {cut:.2g}x, from {percent(relief.before)} of its "
                f"output's power to {percent(relief.after)}."
            )
            yield suspect.cause("other_mode", sentence, [run_in_mode(suspect.name, relief.spelled)])
            return


# A repair is worth a word if it cuts an op's own error so many times, and that is this part of its output at least.
_REPAIR_CUTS, _WORTH_A_WORD = 3.0, 1e-2


def repairable(suspect: OpEvidence) -> Iterator[Cause]:
    """An op whose own error a repair would cut several times, and to what is not bad."""
    relief = suspect.relief
    if relief is None or not suspect.precision.quantized or relief.before < _WORTH_A_WORD:
        return
    if relief.before > _REPAIR_CUTS * relief.after and relief.after < BAD:
        cut = relief.before / max(relief.after, 1e-12)
        sentence = (
            f"{name_of(relief.spelled).replace('_', ' ')} would cut this op's error {cut:.2g}x, from "
            f"{percent(relief.before)} of its output's power to {percent(relief.after)}."
        )
        yield suspect.cause("repairable", sentence, [repair(relief.ops, relief.spelled)], weight=relief.before)


def find_causes(
    suspects: Sequence[OpEvidence],
    fp32: Sequence[Mapping[str, float]] = (),
    quantized: Sequence[Mapping[str, float]] = (),
) -> tuple[Cause, ...]:
    """All causes, the worst first.

    `fp32` and `reduced` are measured seconds of each op in the float and in the quantized model, once or several times.
    """
    found: list[Cause] = [
        *other_causes.not_finite(suspects),
        *other_causes.no_samples(suspects),
        *other_causes.amplified(suspects),
    ]
    for suspect in suspects:
        causes = [cause for finder in (*weight_causes.FINDERS, *activation_causes.FINDERS) for cause in finder(suspect)]
        if any(cause.kind == "shared_scale" for cause in causes):  # it tells more than that a channel stands out
            causes = [cause for cause in causes if cause.kind != "outlier_channel"]
        causes += repairable(suspect)
        if all(cause.rules.get(suspect.name) == FP32 for cause in causes if cause.rules):  # nothing nearer helps
            causes += other_mode(suspect)
        found += causes or ([other_causes.unexplained(suspect)] if suspect.bad else [])
    found.sort(key=lambda cause: -cause.weight)
    slow = sorted(other_causes.slower(suspects, fp32, quantized), key=lambda cause: -cause.weight)
    return (*found, *slow)
