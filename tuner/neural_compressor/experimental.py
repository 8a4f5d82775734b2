"""`experimental.Quantization(yaml)` of Neural Compressor 1.x, which is configured through attributes."""

from __future__ import annotations

import os
from typing import Any

from quaver.api.config.load import read_settings
from quaver.errors import SettingsError
from quaver.neural_compressor.absent import absent_names
from quaver.neural_compressor.model import BridgedModel
from quaver.neural_compressor.quantization import metric_function, quantized
from quaver.neural_compressor.settings_view import SettingsView
from quaver.types import EvalFunc, ModelLike, PlainMapping

_ATTRIBUTES = ("model", "calib_dataloader", "eval_func", "eval_dataloader", "metric")


class Best:
    """The finished strategy, from which scripts read `strategy.best_qmodel.q_config["quant_cfg"]`."""

    def __init__(self, best_qmodel: BridgedModel) -> None:
        self.best_qmodel = best_qmodel


class Quantization:
    """A run that is configured through attributes and started by `fit()`.

    Attributes:
        model: the float model.
        calib_dataloader: calibration data, as for `quaver.fit`.
        eval_func: scores a model; or set `metric` and `eval_dataloader`. Without any, nothing is evaluated.
        strategy: after `fit()`, the holder of the best model.
        cfg: the settings by their sections in the file: `cfg.tuning.strategy.name = "mse"`.
    """

    def __init__(self, conf: str | os.PathLike[str] | PlainMapping | None = None) -> None:
        self._settings = {} if conf is None else dict(read_settings(conf))
        self.model: ModelLike = None
        self.calib_dataloader: Any = None
        self.eval_dataloader: Any = None
        self.metric: Any = None
        self.eval_func: EvalFunc | None = None
        self.strategy: Best | None = None

    @property
    def cfg(self) -> SettingsView:
        """Return the settings, which can be changed between runs."""
        return SettingsView(self._settings)

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in (*_ATTRIBUTES, "strategy") and not name.startswith("_"):
            raise SettingsError(f"Quantization has no {name!r}; it has: {', '.join(_ATTRIBUTES)}")
        super().__setattr__(name, value)

    def fit(self) -> BridgedModel:
        """Run the tuning and return the best model."""
        if self.model is None:
            raise SettingsError("set `quantizer.model` to the float model before fit()")
        eval_func = self.eval_func or metric_function(self.metric, self.eval_dataloader)
        model = quantized(self.model, self._settings, self.calib_dataloader, eval_func, {})
        self.strategy = Best(model)
        return model

    __call__ = fit


__getattr__ = absent_names(__name__)
