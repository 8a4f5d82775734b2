"""A quantized model with the attributes that Neural Compressor's scripts read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from quaver.adapters import Model
from quaver.api import TuneResult
from quaver.ops import OpConfig, QuantConfig
from quaver.types import PlainDict


class BridgedModel:
    """Call it, save it, or take it for what the framework has: whatever is not found here is asked of that.

    Attributes:
        result: the `TuneResult` of the run that made it; None if there was none.
    """

    def __init__(self, model: Model, result: TuneResult | None = None, config: QuantConfig | None = None) -> None:
        self._model, self.result, self._config = model, result, config

    def __call__(self, *args: Any, **inputs: Any) -> Any:
        """Run it."""
        return self._model(*args, **inputs)

    forward = __call__

    @property
    def model(self) -> BridgedModel:
        """Itself: scripts of version 1 take `.model` of what `fit` returned, those of version 2 do not."""
        return self

    @property
    def q_config(self) -> PlainDict:
        """How each op runs: `q_config["quant_cfg"]` names what was excluded, and `"op"` has all of them."""
        if self._config is None:
            return {}
        quantized = [pick for pick in self._config.values() if pick.quantized]
        fine = any(pick.granularity == "per_channel" for pick in quantized)
        cfg = {
            "excluded_symbols": list(self._config.fp32_ops),
            "quantized_dtype": "auto",
            "quantize_mode": "smart",
            "quantize_granularity": "channel-wise" if fine else "tensor-wise",
        }
        return {"quant_cfg": cfg, "op": {name: as_words(pick) for name, pick in self._config.items()}}

    def save(self, path: str | Path) -> Path:
        """Write it to a file; a name without an ending gets that of the framework."""
        given = Path(path)
        return self._model.save(given if given.suffix else given.with_name(given.name + self._model.suffix))

    def export(self, prefix: str | Path, *args: Any, **more: Any) -> Any:
        """As the framework exports its models, if it does; else as `save`."""
        own = getattr(self._model, "export", None)
        return self.save(prefix) if own is None else own(prefix, *args, **more)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        own = getattr(self._model, name, None)
        return getattr(self._model.model, name) if own is None else own


def as_words(pick: OpConfig) -> PlainDict:
    """How an op runs, in the words of `op_name_dict`."""
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
