"""Wrappers that check every proposal of a strategy and give it a probe without extra attributes."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from quaver.ops import QuantConfig
from quaver.probe import Observed, OpTime, Probe
from quaver.space import TuningSpace
from quaver.strategies import Proposals, Strategy
from quaver.time_model import TimeModel
from quaver.trial import Trial
from quaver.weight_table import WeightTable


class ContractViolation(Exception):
    """A strategy broke its contract."""


@dataclass
class StrictStrategy(Strategy):
    """Pass on the proposals of a strategy and check each."""

    inner: Strategy

    def propose(self, space: TuningSpace, probe: Probe) -> Proposals:
        try:
            proposals = self.inner.propose(space, StrictProbe(probe))
        except Exception as error:
            raise ContractViolation(f"propose raises {_describe_error(error)}") from error
        if not isinstance(proposals, Generator):
            raise ContractViolation(
                f"propose must be a generator (`yield` each configuration), but it returned {proposals!r:.80}"
            )
        answer: Any = None
        try:
            while True:
                try:
                    proposal = proposals.send(answer)
                except StopIteration:
                    return
                except Exception as error:
                    sent = f"a list of {len(answer)} trials" if isinstance(answer, list) else _describe_trial(answer)
                    raise ContractViolation(f"when it is sent {sent}, it raises {_describe_error(error)}") from error
                if isinstance(proposal, Sequence) and not proposal:
                    raise ContractViolation("it proposes an empty list, which has no answer")
                answer = yield proposal
        finally:
            try:
                proposals.close()
            except Exception as error:
                raise ContractViolation(f"when it is closed, it raises {_describe_error(error)}") from error


def _describe_error(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _describe_trial(answer: Trial | None) -> str:
    if answer is None:
        return "None at the start"
    return "a failed trial, which has no score and no loss" if answer.failed else "a trial"


class StrictProbe(Probe):
    """A probe with the methods of `Probe` and nothing else."""

    __slots__ = ("__probe",)

    def __init__(self, probe: Probe) -> None:
        self.__probe = probe

    def sensitivity(self, config: QuantConfig | None = None) -> Mapping[str, float]:
        return self.__probe.sensitivity(config)

    def weight_table(self) -> WeightTable | None:
        return self.__probe.weight_table()

    def divergence(self, config: QuantConfig) -> float:
        return self.__probe.divergence(config)

    def mse(self) -> Mapping[str, float]:
        return self.__probe.mse()

    def local_error(self, config: QuantConfig | None = None) -> Mapping[str, float]:
        return self.__probe.local_error(config)

    def latency(self) -> Mapping[str, OpTime]:
        return self.__probe.latency()

    def output_error(self, config: QuantConfig) -> float:
        return self.__probe.output_error(config)

    def time_model(self, config: QuantConfig) -> TimeModel:
        return self.__probe.time_model(config)

    def time_model_beside(self, config: QuantConfig, float_config: QuantConfig) -> TimeModel:
        return self.__probe.time_model_beside(config, float_config)

    def size(self, config: QuantConfig) -> float:
        return self.__probe.size(config)

    def speed(self, config: QuantConfig) -> float:
        return self.__probe.speed(config)

    def inspect(self, config: QuantConfig, ops: Sequence[str]) -> Mapping[str, Observed]:
        return self.__probe.inspect(config, ops)
