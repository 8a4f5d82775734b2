"""A strategy whose every word is listened to, for faults that a loop would not see or would blame on itself."""

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


class Broken(Exception):
    """What a strategy did wrong."""


@dataclass
class StrictStrategy(Strategy):
    """A strategy whose every proposal is looked at."""

    inner: Strategy

    def propose(self, space: TuningSpace, probe: Probe) -> Proposals:
        try:
            proposals = self.inner.propose(space, StrictProbe(probe))
        except Exception as error:
            raise Broken(f"propose breaks with {_told(error)}") from error
        if not isinstance(proposals, Generator):
            raise Broken(f"propose must be a generator (`yield` each configuration), but it returns {proposals!r:.80}")
        answer: Any = None
        try:
            while True:
                try:
                    asked = proposals.send(answer)
                except StopIteration:
                    return
                except Exception as error:
                    sent = f"a list of {len(answer)} trials" if isinstance(answer, list) else _described(answer)
                    raise Broken(f"it breaks when it is sent {sent}, with {_told(error)}") from error
                if isinstance(asked, Sequence) and not asked:
                    raise Broken("it proposes an empty list, to which there is no answer")
                answer = yield asked
        finally:
            try:
                proposals.close()
            except Exception as error:
                raise Broken(f"it does not let itself be closed: {_told(error)}") from error


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _described(answer: Trial | None) -> str:
    if answer is None:
        return "nothing, which starts it"
    return "a failed trial, which has no score and no loss" if answer.failed else "a trial"


class StrictProbe(Probe):
    """A probe that has nothing but what `Probe` promises."""

    __slots__ = ("__probe",)

    def __init__(self, probe: Probe) -> None:
        self.__probe = probe

    def sensitivity(self, config: QuantConfig | None = None) -> Mapping[str, float]:
        return self.__probe.sensitivity(config)

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

    def size(self, config: QuantConfig) -> float:
        return self.__probe.size(config)

    def speed(self, config: QuantConfig) -> float:
        return self.__probe.speed(config)

    def inspect(self, config: QuantConfig, ops: Sequence[str]) -> Mapping[str, Observed]:
        return self.__probe.inspect(config, ops)
