"""`start_from`: the winner of a run on an earlier version of the model, as a configuration of this one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from quaver.engine.events import Observer, StartedFrom
from quaver.engine.judge import judge_snapshot
from quaver.errors import HistoryError, SettingsError
from quaver.history import Storage, read_snapshot
from quaver.history.choices import from_choice, to_choices
from quaver.history.opcodes import Malformed
from quaver.ops import QuantConfig
from quaver.paths import expanded
from quaver.space import TuningSpace

# The note that keeps the configuration, so that a resumed run needs the other snapshot no more.
NOTE = "start_from"


def first_config(
    start_from: str | os.PathLike[str] | None, space: TuningSpace, history: Storage, observer: Observer
) -> QuantConfig | None:
    """The configuration to try first; None if there is none. What is new in the model runs in int8."""
    known = _noted(history, space)
    if known is not None or start_from is None:
        return known
    snapshot = read_snapshot(Path(expanded(start_from)))
    best = judge_snapshot(snapshot).best
    if best is None:
        raise HistoryError(f"`start_from`: {snapshot.path} has no trial with a score to start from")
    kinds = {op.name: op.kind for op in snapshot.header.ops}
    same = [op for op in space.ops if kinds.get(op.name) == op.kind]
    if not same:
        raise SettingsError(
            f"`start_from`: no op of this model has the name and the kind of one in {snapshot.path}; is it a run of "
            "this model's last version?"
        )
    offered = [op.name for op in same if best.config[op.name] in op.choices]
    lost = tuple(op.name for op in same if op.name not in set(offered))
    config = space.all_int8().replace({name: best.config[name] for name in offered})
    history.note(NOTE, {name: from_choice(choice) for name, choice in config.items()})
    observer(StartedFrom(snapshot.path, best.number, len(offered), len(space.ops), lost))
    return config


def _noted(history: Storage, space: TuningSpace) -> QuantConfig | None:
    noted: Any = history.notes.get(NOTE)
    if not isinstance(noted, dict) or [*noted] != [op.name for op in space.ops]:
        return None
    try:
        config = QuantConfig((name, to_choices([choice])[0]) for name, choice in noted.items())
    except Malformed:
        return None
    return config if space.allows(config) else None
