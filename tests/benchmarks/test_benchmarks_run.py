"""Benchmarks run, on models so small that their figures say nothing."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks import memory, overhead, shapes, simulated_workers


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(overhead.MODELS, "chain", lambda: shapes.chain(4))
    monkeypatch.setattr(shapes, "mobilenet_v2", lambda: shapes.chain(4))


def test_the_overhead_of_a_trial_is_measured_beside_a_bare_session() -> None:
    row = overhead.measure("chain")
    assert row["trial overhead ms"] > 0 and row["bare session ms"] > 0 and row["quantize_static ms"] > 0


def test_memory_is_read_after_each_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "TRIALS", 51)
    (row,) = memory.run()
    assert row["MB after 50 trials"] > 10 and 0.5 < row["ratio"] < 2


def test_more_simulated_workers_shorten_a_complete_sweep() -> None:
    one, eight = simulated_workers.table("basic", False, most=60, workers=(1, 8))
    assert one["evaluations"] == eight["evaluations"] and eight["times faster"] > 4
