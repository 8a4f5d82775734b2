"""`random`: random configurations, without measurements or a ranking."""

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

# After this many draws without a new configuration the strategy ends. Judgement.
MAX_DRAWS = 200


@register_strategy
class Random(Strategy):
    """The default configuration, then random ones.

    A random share of the ops is in fp32, the others in random quantized choices, as large a share of them repaired.
    With `fallback=False` no op moves to fp32 that the default configuration quantizes. It ends with the space;
    `max_trials` and `timeout` end it before.
    """

    name = "random"
    fallback = True

    def __init__(self, fallback: bool = True) -> None:
        self.fallback = fallback

    def propose(self, space: TuningSpace, probe: Probe) -> Proposals:
        """Propose configurations as described in the class."""
        yield from stream(_drawn(space, random.Random(self.seed), self.fallback), self.width)


def _drawn(space: TuningSpace, rng: random.Random, fallback: bool) -> Iterator[QuantConfig]:
    config = space.default_config()
    drawn: set[QuantConfig] = set()
    while config not in drawn:
        drawn.add(config)
        yield config
        for _ in range(MAX_DRAWS):
            share = rng.random()
            config = space.configure(functools.partial(_draw, share=share, rng=rng, fallback=fallback))
            if config not in drawn and config.quantized_ops:
                break


def _draw(op: Op, share: float, rng: random.Random, fallback: bool) -> OpConfig:
    quantized = op.quantized_choices
    may_fall_back = op.tunable and (fallback or op.choices[0] == FLOAT)
    if not quantized or (may_fall_back and rng.random() < share):
        return FLOAT
    pick = rng.choice(quantized)
    return op.repaired(pick, rng.choice(op.repairs)) if op.repairs and rng.random() < share else pick
