"""Configurations in Neural Compressor's words: each keeps what was said, checked when it is made."""

from __future__ import annotations

from typing import Any

from quaver.api.config.load import read_settings
from quaver.errors import SettingsError
from quaver.suggestions import hint
from quaver.types import PlainMapping


class _Words:
    """What was said by keyword; nothing else is known of it."""

    known: tuple[str, ...] = ()

    def __init__(self, **words: Any) -> None:
        unknown = [name for name in words if name not in self.known]
        if unknown:
            listed = "; ".join(f"{name!r} ({hint(name, self.known)})" for name in unknown)
            raise SettingsError(f"{type(self).__name__} has no {listed}")
        self.words = {name: value for name, value in words.items() if value is not None}

    def __getattr__(self, name: str) -> Any:
        if name == "words" or name not in self.known:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return self.words.get(name)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.words.items())})"


class AccuracyCriterion(_Words):
    """`higher_is_better`, `criterion` ("relative" or "absolute") and `tolerable_loss`."""

    known = ("higher_is_better", "criterion", "tolerable_loss")


class TuningCriterion(_Words):
    """`strategy`, `strategy_kwargs`, `timeout`, `max_trials` and `objective`."""

    known = ("strategy", "strategy_kwargs", "timeout", "max_trials", "objective")


class BenchmarkConfig(_Words):
    """How a model is timed: `warmup`, `iteration`, `cores_per_instance` or `intra_num_of_threads`, `diagnosis`."""

    known = (
        "warmup", "iteration", "diagnosis", "cores_per_instance", "intra_num_of_threads", "inputs", "outputs",
        "backend", "device", "model_name", "ni_workload_name", "num_of_instance", "inter_num_of_threads",
    )  # fmt: skip

    def __init__(self, **words: Any) -> None:
        super().__init__(**words)
        several = [
            name for name in ("num_of_instance", "inter_num_of_threads") if self.words.get(name) not in (None, 1)
        ]
        if several:
            raise SettingsError(
                f"{', '.join(several)}: one model runs in one process here, on `cores_per_instance` threads; "
                "start several scripts to load a machine"
            )


class PostTrainingQuantConfig:
    """Everything that can be said of a quantization. Words that quaver has no counterpart for are named at once."""

    def __init__(
        self,
        *,
        tuning_criterion: TuningCriterion | PlainMapping | None = None,
        accuracy_criterion: AccuracyCriterion | PlainMapping | None = None,
        **words: Any,
    ) -> None:
        said = {name: value for name, value in words.items() if value is not None}
        for name, part in (("tuning_criterion", tuning_criterion), ("accuracy_criterion", accuracy_criterion)):
            found = part.words if isinstance(part, _Words) else part
            if found:
                said[name] = dict(found)
        self.words = said
        self.settings = read_settings(said)

    def __repr__(self) -> str:
        return f"PostTrainingQuantConfig({', '.join(f'{name}={value!r}' for name, value in self.words.items())})"
