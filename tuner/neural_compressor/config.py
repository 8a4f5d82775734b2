"""Configuration classes of Neural Compressor. Each checks its options when it is created."""

from __future__ import annotations

from typing import Any

from quaver.api.config.load import read_settings
from quaver.errors import SettingsError
from quaver.neural_compressor.absent import absent_names
from quaver.suggestions import hint
from quaver.types import PlainMapping


class _Options:
    """Options by keyword, whose names are checked."""

    names: tuple[str, ...] = ()

    def __init__(self, **options: Any) -> None:
        unknown = [name for name in options if name not in self.names]
        if unknown:
            listed = "; ".join(f"{name!r} ({hint(name, self.names)})" for name in unknown)
            raise SettingsError(f"{type(self).__name__} has no {listed}")
        self.options = {name: value for name, value in options.items() if value is not None}

    def __getattr__(self, name: str) -> Any:
        if name == "options" or name not in self.names:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return self.options.get(name)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.options.items())})"


class AccuracyCriterion(_Options):
    """`higher_is_better`, `criterion` ("relative" or "absolute") and `tolerable_loss`."""

    names = ("higher_is_better", "criterion", "tolerable_loss")


class TuningCriterion(_Options):
    """`strategy`, `strategy_kwargs`, `timeout`, `max_trials` and `objective`."""

    names = ("strategy", "strategy_kwargs", "timeout", "max_trials", "objective")


class BenchmarkConfig(_Options):
    """Settings of a benchmark: `warmup`, `iteration`, `cores_per_instance` or `intra_num_of_threads`, `diagnosis`."""

    names = (
        "warmup", "iteration", "diagnosis", "cores_per_instance", "intra_num_of_threads", "inputs", "outputs",
        "backend", "device", "model_name", "ni_workload_name", "num_of_instance", "inter_num_of_threads",
    )  # fmt: skip

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        unsupported = [
            name for name in ("num_of_instance", "inter_num_of_threads") if self.options.get(name) not in (None, 1)
        ]
        if unsupported:
            raise SettingsError(
                f"{', '.join(unsupported)} must be 1: a benchmark runs one model in one process, on "
                "`cores_per_instance` threads; start several scripts to load a whole machine"
            )


class PostTrainingQuantConfig:
    """All options of a quantization. Options without a counterpart in quaver are refused at once, with their names."""

    def __init__(
        self,
        *,
        tuning_criterion: TuningCriterion | PlainMapping | None = None,
        accuracy_criterion: AccuracyCriterion | PlainMapping | None = None,
        **options: Any,
    ) -> None:
        chosen = {name: value for name, value in options.items() if value is not None}
        for name, part in (("tuning_criterion", tuning_criterion), ("accuracy_criterion", accuracy_criterion)):
            nested = part.options if isinstance(part, _Options) else part
            if nested:
                chosen[name] = dict(nested)
        self.options = chosen
        self.settings = read_settings(chosen)

    def __repr__(self) -> str:
        return f"PostTrainingQuantConfig({', '.join(f'{name}={value!r}' for name, value in self.options.items())})"


__getattr__ = absent_names(__name__)
