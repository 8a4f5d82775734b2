"""`exhaustive`: every configuration of the tuning space."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

from quaver.ops import FLOAT, QuantConfig
from quaver.probe import Probe
from quaver.space import TuningSpace
from quaver.strategies.base import Proposals, Strategy
from quaver.strategies.registry import register_strategy
from quaver.strategies.steps.search import stream


@register_strategy
class Exhaustive(Strategy):
    """Every configuration, those that differ from the default in the fewest ops first. For small models only.

    Repairs are not among them, unless rules demand them: the space would be many times as large.
    """

    name = "exhaustive"

    def propose(self, space: TuningSpace, probe: Probe) -> Proposals:
        """Propose configurations as described in the class."""
        yield from stream(every_configuration(space), self.width)

    def worst_case(self, space: TuningSpace) -> int:
        """Return the size of the space."""
        return math.prod(len(op.choices) for op in space.ops)


def every_configuration(space: TuningSpace) -> Iterator[QuantConfig]:
    """Yield all configurations by the number of ops that differ from the default; fp32 before other choices."""
    default = space.default_config()
    alternatives = {
        op.name: sorted(
            (choice for choice in op.choices if choice != default[op.name]), key=lambda choice: choice != FLOAT
        )
        for op in space.ops
    }
    open_ops = [name for name, choices in alternatives.items() if choices]
    for count in range(len(open_ops) + 1):
        for names in itertools.combinations(open_ops, count):
            for picks in itertools.product(*(alternatives[name] for name in names)):
                yield default.replace(dict(zip(names, picks, strict=True)))
