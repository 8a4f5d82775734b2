"""`exhaustive`: every configuration of the tuning space."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

from quaver.ops import FLOAT, OpConfig, QuantConfig
from quaver.probe import Probe
from quaver.space import TuningSpace
from quaver.strategies.base import Proposals, Strategy
from quaver.strategies.registry import register_strategy
from quaver.strategies.steps.search import stream


@register_strategy
class Exhaustive(Strategy):
    """Every configuration, those that differ from the default in the fewest ops first. For small models only.

    Repairs are not among them, unless rules demand them: the space would be many times as large. With `fallback=False`
    no op moves to fp32 that the default configuration quantizes.
    """

    name = "exhaustive"
    fallback = True

    def __init__(self, fallback: bool = True) -> None:
        self.fallback = fallback

    def propose(self, space: TuningSpace, probe: Probe) -> Proposals:
        """Propose configurations as described in the class."""
        yield from stream(every_configuration(space, self.fallback), self.width)

    def worst_case(self, space: TuningSpace) -> int:
        """Return the size of the space."""
        return math.prod(1 + len(choices) for choices in _alternatives(space, self.fallback).values())


def every_configuration(space: TuningSpace, fallback: bool = True) -> Iterator[QuantConfig]:
    """Yield all configurations by the number of ops that differ from the default; fp32 before other choices."""
    default, alternatives = space.default_config(), _alternatives(space, fallback)
    open_ops = [name for name, choices in alternatives.items() if choices]
    for count in range(len(open_ops) + 1):
        for names in itertools.combinations(open_ops, count):
            for picks in itertools.product(*(alternatives[name] for name in names)):
                yield default.replace(dict(zip(names, picks, strict=True)))


def _alternatives(space: TuningSpace, fallback: bool) -> dict[str, list[OpConfig]]:
    """Return the choices of each op that differ from its default, fp32 first."""
    default = space.default_config()
    return {
        op.name: sorted(
            (choice for choice in op.choices if choice != default[op.name] and (fallback or choice != FLOAT)),
            key=lambda choice: choice != FLOAT,
        )
        for op in space.ops
    }
