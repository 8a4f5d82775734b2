"""What cannot be quantized, noted in the history once."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from quaver.adapters import Adapter
from quaver.engine.crashes import last_step
from quaver.history import Storage
from quaver.unquantizable import NOTE, Unquantizable, from_notes, to_note

log = logging.getLogger(__name__)


def note_unquantizable(adapter: Adapter, history: Storage, timed: bool) -> None:
    """Note the kinds and, if `timed`, their shares of the fp32 model's time, unless that was noted before."""
    known = from_notes(history.notes)
    if known and not (timed and any(one.share is None for one in known)):
        return
    found: Sequence[Unquantizable] | None = None
    if timed:
        with last_step(history, "timing what cannot be quantized", "its share of the time is not known") as may_run:
            found = _timed(adapter) if may_run else None
    if found is None:
        found = adapter.unquantizable()
    if found and tuple(found) != known:
        history.note(NOTE, to_note(found))


def _timed(adapter: Adapter) -> Sequence[Unquantizable]:
    try:
        return adapter.unquantizable(timed=True)
    except Exception:  # what a runtime refuses to profile can be named all the same
        log.warning("what cannot be quantized could not be timed", exc_info=True)
        return adapter.unquantizable()
