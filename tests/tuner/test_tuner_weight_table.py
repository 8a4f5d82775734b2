"""The best assignments of a weight table: as good as trying all, exact in bytes, and monotone."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quaver.ops import FLOAT, INT4, INT8, OpConfig
from quaver.weight_table import WeightOption, WeightTable

EIGHT, FOUR = (OpConfig(bits, granularity="per_block", mode="weight_only") for bits in (INT8, INT4))


def table(count: int, seed: int = 0) -> WeightTable:
    rng = np.random.default_rng(seed)
    weights = []
    for at in range(count):
        size, harm = int(rng.integers(10, 40)), float(rng.lognormal())
        picks = ((FLOAT, 32, 0.0), (EIGHT, 8, harm / 250), (FOUR, 4, harm))
        weights.append([WeightOption({f"w{at}": pick}, size * bits, lost) for pick, bits, lost in picks])
    return WeightTable(weights)


def best_of_all(weights: WeightTable, limit: float) -> float:
    totals = (
        (sum(option.bytes for option in options), sum(option.divergence for option in options))
        for options in itertools.product(*weights.weights)
    )
    return min(divergence for size, divergence in totals if size <= limit)


@given(st.integers(0, 50), st.floats(0.0, 1.0))
@settings(max_examples=40, deadline=None)
def test_a_budget_is_kept_and_used_nearly_as_well_as_by_trying_all(seed: int, share: float) -> None:
    weights = table(6, seed)
    least, most = weights.smallest().bytes, weights.in_fp32().bytes
    limit = least + share * (most - least)
    found = weights.within_bytes(limit)
    assert found is not None and found.bytes <= limit
    step = max(options[-1].divergence for options in weights.weights)
    assert best_of_all(weights, limit) <= found.divergence + 1e-12 <= best_of_all(weights, limit) + step + 1e-12


def test_too_few_bytes_have_no_assignment() -> None:
    weights = table(4)
    assert weights.within_bytes(weights.smallest().bytes - 1) is None
    assert weights.within_bytes(weights.smallest().bytes) == weights.smallest()


@pytest.mark.parametrize("seed", range(4))
def test_a_curve_falls_and_divergences_are_kept(seed: int) -> None:
    weights = table(12, seed)
    curve = weights.curve(10)
    assert [point.bytes for point in curve] == sorted({point.bytes for point in curve})
    assert [point.divergence for point in curve] == sorted((point.divergence for point in curve), reverse=True)
    for limit in (0.0, 0.1, 1.0, 100.0):
        found = weights.within_divergence(limit)
        assert found.divergence <= limit or found == weights.largest()
    assert weights.within_divergence(1e9) == weights.smallest()


def test_the_finest_quantized_assignment_has_no_fp32() -> None:
    assert set(table(5).finest_quantized().picks.values()) == {EIGHT}
    assert set(table(5).largest().picks.values()) == {FLOAT}


def test_rules_remove_options_and_weights() -> None:
    weights = table(3)
    left = weights.allowed({"w0": (FLOAT, FOUR), "w1": (EIGHT,)})
    assert [len(options) for options in left.weights] == [2, 1]
    assert set(left.smallest().picks) == {"w0", "w1"}
