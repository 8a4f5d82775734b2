"""The measured mixed-precision config that the search begins with."""

from __future__ import annotations

import itertools
from typing import Any

from quaver.ops import FLOAT, INT8, Op, OpConfig, QuantConfig
from quaver.space import TuningSpace
from quaver.strategies.steps.initial import _mixed_configs, fastest
from quaver.strategies.steps.tuning import TUNING
from quaver.time_model import TimeModel

SPACE = TuningSpace([Op(name, "Conv", (name,), (OpConfig(INT8), FLOAT)) for name in "abcd"])
ALL = SPACE.default_config()
THREE, TWO, ONE = ALL.fallback("a"), ALL.fallback("a", "b"), ALL.fallback("a", "b", "c")


class Errors:
    """A probe of ops whose errors add up."""

    def output_error(self, config: QuantConfig) -> float:
        return float(config.quantized_count)


PROBE: Any = Errors()


def first(*seconds: float) -> QuantConfig:
    """Return the first choice among configs of four, three, two and one int8 ops with these latencies."""
    return fastest(dict(zip((ALL, THREE, TWO, ONE), seconds, strict=False)), PROBE)[0]


def test_ops_that_save_nothing_are_given_up_for_accuracy() -> None:
    assert first(0.50, 0.50, 0.52) == THREE
    assert first(0.50, 0.50, 0.50) == TWO
    assert first(0.50, 0.60, 0.60) == ALL


def test_the_fastest_comes_second_where_it_is_another() -> None:
    assert fastest({ALL: 0.500, THREE: 0.505}, PROBE) == [THREE, ALL]


def test_noise_does_not_choose_between_mixtures_of_a_small_gain() -> None:
    noise = (1 - TUNING.error_bar / 2.1, 1.0, 1 + TUNING.error_bar / 2.1)
    assert {first(0.97 * one, 0.97 * other) for one, other in itertools.product(noise, noise)} == {THREE}


def test_where_little_is_saved_the_noise_of_small_models_does_not_choose() -> None:
    noise = (0.987, 1.0, 1.013)
    for saved in (0.975, 1.04):
        chosen = {first(saved * one, saved * other) for one, other in itertools.product(noise, noise)}
        assert len(chosen) == 1


def test_of_ops_that_save_about_as_much_the_last_of_the_graph_is_quantized_alone() -> None:
    """The candidate with a single op, however the times of three equal ops differ."""
    errors: Any = dict.fromkeys("abcd", 0.1)
    for saved in itertools.permutations((1.46e-4, 1.6e-4, 1.69e-4)):
        int8 = dict(zip("abcd", (2e-4, *(1e-3 - each for each in saved)), strict=True))
        model = TimeModel({"a": 1e-4} | dict.fromkeys("bcd", 1e-3), int8, rest=5e-3)
        configs = list(_mixed_configs(ALL, list("abcd"), SPACE, model, errors))
        assert configs[-1] == ALL.fallback("a", "b", "c")


def test_noise_does_not_choose_where_no_mixture_is_faster_than_fp32() -> None:
    noise = (1 - TUNING.error_bar / 2.1, 1.0, 1 + TUNING.error_bar / 2.1)
    for one, other, third in itertools.product(noise, noise, noise):
        assert fastest({ALL: 1.045 * one, TWO: 1.045 * other, ONE: 1.045 * third}, PROBE)[0] == ALL
        assert fastest({ALL: 1.045 * one, THREE: 1.045 * other}, PROBE)[0] == ALL


def test_what_is_clearly_slower_than_others_is_not_taken_though_nothing_is_faster_than_fp32() -> None:
    assert first(1.2, 1.01 * TUNING.tie, 1.01) == THREE
