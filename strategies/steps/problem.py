"""The search problem of `auto`: the choices of the ops, what is known of them, and the candidates that follow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from quaver.ops import FLOAT, Op, OpConfig, QuantConfig
from quaver.probe import Probe
from quaver.space import TuningSpace
from quaver.strategies.steps.alternatives import Alternatives, alternatives, families, family, in_family, quantize_all
from quaver.strategies.steps.pareto_front import fallbacks
from quaver.strategies.steps.search import Search
from quaver.strategies.steps.tuning import TUNING
from quaver.time_model import TimeModel
from quaver.trial import Trial

Speeds: TypeAlias = dict[QuantConfig, float]
"""The times of configurations relative to fp32, predicted or measured."""


@dataclass(frozen=True, slots=True)
class Base:
    """The configuration that failed and that the search continues from.

    Attributes:
        config: the configuration.
        sensitivity: what each of its ops does to the outputs by itself.
        whole: all ops quantized, in the families of `config`.
        model: the times of the ops of `whole`; None where time does not matter.
        other: less sensitive choices for its most sensitive ops; None if there are none.
    """

    config: QuantConfig
    sensitivity: Mapping[str, float]
    whole: QuantConfig
    model: TimeModel | None
    other: Alternatives | None

    def ranking_of(self, config: QuantConfig) -> Mapping[str, float]:
        """Return the sensitivity of the ops of `config`: this configuration, or the one with other choices."""
        return self.sensitivity if self.other is None or config == self.config else self.other.sensitivity


@dataclass(frozen=True, slots=True)
class Problem:
    """The problem to search.

    Attributes:
        space: the choices of the ops.
        probe: measures without labels.
        timed: True if the objective rewards speed and there are samples to measure it on.
        trials: all trials so far, in their order.
    """

    space: TuningSpace
    probe: Probe
    timed: bool
    trials: list[Trial] = field(default_factory=list)

    def base(self, config: QuantConfig) -> Base:
        """Probe what the search needs to know of a configuration that failed."""
        sensitivity = self.probe.sensitivity(config)
        whole = quantize_all(config, self.space)
        model = self.probe.time_model(whole) if self.timed else None
        other = alternatives(config, sensitivity, self.space, self.probe, model)
        return Base(config, sensitivity, whole, model, other)

    def add_time_savers(self, config: QuantConfig, whole: QuantConfig) -> QuantConfig:
        """Quantize the ops that save time, also those that stage 1 gave up for accuracy."""
        model, free = self.probe.time_model(whole), self.space.able_to_fall_back(whole)
        quickest = model.fastest(whole, free)
        return config.replace({name: quickest[name] for name in config.fp32_ops if quickest[name].quantized})

    def less_sensitive_variants(self, met: Trial, config: QuantConfig) -> Search:
        """Replace fp32 by another quantized choice with far less output error, where one exists and is faster."""
        best, float_config = met, self.space.all_fp32()
        for name in [name for name in config.quantized_ops if met.config[name] == FLOAT]:
            usual = config[name]
            choices = self._choices_like(self.space[name], usual)
            errors = {choice: self.probe.output_error(float_config.replace({name: choice})) for choice in choices}
            for choice in sorted(errors, key=lambda choice: errors[choice]):
                changed = best.config.replace({name: choice})
                if errors[choice] >= TUNING.replacement_error * errors[usual]:
                    break
                if self.timed and self.probe.speed(changed) >= self.probe.speed(best.config):
                    continue
                trial: Trial = yield changed
                best = trial if trial.met else best
                break
        return best

    def _choices_like(self, op: Op, usual: OpConfig) -> list[OpConfig]:
        """Return the usual choice of an op, and others in its place: details, families, repairs."""
        details = [
            choice for choice in op.quantized_choices if (choice.mode, choice.scheme) == (usual.mode, usual.scheme)
        ]
        others = [in_family(op, wanted, usual) for wanted in families(self.space) if wanted != family(usual)]
        repaired = [changed for repair in op.repairs if (changed := op.repaired(usual, repair)) != usual]
        return [choice for choice in (usual, *details, *others, *repaired) if choice is not None]


def front_candidates(base: Base, model: TimeModel) -> Speeds:
    """Return all that may be tried after `base` failed, with predicted times: fallbacks, other choices, and both."""
    config, other = base.config, base.other
    candidates = fallbacks(config, base.sensitivity, model)
    if other is not None and other.model is not None:
        steps = TUNING.front_points // 2
        candidates |= {step: _with_times_of(other, step, model).relative(step) for step in other.steps(config, steps)}
        candidates |= fallbacks(other.config, other.sensitivity, other.model, steps)
    return candidates


def _with_times_of(other: Alternatives, config: QuantConfig, model: TimeModel) -> TimeModel:
    """Return the times of ops, with those of `other` for the ops that run so in a configuration."""
    assert other.model is not None
    seconds = {name: other.model.quantized[name] for name in other.changed if config[name] == other.config[name]}
    return replace(model, quantized={**model.quantized, **seconds})


def restyle_measured(speeds: Mapping[QuantConfig, float], config: QuantConfig, whole: QuantConfig) -> Speeds:
    """Return the measured mixed-precision configs, with ops as in `config`, or as in `whole` where it is fp32."""
    usual = whole.replace({name: config[name] for name in config.quantized_ops})
    return {usual.fallback(*measured.fp32_ops): seconds for measured, seconds in speeds.items()}
