"""A short run of what `make torture` does a million times."""

from __future__ import annotations

from mutated_snapshots import read_mutated


def test_four_thousand_mutated_snapshots_are_read_or_refused_and_do_nothing() -> None:
    told = read_mutated(4000, seed=14)
    assert told.wrong == []
    assert told.outcomes["refused"] > 500
    assert told.outcomes["read in part"] > 500
