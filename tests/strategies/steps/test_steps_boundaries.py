"""Moves that save conversions between int8 and fp32."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest

from quaver.ops import FLOAT, INT8, Op, OpConfig
from quaver.probe import OpTime
from quaver.space import TuningSpace
from quaver.strategies.steps.boundaries import fewer_boundaries
from quaver.strategies.steps.tuning import TUNING
from quaver.trial import Trial, TrialState

NAMES = "abcdefgh"
SPACE = TuningSpace(Op(name, "Conv", (name,), (OpConfig(INT8), FLOAT)) for name in NAMES)
ALL_INT8 = SPACE.default_config()


class Chain:
    """A chain of ops: each takes 2 in fp32 and 1 in int8, and each border between the two costs 2."""

    def __init__(self):
        self.measured = 0

    def latency(self):
        return dict.fromkeys(NAMES, OpTime(2.0, 1.0))

    def speed(self, config):
        self.measured += 1
        int8 = [config[name].precision is INT8 for name in NAMES]
        return (16 - sum(int8) + 2 * sum(a != b for a, b in itertools.pairwise(int8))) / 16


def trial(config, met=True):
    return Trial(1, config, TrialState.COMPLETE, 0.9, 0.0, met)


def drive(start, needed, probe=None):
    """What it ends with and what it tried, if the criterion is met as long as the needed ops are in fp32."""
    search, tried, answer = fewer_boundaries(trial(start), ALL_INT8, SPACE, probe or Chain()), [], None
    while True:
        try:
            config = search.send(answer)
        except StopIteration as end:
            return end.value.config, tried
        tried.append(config)
        answer = trial(config, met=all(config[name] == FLOAT for name in needed))


def test_an_island_that_costs_more_than_it_saves_falls_back():
    best, tried = drive(ALL_INT8.fallback("a", "c"), needed="ac")
    assert best == ALL_INT8.fallback("a", "b", "c")
    assert tried[0] == best


def test_what_an_island_makes_superfluous_returns():
    best, _ = drive(ALL_INT8.fallback("a", "c", "d"), needed="ab")
    assert best == ALL_INT8.fallback("a", "b")


def test_what_is_known_to_be_needed_does_not_return():
    start = ALL_INT8.fallback("a", "b", "c")
    assert drive(start, needed="abc") == (start, [])


def test_what_breaks_the_criterion_is_not_kept():
    best, tried = drive(ALL_INT8.fallback("a", "c"), needed="abc")
    assert best == ALL_INT8.fallback("a", "b", "c")
    assert 0 < len(tried) <= TUNING.max_boundary_trials


def test_nothing_is_evaluated_that_is_not_measured_to_be_faster():
    probe = SimpleNamespace(latency=Chain().latency, speed=lambda config: 1.0)
    assert drive(ALL_INT8.fallback("a", "c"), needed="ac", probe=probe) == (ALL_INT8.fallback("a", "c"), [])


@pytest.mark.parametrize("start", [ALL_INT8, ALL_INT8.fallback(*NAMES[:-1])])
def test_no_move_leaves_nothing_in_int8(start):
    _, tried = drive(start, needed="")
    assert all(config.int8_ops for config in tried)
