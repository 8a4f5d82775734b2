"""`experimental.Quantization(yaml)`: version 1 of Neural Compressor, which is set up by attributes."""

from __future__ import annotations

import os
from typing import Any

from quaver.api.config.load import read_settings
from quaver.errors import SettingsError
from quaver.neural_compressor.model import BridgedModel
from quaver.neural_compressor.quantization import metric_function, quantized
from quaver.types import EvalFunc, ModelLike, PlainMapping

_SET = ("model", "calib_dataloader", "eval_func", "eval_dataloader", "metric")


class Best:
    """What a script reads of the strategy when the run is over: `strategy.best_qmodel.q_config["quant_cfg"]`."""

    def __init__(self, best_qmodel: BridgedModel) -> None:
        self.best_qmodel = best_qmodel


class Quantization:
    """A run that is set up by attributes and started by `fit()`.

    Attributes:
        model: the float model.
        calib_dataloader: typical inputs; `calib_dataloader` of `quaver.fit`.
        eval_func: scores a model; or `metric` and `eval_dataloader`. Without them nothing is evaluated.
        strategy: after `fit()`, what holds the best model.
    """

    def __init__(self, conf: str | os.PathLike[str] | PlainMapping | None = None) -> None:
        self._settings = {} if conf is None else read_settings(conf)
        self.model: ModelLike = None
        self.calib_dataloader: Any = None
        self.eval_dataloader: Any = None
        self.metric: Any = None
        self.eval_func: EvalFunc | None = None
        self.strategy: Best | None = None

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in (*_SET, "strategy") and not name.startswith("_"):
            raise SettingsError(f"Quantization has no {name!r}; it has: {', '.join(_SET)}")
        super().__setattr__(name, value)

    def fit(self) -> BridgedModel:
        """Run it; the best model."""
        if self.model is None:
            raise SettingsError("set `quantizer.model` before fit(): the float model")
        eval_func = self.eval_func or metric_function(self.metric, self.eval_dataloader)
        found = quantized(self.model, self._settings, self.calib_dataloader, eval_func, {})
        self.strategy = Best(found)
        return found

    __call__ = fit
