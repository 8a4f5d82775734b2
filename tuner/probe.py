"""Probes: what a strategy may measure without calling eval_func."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from quaver.ops import QuantConfig
from quaver.time_model import TimeModel
from quaver.types import Array
from quaver.weight_table import WeightTable


class OpTime(NamedTuple):
    """The seconds of one op in one inference."""

    fp32: float
    int8: float

    @property
    def saved(self) -> float:
        """The seconds that int8 saves; negative where it is slower."""
        return self.fp32 - self.int8


class Observed(NamedTuple):
    """The output of one op on each batch of probe samples, in the float model and in a configuration."""

    fp32: list[Array]
    quantized: list[Array]


class Probe(ABC):
    """Label-free measurements on a few calibration samples.

    Each is measured once and stored in the history, so that a resumed run decides by the same figures.
    """

    @property
    def has_samples(self) -> bool:
        """True if there are samples to measure on. Otherwise errors are those of weights, and times are unknown."""
        return True

    @abstractmethod
    def sensitivity(self, config: QuantConfig | None = None) -> Mapping[str, float]:
        """Return, for each op, the relative error at the model's outputs when only this op is quantized.

        It runs as in `config` where it is quantized there, otherwise in its default choice.
        """

    @abstractmethod
    def mse(self) -> Mapping[str, float]:
        """Return, for each op, the squared error that it adds to its output in its default choice; one pass for all.

        Ops are fed with float inputs: errors of the ops before do not count.
        """

    @abstractmethod
    def local_error(self, config: QuantConfig | None = None) -> Mapping[str, float]:
        """Return, for each op, its own relative error when fed with float inputs; all ops in one pass.

        With `config` only the ops that it quantizes, as in it; otherwise all ops in their default choice.
        """

    @abstractmethod
    def latency(self) -> Mapping[str, OpTime]:
        """Return, for each op, its seconds in fp32 and in its default choice."""

    @abstractmethod
    def output_error(self, config: QuantConfig) -> float:
        """Return the relative error at the model's outputs of a whole configuration."""

    def output_errors(self, configs: Sequence[QuantConfig]) -> list[float]:
        """Return the output errors of several configurations, measured in parallel if there are workers."""
        return [self.output_error(config) for config in configs]

    @abstractmethod
    def time_model(self, config: QuantConfig) -> TimeModel:
        """Return the times of ops in fp32 and as in `config`, with the costs of conversions between the two."""

    def time_model_beside(self, config: QuantConfig, float_config: QuantConfig) -> TimeModel:
        """Return the times of ops as in `float_config`, where fewer bits may be float, too, and as in `config`."""
        return self.time_model(config)

    def speeds(self, configs: Sequence[QuantConfig]) -> list[float]:
        """Return the latencies of several configurations, measured interleaved so that they can be compared."""
        return [self.speed(config) for config in configs]

    @abstractmethod
    def speed(self, config: QuantConfig) -> float:
        """Return the latency of a whole configuration relative to the fp32 model's, both measured interleaved."""

    @abstractmethod
    def size(self, config: QuantConfig) -> float:
        """Return the size of the model file of a whole configuration relative to the fp32 model's."""

    @abstractmethod
    def inspect(self, config: QuantConfig, ops: Sequence[str]) -> Mapping[str, Observed]:
        """Return the output tensors of chosen ops, for strategies that judge them themselves. They are not stored."""

    def weight_table(self) -> WeightTable | None:
        """Return the bytes and the divergence of each choice for the weights of a language model; None for others."""
        return None

    def divergence(self, config: QuantConfig) -> float:
        """Return the divergence of a configuration of a language model, in nats a token; see `quaver.weight_table`."""
        return self.output_error(config)

    def ranking(self) -> list[str]:
        """Return the ops, the most sensitive first. Ties keep graph order."""
        errors = self.sensitivity()
        return sorted(errors, key=lambda name: -errors[name])
