"""Mixtures of reduced ops and fp32 that use a budget for the model up, with the least harm; found without labels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from quaver.ceiling import Ceiling
from quaver.ops import QuantConfig
from quaver.probe import Probe
from quaver.space import TuningSpace
from quaver.strategies.steps.front import make_front, ranked
from quaver.time_model import TimeModel

# So many of the mixtures that should do least harm are measured, all at once.
LOOKED_AT = 10
# A prediction may be off: if too few mixtures keep the budget when they are measured, others are looked for that should
# take so much of it.
SHARES = (1.0, 0.93, 0.85)
ENOUGH = 3
TINY = 1e-12
# What the sums of a prediction may be off by.
ROUNDING = 1 + 1e-9


def within_budget(start: QuantConfig, space: TuningSpace, probe: Probe, ceiling: Ceiling) -> list[QuantConfig]:
    """Mixtures of `start` and fp32 that keep the budget as far as can be told, the least error at the outputs first."""
    free = space.able_to_fall_back(start)
    harm = probe.sensitivity(start)
    limits = list(_limits(start, free, probe, ceiling))
    kept: dict[QuantConfig, None] = {}
    for share in SHARES:
        found = {start: None}
        for model, limit in limits:
            found |= dict.fromkeys(_mixtures(start, free, model, share * limit, harm))
        within = [one for one in found if all(model.predict(one) <= limit for model, limit in limits)]
        least = sorted(within, key=lambda one: sum(harm.get(name, 0.0) for name in one.reduced_ops))[:LOOKED_AT]
        kept |= dict.fromkeys(_kept(least, probe, ceiling))
        if len(kept) >= ENOUGH:
            break
    if not kept:
        return []
    errors = dict(zip(kept, probe.output_errors(list(kept)), strict=True))
    return sorted(kept, key=lambda one: errors[one])


def _limits(
    start: QuantConfig, free: Sequence[str], probe: Probe, ceiling: Ceiling
) -> Iterator[tuple[TimeModel, float]]:
    """What is limited, as a model of what each op takes of it, and how much there is of it."""
    if ceiling.latency is not None:
        model = probe.time_model(start)
        yield model, ROUNDING * ceiling.latency * (model.rest + sum(model.fp32.values()))
    if ceiling.size is not None:
        least = probe.size(start)
        more = {name: max(probe.size(start.fallback(name)) - least, 0.0) for name in free}
        yield TimeModel(more, dict.fromkeys(more, 0.0), least), ROUNDING * ceiling.size


def _mixtures(
    start: QuantConfig, free: Sequence[str], model: TimeModel, limit: float, harm: Mapping[str, float]
) -> Iterator[QuantConfig]:
    """Points of the front and prefixes of the ranking that are predicted to keep a limit, each filled up to it."""
    ranking = ranked({name: harm.get(name, 0.0) for name in free})
    longest = start
    for name in ranking:  # the longest prefix that can be paid
        longer = longest.fallback(name)
        if not longer.reduced_ops or model.predict(longer) > limit:
            break
        longest = longer
    for config in (*(point.config for point in make_front(start, free, model, harm)), longest):
        if model.predict(config) <= limit:
            yield config
            yield _filled(config, ranking, model, limit, harm)


def _filled(
    config: QuantConfig, ranking: Sequence[str], model: TimeModel, limit: float, harm: Mapping[str, float]
) -> QuantConfig:
    """With more ops in fp32, those first that take most harm away for what they cost, as long as it can be paid."""

    def worth(name: str) -> float:
        return harm.get(name, 0.0) / max(model.fp32.get(name, 0.0) - model.reduced.get(name, 0.0), TINY)

    for name in sorted((name for name in ranking if config[name].reduced), key=worth, reverse=True):
        more = config.fallback(name)
        if more.reduced_ops and model.predict(more) <= limit:
            config = more
    return config


def _kept(configs: Sequence[QuantConfig], probe: Probe, ceiling: Ceiling) -> Iterator[QuantConfig]:
    """Those that keep the budget when whole models are looked at."""
    if ceiling.size is not None:
        configs = [config for config in configs if probe.size(config) <= ceiling.size]
    speeds = probe.speeds(configs) if ceiling.latency is not None and configs else [0.0] * len(configs)
    for config, speed in zip(configs, speeds, strict=True):
        if ceiling.latency is None or speed <= ceiling.latency:
            yield config
