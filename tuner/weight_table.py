"""The weight table of a language model: the bytes of each weight in each choice, and what the choice does to the model.

The divergence of a choice is the Kullback-Leibler divergence, in nats a token, of the model's next token from the float
model's, when only this weight is stored so. Divergences of different weights add up, so that the best choices for a
number of bytes can be computed without running a model.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from quaver.ops import OpConfig


class WeightOption(NamedTuple):
    """One way to store a weight.

    Attributes:
        picks: the choice of each op that reads the weight.
        bytes: the bytes that it takes.
        divergence: what it adds to the divergence of the model.
    """

    picks: Mapping[str, OpConfig]
    bytes: int
    divergence: float


class Assignment(NamedTuple):
    """A choice for every weight.

    Attributes:
        picks: the choice of each op.
        bytes: the bytes of all weights.
        divergence: the predicted divergence of the model.
    """

    picks: Mapping[str, OpConfig]
    bytes: int
    divergence: float


@dataclass(frozen=True)
class WeightTable:
    """All weights of a model with their options.

    Attributes:
        weights: for each weight, its options. Ops that share a weight share its options.
    """

    weights: Sequence[Sequence[WeightOption]]

    def allowed(self, choices: Mapping[str, Sequence[OpConfig]]) -> WeightTable:
        """Return the table with the options that the user's rules leave; weights without any are left out."""
        kept = (
            [option for option in options if all(pick in choices.get(name, ()) for name, pick in option.picks.items())]
            for options in self.weights
        )
        return WeightTable([options for options in kept if options])

    def largest(self) -> Assignment:
        """Return the assignment with the least divergence."""
        return _joined([min(options, key=lambda option: (option.divergence, option.bytes)) for options in self.weights])

    def smallest(self) -> Assignment:
        """Return the assignment with the fewest bytes."""
        return _joined([min(options, key=lambda option: (option.bytes, option.divergence)) for options in self.weights])

    def finest_quantized(self) -> Assignment:
        """Return the assignment of the least divergence in which each weight is quantized that can be."""
        quantized = (
            [option for option in options if any(pick.quantized for pick in option.picks.values())] or list(options)
            for options in self.weights
        )
        return WeightTable(list(quantized)).largest()

    def in_fp32(self) -> Assignment:
        """Return the assignment with the most bytes."""
        return _joined([max(options, key=lambda option: option.bytes) for options in self.weights])

    def within_bytes(self, limit: float) -> Assignment | None:
        """Return the assignment of the least divergence within a number of bytes; None if there is none.

        It follows the convex hull of each weight's options: the step that removes most divergence for its bytes comes
        first. Steps that do not fit are skipped, so that small weights fill what is left.
        """
        hulls = [_hull(options) for options in self.weights]
        place = [0] * len(hulls)
        total = sum(hull[0].bytes for hull in hulls)
        if total > limit:
            return None
        steps = sorted(
            (_slope(before, after), index, step)
            for index, hull in enumerate(hulls)
            for step, (before, after) in enumerate(itertools.pairwise(hull))
        )
        for _, index, step in steps:
            more = hulls[index][step + 1].bytes - hulls[index][step].bytes
            if place[index] == step and total + more <= limit:
                place[index], total = step + 1, total + more
        return _joined([hull[at] for hull, at in zip(hulls, place, strict=True)])

    def within_divergence(self, limit: float) -> Assignment:
        """Return the assignment of the fewest bytes with at most this divergence; the least divergence if none has."""
        low, high = self.smallest(), self.largest()
        if low.divergence <= limit:
            return low
        best = high
        least, most = low.bytes, high.bytes
        while most - least > max(high.bytes // _STEPS, 1):
            middle = self.within_bytes((least + most) // 2)
            if middle is not None and middle.divergence <= limit:
                best, most = middle, (least + most) // 2
            else:
                least = (least + most) // 2
        return best

    def curve(self, points: int) -> list[Assignment]:
        """Return assignments from the fewest bytes to the least divergence, in equal steps of bytes."""
        least, most = self.smallest().bytes, self.largest().bytes
        limits = [least + (most - least) * step // max(points - 1, 1) for step in range(points)]
        found = [assignment for limit in limits if (assignment := self.within_bytes(limit)) is not None]
        return list({assignment.bytes: assignment for assignment in found}.values())


# Bytes are searched to this part of the whole. Judgement: a thousandth of a model is less than one of its weights.
_STEPS = 4096


def _hull(options: Sequence[WeightOption]) -> list[WeightOption]:
    """Return the options on the lower convex hull of bytes and divergence, the fewest bytes first."""
    hull: list[WeightOption] = []
    for option in sorted(options, key=lambda option: (option.bytes, option.divergence)):
        if hull and option.divergence >= hull[-1].divergence:
            continue
        while len(hull) > 1 and _slope(hull[-1], option) <= _slope(hull[-2], hull[-1]):
            hull.pop()
        hull.append(option)
    return hull


def _slope(before: WeightOption, after: WeightOption) -> float:
    """Return the change of divergence for each further byte; it is negative, and most negative for the best step."""
    return (after.divergence - before.divergence) / max(after.bytes - before.bytes, 1)


def _joined(options: Sequence[WeightOption]) -> Assignment:
    picks = {name: pick for option in options for name, pick in option.picks.items()}
    return Assignment(picks, sum(option.bytes for option in options), sum(option.divergence for option in options))
