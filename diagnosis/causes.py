"""Why ops are bad: every cause is asked for, the worst come first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from quaver.diagnosis import activation_causes, mode_causes, other_causes, repair_causes, weight_causes
from quaver.diagnosis.cause import Cause
from quaver.diagnosis.suspects import Suspect
from quaver.ops import FP32


def find_causes(
    suspects: Sequence[Suspect],
    fp32: Sequence[Mapping[str, float]] = (),
    reduced: Sequence[Mapping[str, float]] = (),
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
        causes += repair_causes.repairable(suspect)
        if all(cause.rules.get(suspect.name) == FP32 for cause in causes if cause.rules):  # nothing nearer helps
            causes += mode_causes.other_mode(suspect)
        found += causes or ([other_causes.unexplained(suspect)] if suspect.bad else [])
    found.sort(key=lambda cause: -cause.weight)
    slow = sorted(other_causes.slower(suspects, fp32, reduced), key=lambda cause: -cause.weight)
    return (*found, *slow)
