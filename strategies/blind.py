"""`random` and `exhaustive`: no measurement, no ranking."""

from __future__ import annotations

import functools
import itertools
import math
import random
from collections.abc import Iterator

from quaver.ops import FLOAT, INT8, Op, OpConfig, QuantConfig
from quaver.probe import Probe
from quaver.space import TuningSpace
from quaver.strategies.base import Proposals, Strategy
from quaver.strategies.registry import register_strategy

# After so many draws without a new configuration there is none, or it is not worth waiting for.
DRAWS = 200


@register_strategy
class Random(Strategy):
    """All int8, then random configurations: a random share of the ops in fp32, the rest in random int8 choices.

    Has no end of its own but that of the space; `max_trials` and `timeout` end it.
    """

    name = "random"

    def propose(self, space: TuningSpace, probe: Probe) -> Proposals:
        """See the class."""
        chance = random.Random(self.seed)
        config = space.all_int8()
        seen: set[QuantConfig] = set()
        while config not in seen:
            seen.add(config)
            yield config
            for _ in range(DRAWS):
                share = chance.random()
                config = space.configure(functools.partial(_draw, share=share, chance=chance))
                if config not in seen and config.int8_ops:
                    break


def _draw(op: Op, share: float, chance: random.Random) -> OpConfig:
    int8 = [choice for choice in op.choices if choice.precision is INT8]
    if not int8 or (op.tunable and chance.random() < share):
        return FLOAT
    return chance.choice(int8)


@register_strategy
class Exhaustive(Strategy):
    """Every configuration, those that differ from all-int8 in the fewest ops first. For small models only."""

    name = "exhaustive"

    def propose(self, space: TuningSpace, probe: Probe) -> Proposals:
        """See the class."""
        yield from every_configuration(space)

    def worst_case(self, space: TuningSpace) -> int:
        """The size of the space."""
        return math.prod(len(op.choices) for op in space.ops)


def every_configuration(space: TuningSpace) -> Iterator[QuantConfig]:
    """All configurations by the number of ops that differ from the default; fp32 before other int8 choices."""
    default = space.all_int8()
    others = {
        op.name: sorted(
            (choice for choice in op.choices if choice != default[op.name]), key=lambda choice: choice != FLOAT
        )
        for op in space.ops
    }
    open_ops = [name for name, choices in others.items() if choices]
    for count in range(len(open_ops) + 1):
        for names in itertools.combinations(open_ops, count):
            for picks in itertools.product(*(others[name] for name in names)):
                yield default.replace(dict(zip(names, picks, strict=True)))
