"""A quantized model with the attributes that Neural Compressor's scripts read."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from quaver.adapters import Model as AdapterModel
from quaver.adapters import load_unmodified
from quaver.api import TuneResult
from quaver.neural_compressor.absent import absent_names
from quaver.neural_compressor.graph_view import GraphView
from quaver.ops import OpConfig, QuantConfig
from quaver.types import ModelLike, PlainDict


class BridgedModel:
    """A model that can be called, saved, and used as the framework's own object, whose attributes it passes on.

    Attributes:
        result: the `TuneResult` of the run that made it; None if it was recovered.
    """

    def __init__(
        self, model: AdapterModel, result: TuneResult | None = None, config: QuantConfig | None = None
    ) -> None:
        self._model, self.result, self._config = model, result, config

    def __call__(self, *args: Any, **inputs: Any) -> Any:
        """Run the model."""
        return self._model(*args, **inputs)

    forward = __call__

    @property
    def model(self) -> BridgedModel:
        """Return the object itself: scripts of version 1 read `.model` of the result, those of version 2 do not."""
        return self

    @property
    def q_config(self) -> PlainDict:
        """Return how each op runs: `q_config["quant_cfg"]` lists the excluded ops, and `"op"` all of them."""
        if self._config is None:
            return {}
        quantized = [pick for pick in self._config.values() if pick.quantized]
        # MXNet is told "tensor-wise"; its convolutions have a scale per channel with either word.
        named = getattr(self._model, "quantize_granularity", None)
        is_per_channel = any(pick.granularity == "per_channel" for pick in quantized)
        cfg = {
            "excluded_symbols": list(self._config.fp32_ops),
            "quantized_dtype": "auto",
            "quantize_mode": "smart",
            "quantize_granularity": named or ("channel-wise" if is_per_channel else "tensor-wise"),
        }
        return {"quant_cfg": cfg, "op": {name: to_op_dict(pick) for name, pick in self._config.items()}}

    def save(self, path: str | Path) -> Path:
        """Write the model to a file; a name without a suffix gets the framework's.

        A TensorFlow graph becomes a .tflite, so "model.pb" is written as "model.tflite", with a warning.
        """
        target = Path(path)
        if target.suffix == ".pb" and self._model.suffix == ".tflite":
            target = target.with_suffix(".tflite")
            warnings.warn(
                f"saved as {str(target)!r}: TensorFlow has no int8 kernels, so the quantized model is for LiteRT",
                UserWarning,
                stacklevel=2,
            )
        return self._model.save(target if target.suffix else target.with_name(target.name + self._model.suffix))

    def export(self, prefix: str | Path, *args: Any, **options: Any) -> Any:
        """Export the model by the framework's own method, or save it if there is none."""
        export = getattr(self._model, "export", None)
        return self.save(prefix) if export is None else export(prefix, *args, **options)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name in GraphView.names and self._model.suffix == ".tflite":
            return getattr(GraphView(self._model), name)
        attribute = getattr(self._model, name, None)
        return getattr(self._model.model, name) if attribute is None else attribute


def load_model(model: ModelLike, **options: Any) -> BridgedModel:
    """Load a model of any form, float or quantized, unmodified; the options of Neural Compressor have no effect."""
    return model if isinstance(model, BridgedModel) else BridgedModel(load_unmodified(model))


Model = load_model
"""Neural Compressor's name: `from neural_compressor.model import Model`."""


def to_op_dict(pick: OpConfig) -> PlainDict:
    """Return how an op runs, in the format of `op_name_dict`."""
    if not pick.quantized:
        return {"activation": {"dtype": "fp32"}, "weight": {"dtype": "fp32"}}
    activation: Mapping[str, str] = {
        "dtype": str(pick.precision), "algorithm": pick.calibration, "scheme": pick.scheme, "quant_mode": pick.mode,
    }  # fmt: skip
    weight = {"dtype": str(pick.precision), "granularity": pick.granularity}
    return {
        "activation": {name: value for name, value in activation.items() if value},
        "weight": {name: value for name, value in weight.items() if value},
    }


__getattr__ = absent_names(__name__)
