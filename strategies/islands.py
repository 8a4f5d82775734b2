"""Small islands of int8 between fp32 ops, which cost more in conversions than they save."""

from __future__ import annotations

import itertools

from quaver.ops import INT8, QuantConfig
from quaver.probe import Probe
from quaver.space import TuningSpace
from quaver.strategies.starting import CLEARLY_FASTER

# Each island costs a measurement; those that save least are looked at first.
MOST = 16


def without_islands(config: QuantConfig, space: TuningSpace, probe: Probe) -> QuantConfig:
    """The configuration with islands of int8 ops in fp32 as well, where that makes the whole model faster.

    More fp32 hardly costs accuracy, so one evaluation tells whether the result holds. Islands are runs of int8 ops in
    graph order; what lies before the first fp32 op and behind the last one counts too.
    """
    if not config.fp32_ops:
        return config
    times = probe.latency()
    islands = sorted(_islands(config, space), key=lambda names: sum(times[name].saved for name in names))
    best, speed = config, probe.speed(config)
    for names in islands[:MOST]:
        candidate = best.fallback(*names)
        if candidate.int8_ops:
            measured = probe.speed(candidate)
            if measured < CLEARLY_FASTER * speed:
                best, speed = candidate, measured
    return best


def _islands(config: QuantConfig, space: TuningSpace) -> list[list[str]]:
    runs = itertools.groupby(space.ops, key=lambda op: config[op.name].precision is INT8 and op.tunable)
    return [[op.name for op in run] for int8, run in runs if int8]
