"""What a strategy may ask that costs no call of eval_func."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from quaver.ops import QuantConfig
from quaver.time_model import TimeModel


class OpTime(NamedTuple):
    """Seconds of one op in one inference."""

    fp32: float
    int8: float

    @property
    def saved(self) -> float:
        """What int8 saves; negative where it is slower."""
        return self.fp32 - self.int8


class Observed(NamedTuple):
    """The output of one op on each kept sample batch, in the float model and in a configuration."""

    fp32: list[Any]
    quantized: list[Any]


class Probe(ABC):
    """Label-free measurements on a few calibration samples.

    Each is taken once, kept, and stored in the history, so that a resumed run decides by the same figures.
    """

    @property
    def has_samples(self) -> bool:
        """Whether there are samples to measure on. Without, errors are those of weights, and times are not known."""
        return True

    @abstractmethod
    def sensitivity(self, config: QuantConfig | None = None) -> Mapping[str, float]:
        """For each op, the relative error at the model's outputs when only this op runs in int8.

        How it runs is taken from `config` where that is int8; otherwise by its default choice.
        """

    @abstractmethod
    def mse(self) -> Mapping[str, float]:
        """For each op, the squared error that it adds to its output in the all-int8 model; one pass for all ops.

        Ops are fed with float inputs: what those before an op did is not counted against it.
        """

    @abstractmethod
    def local_error(self, config: QuantConfig | None = None) -> Mapping[str, float]:
        """For each op, its own relative error when fed with float inputs; all ops in one pass.

        How ops run is taken from `config`, for those alone that it reduces; otherwise by their default choice.
        """

    @abstractmethod
    def latency(self) -> Mapping[str, OpTime]:
        """For each op, its seconds in the fp32 and in the all-int8 model."""

    @abstractmethod
    def output_error(self, config: QuantConfig) -> float:
        """The relative error at the model's outputs of a whole configuration."""

    def output_errors(self, configs: Sequence[QuantConfig]) -> list[float]:
        """The same of several configurations, side by side where there are workers for it."""
        return [self.output_error(config) for config in configs]

    @abstractmethod
    def time_model(self, config: QuantConfig) -> TimeModel:
        """What each op takes in fp32 and as in `config`, and what conversions between the two cost."""

    def speeds(self, configs: Sequence[QuantConfig]) -> list[float]:
        """The speed of several configurations, measured in turns so that they can be compared."""
        return [self.speed(config) for config in configs]

    @abstractmethod
    def speed(self, config: QuantConfig) -> float:
        """The latency of a whole configuration as a fraction of the fp32 model's, both measured in turns."""

    @abstractmethod
    def size(self, config: QuantConfig) -> float:
        """The size of the model file of a whole configuration as a fraction of the fp32 model's."""

    @abstractmethod
    def inspect(self, config: QuantConfig, ops: Sequence[str]) -> Mapping[str, Observed]:
        """The output tensors of chosen ops, for strategies that judge them in their own way. Not kept."""

    def ranking(self) -> list[str]:
        """The ops that hurt most first, by sensitivity. Ties keep graph order."""
        errors = self.sensitivity()
        return sorted(errors, key=lambda name: -errors[name])
