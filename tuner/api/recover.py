"""Rebuild any trial of a run: `recover`."""

from __future__ import annotations

import contextlib
import os
import weakref
from collections.abc import Mapping

from quaver.adapters import Adapter, AdapterOptions, Model, adapter_for, imported_beside, load_with
from quaver.adapters.calibration.stored import stored_skipped_rewrites
from quaver.adapters.options import recorded_quant_format
from quaver.engine.compatibility import (
    check_same_model,
    complete,
    ops_version_of,
    restore,
    versions_of,
    was_optimised,
    was_portable,
)
from quaver.engine.provenance import add_provenance
from quaver.errors import BuildError, HistoryError
from quaver.files.paths import expanded
from quaver.files.temporary import temporary_folder
from quaver.history import Snapshot, read_snapshot
from quaver.types import ModelLike


def recover(model: ModelLike, history: str | os.PathLike[str], trial: int, *, threads: int = 0) -> Model:
    """Rebuild a trial from the float model and its history.snapshot alone; no calibration data is needed.

    Args:
        model: the float model the run started from, in any form that `fit` takes.
        history: the snapshot, or the workspace it lies in.
        trial: its number; 0 is the fp32 model.
        threads: threads of one inference, if the model is run.

    Returns:
        The model that was scored, byte for byte: call it, or `save` it. The saved file equals the one that the run
        saved, with its provenance (see `read_provenance`).
    """
    snapshot = read_snapshot(history)
    if trial == 0 and snapshot.baseline is None:
        raise HistoryError(f"{snapshot.path} holds no baseline yet")
    run = snapshot.run_of(trial)
    model = imported_beside(expanded(model), snapshot.path)
    kind = adapter_for(model, run.settings.get("framework"), run.settings.get("runtime"))
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(temporary_folder())
        options = AdapterOptions(
            folder,
            threads,
            recorded_quant_format(kind, run.settings),
            was_optimised(run.settings),
            left_out=stored_skipped_rewrites(snapshot.header.calibration),
            portable=was_portable(run.settings),
            ops_version=ops_version_of(snapshot.header, run.settings),
        )
        adapter = stack.enter_context(contextlib.closing(load_with(kind, model, options)))
        rebuilt = _rebuild(adapter, snapshot, trial)
        # The model reads weights from the files of the adapter, so these stay until the model is gone.
        weakref.finalize(rebuilt, stack.pop_all().close)
    return rebuilt


def _rebuild(adapter: Adapter, snapshot: Snapshot, number: int) -> Model:
    check_same_model(adapter, snapshot.header, snapshot.path)
    restore(adapter, snapshot.header, snapshot.path)
    record, ops = snapshot.trial(number), adapter.ops()
    config = complete(record.config, ops) if number else None
    then, now = _list(snapshot.run_of(number).versions), _list(versions_of(adapter))
    advice = f"the run used {then}; here are {now}. Install the versions of the run"
    try:
        rebuilt = adapter.assemble(config)
    except BuildError as error:
        not_offered = [op.name for op in ops if config is not None and config[op.name] not in op.choices]
        if not not_offered:
            raise
        raise HistoryError(
            f"trial {number} cannot be rebuilt: it runs {not_offered[0]!r} with a choice that is not offered here "
            f"({error}): {advice}"
        ) from error
    if record.model_hash and rebuilt.sha256 != record.model_hash:
        raise HistoryError(f"trial {number} cannot be rebuilt byte for byte: {advice}")
    add_provenance(rebuilt, snapshot, record)
    return rebuilt


def _list(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items()) or "versions that are not recorded"
