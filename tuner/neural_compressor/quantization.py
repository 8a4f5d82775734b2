"""`quantization.fit` of Neural Compressor, on `quaver.fit`."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from quaver.api import TuneResult
from quaver.api import fit as quaver_fit
from quaver.api.workspace import NEURAL_COMPRESSOR_ROOT
from quaver.errors import SettingsError
from quaver.neural_compressor.config import PostTrainingQuantConfig
from quaver.neural_compressor.model import BridgedModel
from quaver.neural_compressor.run_context import RunContext, current_run
from quaver.types import CalibrationData, EvalFunc, ModelLike, PlainMapping

# Strategies that search only quantized choices in Neural Compressor.
_WITHOUT_FALLBACK = ("random", "exhaustive")


def fit(
    model: ModelLike,
    conf: PostTrainingQuantConfig,
    calib_dataloader: CalibrationData = None,
    calib_func: Callable[..., Any] | None = None,
    eval_func: EvalFunc | None = None,
    eval_dataloader: CalibrationData = None,
    eval_metric: Any = None,
    **settings: Any,
) -> BridgedModel:
    """Quantize a model, or tune it if there is an `eval_func`, or a metric and its dataloader.

    `settings` are those of `quaver.fit`. The returned model has `save`, `model`, `q_config` and `result`.
    """
    if calib_func is not None:
        raise SettingsError("calib_func is not supported: pass its data as calib_dataloader")
    if not isinstance(conf, PostTrainingQuantConfig):
        raise SettingsError(f"conf must be a PostTrainingQuantConfig, not {type(conf).__name__}")
    eval_func = eval_func or metric_function(eval_metric, eval_dataloader)
    return quantized(model, conf.settings, calib_dataloader, eval_func, settings)


def quantized(
    model: ModelLike,
    config: PlainMapping | str,
    data: CalibrationData,
    eval_func: EvalFunc | None,
    settings: PlainMapping,
) -> BridgedModel:
    """Run `quaver.fit` and wrap the best model. Without an eval_func every op that the rules allow is quantized."""
    score = None if eval_func is None else Bridged(eval_func)
    keywords = {**_workspace(config, settings), **_strategy(config, eval_func), **settings}
    token = current_run.set(RunContext(model, data, config if isinstance(config, Mapping) else {}))
    try:
        result = quaver_fit(model, config, calib_dataloader=data, eval_func=score, **keywords)
    finally:
        current_run.reset(token)
    if result.model is None or result.best is None:
        raise SettingsError(f"the run produced no model: {result}")
    if result.met is False:
        warnings.warn(f"no model meets the criterion; this is the best one: {result}", UserWarning, stacklevel=3)
    return bridged(result)


def bridged(result: TuneResult) -> BridgedModel:
    """Return the best model of a run."""
    assert result.model is not None and result.best is not None
    return BridgedModel(result.model, result, result.best.config)


class Bridged:
    """An eval_func of Neural Compressor, which may use the model like one of the framework's own."""

    def __init__(self, eval_func: EvalFunc) -> None:
        if not callable(eval_func):
            raise SettingsError(f"eval_func must be a function of the model that returns a number, not {eval_func!r}")
        self._eval_func = eval_func

    def __call__(self, model: ModelLike) -> Any:
        return self._eval_func(BridgedModel(model))


def metric_function(metric: Any, dataloader: Any) -> EvalFunc | None:
    """Make an eval_func from a metric (`reset`, `update`, `result`) and (input, label) pairs; None without both."""
    if metric is None:
        if dataloader is not None:
            warnings.warn(
                "eval_dataloader is not used, because there is no eval_metric: pass one, or an eval_func", stacklevel=3
            )
        return None
    if dataloader is None:
        raise SettingsError("eval_metric needs eval_dataloader: pass both, or an eval_func")

    def score(model: ModelLike) -> Any:
        metric.reset()
        for inputs, labels in dataloader:
            metric.update(model(inputs), labels)
        return metric.result()

    return score


def _strategy(config: PlainMapping | str | os.PathLike[str], eval_func: EvalFunc | None) -> dict[str, Any]:
    """Return the settings of the strategy that Neural Compressor has by default.

    If nothing is evaluated and the user chose no other strategy, all ops are quantized. `random` and `exhaustive` do
    not move ops to fp32.
    """
    chosen = config.get("strategy", "auto") if isinstance(config, Mapping) else "auto"
    if eval_func is None and chosen in ("auto", "conservative"):
        return {"strategy": "basic"}
    if chosen in _WITHOUT_FALLBACK and isinstance(config, Mapping):
        return {"strategy_options": {"fallback": False, **config.get("strategy_options", {})}}
    return {}


def _workspace(config: PlainMapping | str | os.PathLike[str], settings: PlainMapping) -> dict[str, Path]:
    """Return a dated workspace where scripts look for it, unless the settings name one."""
    named = [*settings, *(config if isinstance(config, Mapping) else ())]
    if "workspace" in named or "resume" in named:
        return {}
    stamp = datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
    folder, count = NEURAL_COMPRESSOR_ROOT / stamp, 1
    while folder.exists():
        count += 1
        folder = NEURAL_COMPRESSOR_ROOT / f"{stamp}_{count}"
    return {"workspace": folder}
