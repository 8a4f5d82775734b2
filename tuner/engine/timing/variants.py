"""The ways in which ops run that take different times, and what they take in each, from a few profiles.

An op takes another time in each precision and mode. Besides, what one kernel does together with the op before it takes
no time in fp32, as a HardSwish behind a convolution; but it does once that is reduced and this is not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from quaver.engine.timing.time_model import Seconds, mixtures, put_together, split_fused
from quaver.ops import MODES, OpConfig, QuantConfig
from quaver.space import TuningSpace
from quaver.time_model import Edge, TimeModel

# What an op in fp32 takes that is in the kernel of another one, once that is reduced.
APART = "fp32 apart"


def way(choice: OpConfig) -> str:
    """What a reduced choice has in common with others that take as long: "int8", "int8 dynamic", ..."""
    return str(choice.precision) if choice.mode == MODES[0] else f"{choice.precision} {choice.mode}"


@dataclass(frozen=True, slots=True)
class Plan:
    """The models that are timed to learn what ops take.

    Attributes:
        space: of all choices.
        alone: the ops that take no time in fp32 as long as the op before them is not reduced.
    """

    space: TuningSpace
    alone: tuple[str, ...] = ()

    @property
    def default_config(self) -> QuantConfig:
        """All ops in their default choice."""
        return self.space.default_config()

    @property
    def profiled(self) -> list[QuantConfig]:
        """What is profiled besides the float model, the default one first; all are timed as a whole, too."""
        found = dict.fromkeys([self.default_config, *self._ways().values()])
        return [*found, *([self.default_config.fallback(*self.alone)] if self.alone else [])]

    @property
    def timed(self) -> list[QuantConfig]:
        """What is only timed as a whole: it tells what conversions take."""
        return mixtures(self.default_config)

    @property
    def fingerprints(self) -> list[str]:
        """Of what is profiled, to know it again."""
        return [config.fingerprint for config in self.profiled]

    def put_together(
        self, profiles: Sequence[Seconds], whole: Sequence[float], between: tuple[Edge, ...]
    ) -> tuple[TimeModel, dict[str, Seconds]]:
        """The time model of the default choices, and seconds of ops in other ways.

        Args:
            profiles: seconds of each op in the float model and in what is `profiled`, in this order.
            whole: seconds of the same models by the clock, then of what is `timed`.
            between: the tensors between ops.
        """
        configs = self.profiled
        scaled = [_scaled(one, seconds) for one, seconds in zip(profiles, whole, strict=False)]
        fp32, *others = _with_same_rest(scaled)
        taken = dict(zip(configs, others, strict=True))
        known: dict[str, Seconds] = {
            name: {op: taken[config][op] for op in config.quantized_ops if way(config[op]) == name}
            for name, config in self._ways().items()
        }
        if self.alone:
            known[APART] = {name: scaled[-1][name] for name in self.alone}
        seconds = [*whole[:2], *whole[len(profiles) :]]
        between = split_fused(between, fp32, known.get(APART, {}))
        return put_together(fp32, taken[self.default_config], self.default_config, seconds, between), known

    def _ways(self) -> dict[str, QuantConfig]:
        """For each way that reads and writes floats, the default configuration with the ops run so that can be."""
        found: dict[str, dict[str, OpConfig]] = {}
        for op in self.space.ops:
            for choice in op.quantized_choices:
                if not choice.calibrated:
                    found.setdefault(way(choice), {}).setdefault(op.name, choice)
        return {name: self.default_config.replace(changes) for name, changes in found.items()}


def times_for(model: TimeModel, config: QuantConfig, known: Mapping[str, Seconds]) -> TimeModel:
    """The model with the times of ops as a configuration runs them; a way that nobody timed is no faster than fp32."""
    changed = {
        name: known.get(way(pick), {}).get(name, model.fp32[name])
        for name, pick in config.items()
        if pick.quantized and not pick.calibrated and name in model.fp32
    }
    return replace(model, quantized={**model.quantized, **changed}) if changed else model


def _scaled(profiled: Seconds, whole: float) -> dict[str, float]:
    """Seconds of ops such that they add up to what the clock says: the profiler has a price of its own."""
    scale = whole / (sum(profiled.values()) or 1.0)
    return {name: scale * seconds for name, seconds in profiled.items()}


def _with_same_rest(profiles: Sequence[Seconds]) -> list[dict[str, float]]:
    """What belongs to no op is the same in all; what is more in one of them is that of its ops, by their time."""
    rest = min(profile[""] for profile in profiles)
    found = []
    for profile in profiles:
        ops = sum(profile.values()) - profile[""]
        more = 1 + (profile[""] - rest) / ops if ops > 0 else 1.0
        found.append({name: more * seconds if name else rest for name, seconds in profile.items()})
    return found
