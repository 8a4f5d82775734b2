"""Errors of ops that another mode would take away."""

from __future__ import annotations

from collections.abc import Iterator

from quaver.diagnosis.cause import Cause
from quaver.diagnosis.remedies import run_in_mode
from quaver.diagnosis.suspects import BAD, Suspect
from quaver.diagnosis.wording import percent

# A mode is worth a word if it cuts an op's own error so many times.
_CUTS = 3.0


def other_mode(suspect: Suspect) -> Iterator[Cause]:
    """An op whose own error would be several times less, and not bad, with dynamic ranges or its weight alone reduced.

    The first of the modes that does so is named: they come in the order of their speed.
    """
    for relief in suspect.modes:
        if relief.before > _CUTS * relief.after and relief.after < BAD:
            cut = relief.before / max(relief.after, 1e-12)
            sentence = (
                f"mode {relief.spelled} would cut this op's error {cut:.2g}x, from {percent(relief.before)} of its "
                f"output's power to {percent(relief.after)}."
            )
            yield suspect.cause("other_mode", sentence, [run_in_mode(suspect.name, relief.spelled)])
            return
