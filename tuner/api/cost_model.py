"""A run for another machine: its cost model, read once and kept with the run; and how such a file is made there."""

from __future__ import annotations

import contextlib
import io
import json
import os
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

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
from quaver.types import ModelLike, PlainMapping

# The note of a history that holds the cost model of its run.
NOTE = "cost_model"


@keywords_checked
def save_cost_model(
    model: ModelLike,
    path: str | os.PathLike[str],
    calib_dataloader: Any = None,
    *,
    target: str | None = None,
    batch: int = 1,
) -> Path:
    """Time the ops of a model on this machine, in fp32 and int8, for runs elsewhere: `fit(..., cost_model=path)`.

    Args:
        model: the float model, as for `fit`.
        path: the JSON file to write.
        calib_dataloader: typical inputs, as for `fit`; the first samples are what is timed.
        target: what this machine is called; its host name and processor if None.
        batch: samples of one inference, as for `fit`.

    Returns:
        The path of the file.
    """
    place = Path(expanded(path))
    with calibrated(model, place, calib_dataloader, batch) as adapter:
        found = measure_cost_model(adapter, target)
    place.write_text(json.dumps(found.to_dict(), indent=1) + "\n", encoding="utf-8")
    return place


@contextlib.contextmanager
def calibrated(model: ModelLike, place: Path, data: Any, batch: int = 1) -> Iterator[Adapter]:
    """A calibrated model, for a file to be written to `place`; `batch` is what it will be timed at."""
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
    given: str | os.PathLike[str] | None, adapter: Adapter, history: History, batch: int = 1
) -> CostModel | None:
    """The cost model of a run, checked against its model and `batch`; None if the run is for this machine.

    A resumed run decides by the figures that are kept in the history, whatever became of the file.
    """
    if given is None:
        return None
    path = os.fspath(given)
    noted = history.notes.get(NOTE)
    kept = isinstance(noted, Mapping) and noted.get("path") == path
    data = noted["content"] if kept else read_file(os.fspath(expanded(path)))  # type: ignore[index]
    cost = fitting(resolved(data, adapter, path), adapter, path)
    if has_open_batch(adapter.inputs) and cost.batch not in (None, batch):
        raise SettingsError(
            f"cost model {path!r} was measured at batch {cost.batch}, and `batch` is {batch}: set "
            f"`batch={cost.batch}`, or profile the model on the target at batch {batch}"
        )
    return cost


def with_conversions(cost: CostModel, given: str | os.PathLike[str], adapter: Adapter, history: History) -> CostModel:
    """The same with the conversions between ops, as large as they are in this model; kept in the history."""
    path = os.fspath(given)
    history.note(NOTE, {"path": path, "content": cost.to_dict()})
    between = measure_edges(adapter, adapter.timing_feed) if adapter.probe_samples else ()
    return cost.with_edges(between)


def target_of(notes: PlainMapping) -> str:
    """What the machine is called that a run was for; empty if it was this one."""
    noted = notes.get(NOTE)
    content = noted.get("content") if isinstance(noted, Mapping) else None
    return str(content.get("target", "")) if isinstance(content, Mapping) else ""


# So that Python runs the file, whatever it is called.
HEAD = b"#!/usr/bin/env python3\n"


@keywords_checked
def save_board_kit(
    model: ModelLike, path: str | os.PathLike[str], calib_dataloader: Any = None, *, batch: int = 1
) -> Path:
    """Write one file that times a model where quaver is not: `python3 FILE > cost.json`, for `fit(..., cost_model=)`.

    It holds the float model, the int8 one, one for each other mode, a few mixtures that tell what conversions cost, and
    one batch of inputs. It needs Python 3.8, numpy and onnxruntime there.

    Args:
        model: the float model, as for `fit`.
        path: the file to write, such as board.pyz.
        calib_dataloader: typical inputs, as for `fit`; the first samples are what is timed.
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
    models = [adapter.assemble(one) for one in (*profiled, *plan.timed)]
    names = [f"{index}{adapter.suffix}" for index in range(len(models))]
    arrays = io.BytesIO()
    np.savez(arrays, *feed.values())
    said = {
        KIND: VERSION,
        "adapter": adapter.name,
        "model": adapter.fingerprint,
        "batch": count_samples(feed),
        "configs": plan.fingerprints,
        "alone": list(plan.fused),
        "borders": [[one.producer, list(one.readers), one.elements] for one in measure_edges(adapter, feed)],
    }
    job = {"models": names, "profiled": len(profiled), "inputs": list(feed), "said": said}
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as kit:
        kit.writestr("__main__.py", script)
        kit.writestr("job.json", json.dumps(job))
        kit.writestr("feed.npz", arrays.getvalue())
        for name, model in zip(names, models, strict=True):
            kit.writestr(name, model.SerializeToString())
    return packed.getvalue()
