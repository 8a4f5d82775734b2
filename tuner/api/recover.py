"""`recover`: the way back to any trial."""

from __future__ import annotations

import os
from typing import Any

from quaver.adapters import AdapterOptions, Model, adapter_for
from quaver.engine.same_model import check_same_model
from quaver.errors import HistoryError
from quaver.history import read_snapshot


def recover(model: Any, history: str | os.PathLike[str], trial: int, *, threads: int = 0) -> Model:
    """Rebuild a trial from the float model and its history.snapshot alone; no calibration data is needed.

    Args:
        model: the float model the run started from, in any form that `fit` takes.
        history: the snapshot, or the workspace it lies in.
        trial: its number; 0 is the fp32 model.
        threads: threads of one inference, if the model is run.

    Returns:
        The model that was scored, byte for byte: call it, or `save` it.
    """
    snapshot = read_snapshot(history)
    record = snapshot.baseline if trial == 0 else snapshot.trial(trial)
    if record is None:
        raise HistoryError(f"{snapshot.path} holds no baseline yet")
    kind = adapter_for(model, snapshot.header.settings.get("framework"))
    adapter = kind.open(model, AdapterOptions(None, threads, kind.recorded_format(snapshot.header.settings)))
    check_same_model(adapter, snapshot.header, snapshot.path)
    adapter.restore(snapshot.header.calibration)
    rebuilt = adapter.rebuild(record.config if trial else None)
    if record.model_hash and rebuilt.sha256 != record.model_hash:
        then = ", ".join(f"{name} {version}" for name, version in snapshot.header.versions.items())
        now = ", ".join(f"{name} {version}" for name, version in adapter.versions.items())
        raise HistoryError(
            f"trial {trial} cannot be rebuilt byte for byte: the run used {then}; here are {now}. "
            "Install the versions of the run"
        )
    return rebuilt
