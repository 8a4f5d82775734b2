"""Errors of ops that a repair would take away."""

from __future__ import annotations

from collections.abc import Iterator

from quaver.diagnosis.cause import Cause
from quaver.diagnosis.remedies import repair
from quaver.diagnosis.suspects import BAD, Suspect
from quaver.diagnosis.wording import percent
from quaver.repairs import name_of

# A repair is worth a word if it cuts an op's own error so many times, and that is this part of its output at least.
_CUTS, _WORTH_A_WORD = 3.0, 1e-2


def repairable(suspect: Suspect) -> Iterator[Cause]:
    """An op whose own error a repair would cut several times, and to what is not bad."""
    relief = suspect.relief
    if relief is None or not suspect.precision.reduced or relief.before < _WORTH_A_WORD:
        return
    if relief.before > _CUTS * relief.after and relief.after < BAD:
        cut = relief.before / max(relief.after, 1e-12)
        sentence = (
            f"{name_of(relief.spelled).replace('_', ' ')} would cut this op's error {cut:.2g}x, from "
            f"{percent(relief.before)} of its output's power to {percent(relief.after)}."
        )
        yield suspect.cause("repairable", sentence, [repair(relief.ops, relief.spelled)], weight=relief.before)
