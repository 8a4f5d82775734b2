"""`fit`: the road of one run."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from quaver.api.open_run import open_run
from quaver.api.result import TuneResult
from quaver.api.settings import Config
from quaver.engine.events import Observer
from quaver.engine.loop import drive
from quaver.errors import SettingsError


def fit(
    model: Any,
    config: Config | Mapping[str, Any] | str | os.PathLike[str] | None = None,
    *,
    calib_dataloader: Any = None,
    eval_func: Callable[[Any], Any],
    observer: Observer | Iterable[Observer] | None = None,
    **settings: Any,
) -> TuneResult:
    """Find the configuration that is best by the objective and loses no more accuracy than the criterion allows.

    Args:
        model: the float model: a path, an `onnx.ModelProto`, bytes, or what an installed adapter takes.
        config: a YAML file, a dict or a `Config`; keywords override it.
        calib_dataloader: an iterable of batches (arrays, tuples, dicts by input name, or (input, label) pairs), an
            array, or a dict of arrays. Not needed for a resumed run, unless its strategy measures ops.
        eval_func: called with a model object, returns the score as one number.
        observer: called with an event for all that happens (see `quaver.Observer`); a list for several.
        settings: any field of `Config`: strategy, relative, timeout, max_trials, op_name_dict, ...

    Returns:
        A `TuneResult`, also when nothing meets the criterion (`result.met` is False) and after Ctrl-C.
    """
    if not callable(eval_func):
        raise SettingsError(f"eval_func must be a function of the model that returns a number, not {eval_func!r}")
    with open_run(model, config, calib_dataloader=calib_dataloader, observer=observer, **settings) as run:
        drive(run.engine, eval_func, run.observer)
        return run.result()
