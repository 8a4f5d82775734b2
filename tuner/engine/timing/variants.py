"""The variants of ops that take different times, and the times of each, from a few profiles.

An op takes another time in each precision and mode. Besides, an op that one kernel computes together with the op
before it, such as a HardSwish behind a convolution, takes no time in fp32; but it does once only that op is quantized.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from quaver.engine.timing.time_model import Seconds, make_time_model, mixed_precision_configs, split_fused
from quaver.ops import MODES, OpConfig, QuantConfig
from quaver.space import TuningSpace
from quaver.time_model import Edge, TimeModel

# The timing key of an fp32 op that is fused into the kernel of another one, once that other one is quantized.
APART = "fp32 apart"


def timing_key(choice: OpConfig) -> str:
    """Return what a quantized choice has in common with others that take as long: "int8", "int8 dynamic", ..."""
    return str(choice.precision) if choice.mode == MODES[0] else f"{choice.precision} {choice.mode}"


@dataclass(frozen=True, slots=True)
class Plan:
    """The models that are timed to learn the times of ops.

    Attributes:
        space: the choices of all ops.
        fused: the ops that take no time in fp32 as long as the op before them is not quantized.
    """

    space: TuningSpace
    fused: tuple[str, ...] = ()

    @property
    def default_config(self) -> QuantConfig:
        """All ops in their default choice."""
        return self.space.default_config()

    @property
    def profiled(self) -> list[QuantConfig]:
        """The configs to profile besides the float model, the default one first. All are timed as a whole, too."""
        configs = dict.fromkeys([self.default_config, *self._by_timing_key().values()])
        return [*configs, *([self.default_config.fallback(*self.fused)] if self.fused else [])]

    @property
    def timed(self) -> list[QuantConfig]:
        """The configs that are only timed as a whole: they tell the costs of conversions."""
        return mixed_precision_configs(self.default_config)

    @property
    def fingerprints(self) -> list[str]:
        """Return the fingerprints of the profiled configs, which identify them."""
        return [config.fingerprint for config in self.profiled]

    def make_time_model(
        self, profiles: Sequence[Seconds], whole: Sequence[float], edges: tuple[Edge, ...]
    ) -> tuple[TimeModel, dict[str, Seconds]]:
        """Return the time model of the default choices, and the seconds of ops in other variants, by timing key.

        Args:
            profiles: seconds of each op in the float model and in the `profiled` configs, in this order.
            whole: seconds of the same models by the clock, then of the `timed` configs.
            edges: the tensors between ops.
        """
        configs = self.profiled
        scaled = [_scaled(profile, seconds) for profile, seconds in zip(profiles, whole, strict=False)]
        fp32, *quantized = _with_same_rest(scaled)
        times = dict(zip(configs, quantized, strict=True))
        variants: dict[str, Seconds] = {
            key: {op: times[config][op] for op in config.quantized_ops if timing_key(config[op]) == key}
            for key, config in self._by_timing_key().items()
        }
        if self.fused:
            variants[APART] = {name: scaled[-1][name] for name in self.fused}
        seconds = [*whole[:2], *whole[len(profiles) :]]
        edges = split_fused(edges, fp32, variants.get(APART, {}))
        return make_time_model(fp32, times[self.default_config], self.default_config, seconds, edges), variants

    def _by_timing_key(self) -> dict[str, QuantConfig]:
        """Return, for each variant that reads and writes floats, the default config with that variant where offered."""
        changes: dict[str, dict[str, OpConfig]] = {}
        for op in self.space.ops:
            for choice in op.quantized_choices:
                if not choice.calibrated:
                    changes.setdefault(timing_key(choice), {}).setdefault(op.name, choice)
        return {key: self.default_config.replace(by_op) for key, by_op in changes.items()}


def times_for(model: TimeModel, config: QuantConfig, variants: Mapping[str, Seconds]) -> TimeModel:
    """Return the model with the times of the variants that a configuration uses.

    A variant that was not timed is assumed to be no faster than fp32.
    """
    changed = {
        name: variants.get(timing_key(pick), {}).get(name, model.fp32[name])
        for name, pick in config.items()
        if pick.quantized and not pick.calibrated and name in model.fp32
    }
    return replace(model, quantized={**model.quantized, **changed}) if changed else model


def _scaled(profile: Seconds, whole: float) -> dict[str, float]:
    """Scale the seconds of ops so that they add up to the time by the clock: profiling costs time itself."""
    scale = whole / (sum(profile.values()) or 1.0)
    return {name: scale * seconds for name, seconds in profile.items()}


def _with_same_rest(profiles: Sequence[Seconds]) -> list[dict[str, float]]:
    """Give all profiles the same rest, which belongs to no op; what is more goes to the ops, by their time."""
    rest = min(profile[""] for profile in profiles)
    equalized = []
    for profile in profiles:
        ops = sum(profile.values()) - profile[""]
        factor = 1 + (profile[""] - rest) / ops if ops > 0 else 1.0
        equalized.append({name: factor * seconds if name else rest for name, seconds in profile.items()})
    return equalized
