"""`quantization.fit`: Neural Compressor's door to `quaver.fit`."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from quaver.api import TuneResult
from quaver.api import fit as quaver_fit
from quaver.errors import SettingsError
from quaver.neural_compressor.config import PostTrainingQuantConfig
from quaver.neural_compressor.model import BridgedModel
from quaver.types import EvalFunc, ModelLike, PlainMapping

# Where Neural Compressor keeps its runs, each in a folder named after the time.
ROOT = "nc_workspace"


def fit(
    model: ModelLike,
    conf: PostTrainingQuantConfig,
    calib_dataloader: Any = None,
    calib_func: Callable[..., Any] | None = None,
    eval_func: EvalFunc | None = None,
    eval_dataloader: Any = None,
    eval_metric: Any = None,
    **settings: Any,
) -> BridgedModel:
    """Quantize a model; with a score (an `eval_func`, or a metric and its dataloader) tune it.

    `settings` are those of `quaver.fit`. What comes back has `save`, `model`, `q_config`, and `result` with the rest.
    """
    if calib_func is not None:
        raise SettingsError("calib_func is not used: give its data as calib_dataloader, which is run through the model")
    if not isinstance(conf, PostTrainingQuantConfig):
        raise SettingsError(f"conf must be a PostTrainingQuantConfig, not {type(conf).__name__}")
    eval_func = eval_func or metric_function(eval_metric, eval_dataloader)
    return quantized(model, conf.settings, calib_dataloader, eval_func, settings)


def quantized(
    model: ModelLike, given: PlainMapping | str, data: Any, eval_func: EvalFunc | None, settings: PlainMapping
) -> BridgedModel:
    """Run `quaver.fit` and wrap what it gives."""
    score = None if eval_func is None else Bridged(eval_func)
    result = quaver_fit(
        model, given, calib_dataloader=data, eval_func=score, **{**_workspace(given, settings), **settings}
    )
    if result.model is None or result.best is None:
        raise SettingsError(f"no model came out of the run: {result}")
    if result.met is False:
        warnings.warn(f"no model meets the criterion; this is the best one: {result}", UserWarning, stacklevel=3)
    return bridged(result)


def bridged(result: TuneResult) -> BridgedModel:
    """The best model of a run."""
    assert result.model is not None and result.best is not None
    return BridgedModel(result.model, result, result.best.config)


class Bridged:
    """An eval_func of Neural Compressor: it may take the model for one of the framework's own."""

    def __init__(self, eval_func: EvalFunc) -> None:
        if not callable(eval_func):
            raise SettingsError(f"eval_func must be a function of the model that returns a number, not {eval_func!r}")
        self._eval_func = eval_func

    def __call__(self, model: ModelLike) -> Any:
        return self._eval_func(BridgedModel(model))


def metric_function(metric: Any, dataloader: Any) -> EvalFunc | None:
    """An eval_func from a metric (`reset`, `update`, `result`) and (input, label) pairs; None without either."""
    if metric is None or dataloader is None:
        if metric is not None or dataloader is not None:
            raise SettingsError("eval_metric and eval_dataloader go together; or give an eval_func")
        return None

    def score(model: ModelLike) -> Any:
        metric.reset()
        for inputs, labels in dataloader:
            metric.update(model(inputs), labels)
        return metric.result()

    return score


def _workspace(given: PlainMapping | str | os.PathLike[str], settings: PlainMapping) -> dict[str, Path]:
    """A dated folder where scripts look for it, unless another was named."""
    named = [*settings, *(given if isinstance(given, Mapping) else ())]
    if "workspace" in named or "resume" in named:
        return {}
    stamp = datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
    folder, count = Path(ROOT, stamp), 1
    while folder.exists():
        count += 1
        folder = Path(ROOT, f"{stamp}_{count}")
    return {"workspace": folder}
