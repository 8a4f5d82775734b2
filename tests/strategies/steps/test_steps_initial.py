"""Which of the measured mixtures the search begins with."""

from __future__ import annotations

import itertools
from typing import Any

from quaver.ops import FLOAT, INT8, Op, OpConfig, QuantConfig
from quaver.space import TuningSpace
from quaver.strategies.steps.initial import ERROR_BAR, TIE, fastest

SPACE = TuningSpace([Op(name, "Conv", (name,), (OpConfig(INT8), FLOAT)) for name in "abcd"])
ALL = SPACE.all_int8()
THREE, TWO, ONE = ALL.fallback("a"), ALL.fallback("a", "b"), ALL.fallback("a", "b", "c")


class Errors:
    """A probe of ops whose errors add up."""

    def output_error(self, config: QuantConfig) -> float:
        return float(config.reduced_count)


PROBE: Any = Errors()


def first(*seconds: float) -> QuantConfig:
    """Return the first choice among mixtures of four, three, two and one int8 ops with these latencies."""
    return fastest(dict(zip((ALL, THREE, TWO, ONE), seconds, strict=False)), PROBE)[0]


def test_ops_that_save_nothing_are_given_up_for_accuracy() -> None:
    assert first(0.50, 0.50, 0.52) == THREE
    assert first(0.50, 0.50, 0.50) == TWO
    assert first(0.50, 0.60, 0.60) == ALL


def test_the_fastest_comes_second_where_it_is_another() -> None:
    assert fastest({ALL: 0.500, THREE: 0.505}, PROBE) == [THREE, ALL]


def test_noise_does_not_choose_between_mixtures_of_a_small_gain() -> None:
    noise = (1 - ERROR_BAR / 2.1, 1.0, 1 + ERROR_BAR / 2.1)
    assert {first(0.97 * one, 0.97 * other) for one, other in itertools.product(noise, noise)} == {THREE}


def test_noise_does_not_choose_where_no_mixture_is_faster_than_fp32() -> None:
    noise = (1 - ERROR_BAR / 2.1, 1.0, 1 + ERROR_BAR / 2.1)
    for one, other, third in itertools.product(noise, noise, noise):
        assert fastest({ALL: 1.045 * one, TWO: 1.045 * other, ONE: 1.045 * third}, PROBE)[0] == ALL
        assert fastest({ALL: 1.045 * one, THREE: 1.045 * other}, PROBE)[0] == ALL


def test_what_is_clearly_slower_than_others_is_not_taken_though_nothing_is_faster_than_fp32() -> None:
    assert first(1.2, 1.01 * TIE, 1.01) == THREE
