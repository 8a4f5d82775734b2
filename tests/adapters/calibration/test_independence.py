"""Samples are joined only where the model computes for each what it computes for it alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from quaver.adapters.calibration.independence import summarize

RNG = np.random.default_rng(0)
SAMPLES = [RNG.normal(size=(1, 4, 3)).astype(np.float32) for _ in range(3)]
LOUD = [10 * SAMPLES[0], *SAMPLES[1:]]  # the first has the smallest and the largest value


def is_joined(values: Any, samples: Any = SAMPLES) -> bool:
    return summarize([values]).is_of([summarize([sample]) for sample in samples])


def test_values_of_samples_may_stand_in_any_order() -> None:
    joined = np.concatenate(SAMPLES)
    assert is_joined(joined) and is_joined(joined.transpose(1, 2, 0)) and is_joined(joined[::-1].reshape(-1, 2))
    assert is_joined(joined * np.float32(1 + 1e-6))  # another kernel for another batch


@pytest.mark.parametrize(
    "values",
    [LOUD[0], np.concatenate(LOUD).mean(0), np.concatenate([LOUD[0]] * 3), np.concatenate([*LOUD[:2], LOUD[1]])],
    ids=["the first sample", "a mean", "the first sample thrice", "another one twice"],
)
def test_values_of_some_samples_are_told_although_their_range_is_that_of_all(values: Any) -> None:
    assert not is_joined(values, LOUD)


def test_values_that_do_not_depend_on_the_batch_are_the_same_in_each_run() -> None:
    table = RNG.normal(size=(5, 5)).astype(np.float32)
    assert is_joined(table, [table] * 3)
    assert not is_joined(table, [table, table, 2 * table])


def test_each_tensor_counts() -> None:
    samples = [summarize([sample, sample.mean(0)]) for sample in SAMPLES]
    joined = np.concatenate(SAMPLES)
    assert not summarize([joined, joined.mean(0)]).is_of(samples)
    assert summarize([]).is_of([summarize([])] * 2)


def test_values_that_are_not_finite_are_reported_elsewhere() -> None:
    broken = [np.full_like(SAMPLES[0], np.nan), *SAMPLES[1:]]
    assert is_joined(np.concatenate(broken), broken)
