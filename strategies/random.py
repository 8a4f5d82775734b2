"""`random`: no measurement, no ranking."""

from __future__ import annotations

import functools
import random
from collections.abc import Iterator

from quaver.ops import FLOAT, Op, OpConfig, QuantConfig
from quaver.probe import Probe
from quaver.space import TuningSpace
from quaver.strategies.base import Proposals, Strategy
from quaver.strategies.registry import register_strategy
from quaver.strategies.steps.search import stream

# Draws without a new configuration before the strategy ends (judgement).
DRAWS = 200


@register_strategy
class Random(Strategy):
    """Propose the default configuration, then random ones.

    A random share of the ops runs in fp32, the others in random int8 choices, the same share of these repaired. It ends
    with the tuning space, or with `max_trials` or `timeout`.
    """

    name = "random"

    def propose(self, space: TuningSpace, probe: Probe) -> Proposals:
        """Propose configurations as described in the class."""
        yield from stream(_drawn(space, random.Random(self.seed)), self.width)


def _drawn(space: TuningSpace, rng: random.Random) -> Iterator[QuantConfig]:
    config = space.default_config()
    seen: set[QuantConfig] = set()
    while config not in seen:
        seen.add(config)
        yield config
        for _ in range(DRAWS):
            share = rng.random()
            config = space.configure(functools.partial(_draw, share=share, rng=rng))
            if config not in seen and config.quantized_ops:
                break


def _draw(op: Op, share: float, rng: random.Random) -> OpConfig:
    quantized = op.quantized_choices
    if not quantized or (op.tunable and rng.random() < share):
        return FLOAT
    pick = rng.choice(quantized)
    return op.repaired(pick, rng.choice(op.repairs)) if op.repairs and rng.random() < share else pick
