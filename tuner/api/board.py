"""What times a model on a board that has a runtime and nothing of quaver: one file to run there."""

from __future__ import annotations

import io
import json
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from quaver.adapters import Adapter
from quaver.adapters.batches import samples
from quaver.api.aimed import calibrated
from quaver.api.checked import keywords_checked
from quaver.engine.cost_model import KIND, VERSION, plan_for
from quaver.engine.mixtures import borders
from quaver.errors import SettingsError
from quaver.paths import expanded

# So that Python runs the file, whatever it is called.
HEAD = b"#!/usr/bin/env python3\n"


@keywords_checked
def save_board_kit(model: Any, path: str | os.PathLike[str], calib_dataloader: Any = None, *, batch: int = 1) -> Path:
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
        script = adapter.board_script()
        if script is None:
            raise SettingsError(
                f"{adapter.name} has no script that times ops without quaver: install quaver on the target, and use "
                "`quaver profile MODEL --calib DATA --save cost.json` there"
            )
        content = _packed(adapter, script)
    place.write_bytes(HEAD + content)
    return place


def _packed(adapter: Adapter, script: str) -> bytes:
    feed, plan = adapter.timing_feed, plan_for(adapter)
    profiled = [None, *plan.profiled]
    models = [adapter.rebuild(one) for one in (*profiled, *plan.timed)]
    names = [f"{index}{adapter.suffix}" for index in range(len(models))]
    arrays = io.BytesIO()
    np.savez(arrays, *feed.values())
    said = {
        KIND: VERSION,
        "adapter": adapter.name,
        "model": adapter.fingerprint,
        "batch": samples(feed),
        "configs": plan.fingerprints,
        "alone": list(plan.alone),
        "borders": [[one.producer, list(one.readers), one.elements] for one in borders(adapter, feed)],
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
