"""Tune for another machine: measure a cost model there, and load it for a run here."""

from __future__ import annotations

import contextlib
import io
import json
import os
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from quaver.adapters import Adapter, AdapterOptions, adapter_for, load_with
from quaver.adapters.abilities import SupportsBoardKit, require
from quaver.adapters.data import count_samples, has_open_batch
from quaver.adapters.samples import check_batch
from quaver.api.arguments import keywords_checked
from quaver.api.calibration import calibrate, check_timing_batch
from quaver.api.config.config import Config
from quaver.engine.observers import silent
from quaver.engine.timing.cost_model import (
    KIND,
    VERSION,
    CostModel,
    fitting,
    measure_cost_model,
    plan_for,
    read_file,
    resolved,
)
from quaver.engine.timing.time_model import measure_edges
from quaver.errors import SettingsError
from quaver.files.paths import expanded
from quaver.files.temporary import temporary_folder
from quaver.history import History
from quaver.types import CalibrationData, ModelLike, PlainMapping

# The note of a history that holds the cost model of its run.
NOTE = "cost_model"


@keywords_checked
def save_cost_model(
    model: ModelLike,
    path: str | os.PathLike[str],
    calib_dataloader: CalibrationData = None,
    *,
    target: str | None = None,
    batch: int = 1,
) -> Path:
    """Time the ops of a model on this machine, in fp32 and int8, for runs on others: `fit(..., cost_model=path)`.

    Args:
        model: the float model, as for `fit`.
        path: the JSON file to write.
        calib_dataloader: typical inputs, as for `fit`; the first samples are timed.
        target: the name of this machine; its host name and processor if None.
        batch: samples of one inference, as for `fit`.

    Returns:
        The path of the file.
    """
    place = Path(expanded(path))
    with calibrated(model, place, calib_dataloader, batch) as adapter:
        cost_model = measure_cost_model(adapter, target)
    place.write_text(json.dumps(cost_model.to_dict(), indent=1) + "\n", encoding="utf-8")
    return place


@contextlib.contextmanager
def calibrated(model: ModelLike, place: Path, data: CalibrationData, batch: int = 1) -> Iterator[Adapter]:
    """Yield a calibrated model that will be timed at a batch, after checking that `place` can be written."""
    config = Config(batch=batch)
    if not place.parent.is_dir():
        raise SettingsError(f"there is no folder {str(place.parent)!r} to write {place.name!r} into")
    if data is None:
        raise SettingsError("calib_dataloader is needed: typical inputs to quantize and to time the model with")
    model = expanded(model)
    kind = adapter_for(model)
    with (
        temporary_folder() as folder,
        contextlib.closing(load_with(kind, model, AdapterOptions(folder, batch=batch))) as adapter,
    ):
        check_batch(adapter.inputs, batch)
        calibrate(adapter, config, data, silent)
        check_timing_batch(adapter, batch)
        yield adapter


def load_cost_model(
    path: str | os.PathLike[str] | None, adapter: Adapter, history: History, batch: int = 1
) -> CostModel | None:
    """Load the cost model of a run and check it against the model and `batch`; return None for this machine.

    A resumed run uses the figures in its history, even if the file has changed.
    """
    if path is None:
        return None
    path = os.fspath(path)
    noted = history.notes.get(NOTE)
    is_noted = isinstance(noted, Mapping) and noted.get("path") == path
    data = noted["content"] if is_noted else read_file(os.fspath(expanded(path)))  # type: ignore[index]
    cost = fitting(resolved(data, adapter, path), adapter, path)
    if has_open_batch(adapter.inputs) and cost.batch not in (None, batch):
        raise SettingsError(
            f"cost model {path!r} was measured at batch {cost.batch}, and `batch` is {batch}: set "
            f"`batch={cost.batch}`, or profile the model on the target at batch {batch}"
        )
    return cost


def with_conversions(cost: CostModel, path: str | os.PathLike[str], adapter: Adapter, history: History) -> CostModel:
    """Return a cost model with the conversions between the ops of this model, and note it in the history."""
    history.note(NOTE, {"path": os.fspath(path), "content": cost.to_dict()})
    between = measure_edges(adapter, adapter.timing_feed) if adapter.probe_samples else ()
    return cost.with_edges(between)


def target_of(notes: PlainMapping) -> str:
    """Return the name of the machine that a run was for; empty if it was this one."""
    noted = notes.get(NOTE)
    content = noted.get("content") if isinstance(noted, Mapping) else None
    return str(content.get("target", "")) if isinstance(content, Mapping) else ""


# Lets the system run the file with Python.
HEAD = b"#!/usr/bin/env python3\n"


@keywords_checked
def save_board_kit(
    model: ModelLike, path: str | os.PathLike[str], calib_dataloader: CalibrationData = None, *, batch: int = 1
) -> Path:
    """Write one file that times a model without quaver: `python3 FILE > cost.json`, for `fit(..., cost_model=)`.

    It holds the float model, the int8 model, one model for each other mode, a few mixed-precision models that show the
    cost of conversions, and one batch of inputs. It needs Python 3.8, numpy and onnxruntime.

    Args:
        model: the float model, as for `fit`.
        path: the file to write, such as board.pyz.
        calib_dataloader: typical inputs, as for `fit`; the first samples are timed.
        batch: samples of one inference, as for `fit`.

    Returns:
        The path of the file.
    """
    place = Path(expanded(path))
    with calibrated(model, place, calib_dataloader, batch) as adapter:
        script = require(adapter, SupportsBoardKit).board_script()
        content = _packed(adapter, script)
    place.write_bytes(HEAD + content)
    return place


def _packed(adapter: Adapter, script: str) -> bytes:
    feed, plan = adapter.timing_feed, plan_for(adapter)
    profiled = [None, *plan.profiled]
    models = [adapter.assemble(config) for config in (*profiled, *plan.timed)]
    names = [f"{index}{adapter.suffix}" for index in range(len(models))]
    arrays = io.BytesIO()
    np.savez(arrays, *feed.values())
    header = {
        KIND: VERSION,
        "adapter": adapter.name,
        "model": adapter.fingerprint,
        "batch": count_samples(feed),
        "configs": plan.fingerprints,
        "alone": list(plan.fused),
        "borders": [[edge.producer, list(edge.readers), edge.elements] for edge in measure_edges(adapter, feed)],
    }
    job = {"models": names, "profiled": len(profiled), "inputs": list(feed), "said": header}
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as kit:
        kit.writestr("__main__.py", script)
        kit.writestr("job.json", json.dumps(job))
        kit.writestr("feed.npz", arrays.getvalue())
        for name, model in zip(names, models, strict=True):
            kit.writestr(name, model.SerializeToString())
    return packed.getvalue()
