"""Several metrics and the scores of samples in a snapshot: read back unchanged, and refused where they are invalid."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from history_samples import BASELINE, OPS, a_trial, forged, record_sample

from quaver.errors import HistoryError
from quaver.history import FILE_NAME, History, SnapshotReader, read_snapshot
from quaver.history.records.trials import from_trial
from quaver.scores import Samples
from quaver.trial import TrialState

PLACES = {op.name: place for place, op in enumerate(OPS)}
BITS = Samples.of(np.array([1.0, 0.0, 1.0] * 7))
FLOATS = Samples.of(np.array([0.5, 0.1, -3.0]))
SCORED = a_trial(9, metrics={"top1": 0.75, "größe": 2.5}, samples={"top1": BITS, "größe": FLOATS})
STOPPED = a_trial(10, state=TrialState.STOPPED, samples={"score": BITS})


def test_metrics_and_samples_are_read_back(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    record_sample(path)
    reader = SnapshotReader(path)
    assert reader.poll() is not None
    with History.resume(path) as history:
        history.append(SCORED)
        history.append(STOPPED)
        assert history.trials[-2:] == [SCORED, STOPPED]
    read = read_snapshot(path).trials[-2:]
    assert read == (SCORED, STOPPED) and [trial.seen for trial in read] == [21, 21]
    followed = reader.poll()
    assert followed is not None and followed.trials[-2:] == read


def test_a_trial_with_one_number_has_no_such_fields() -> None:
    assert {"metrics", "samples"}.isdisjoint(from_trial(BASELINE, PLACES))


@pytest.mark.parametrize(
    ("field", "value", "complaint"),
    [
        ("samples", {"score": ("bits", 22, BITS.data + b"\0")}, "says 22 samples, and has 4 bytes"),
        ("samples", {"score": ("bits", 20, BITS.data)}, "says 20 samples"),
        ("samples", {"score": ("bits", 0, b"")}, "says 0 samples"),
        ("samples", {"score": ("bits", -8, b"")}, "says -8 samples"),
        ("samples", {"score": ("bits", 2**70, b"\0")}, "and has 1 bytes that do not fit"),
        ("samples", {"score": ("f4", 2, b"\0" * 7)}, "says 2 samples, and has 7 bytes"),
        ("samples", {"score": ("f8", 1, np.array([np.nan]).tobytes())}, "not finite"),
        ("samples", {"score": ("f4", 1, np.array([np.inf], "<f4").tobytes())}, "not finite"),
        ("samples", {"score": ("O8", 1, b"\0" * 8)}, "is encoded as 'O8'; known are bits, f4, f8"),
        ("samples", {"score": ["bits", 21, BITS.data]}, "must be a tuple of str, int, bytes"),
        ("samples", {"score": ("bits", 21.0, BITS.data)}, "must be a tuple of str, int, bytes"),
        ("samples", {"score": ("bits", True, BITS.data)}, "must be a tuple of str, int, bytes"),
        ("samples", {3: ("bits", 21, BITS.data)}, "under a str"),
        ("samples", {"\ud800": ("bits", 21, BITS.data)}, "not valid Unicode"),
        ("samples", {"other": ("bits", 21, BITS.data)}, "is of no metric of the trial"),
        ("samples", {f"m{index}": ("bits", 21, BITS.data) for index in range(1001)}, "more than 1,000 metrics"),
        ("samples", [], "must be dict"),
        ("metrics", {"top1": 1}, "must be a float under a str"),
        ("metrics", {"top1": float("nan")}, "must be finite"),
        ("metrics", {"\ud800": 1.0}, "not valid Unicode"),
        ("metrics", {f"m{index}": 1.0 for index in range(1001)}, "more than 1,000 metrics"),
        ("state", "stopped", "field 'samples' must be there, because the trial was stopped"),
        ("state", "halted", "must be one of complete, stopped, failed"),
    ],
)
def test_invalid_fields_of_metrics_and_samples_are_refused(
    field: str, value: Any, complaint: str, tmp_path: Path
) -> None:
    path = tmp_path / FILE_NAME
    record = {**from_trial(a_trial(9), PLACES), field: value}
    path.write_bytes(record_sample(path) + forged(record))
    for opens in (read_snapshot, History.resume):
        with pytest.raises(HistoryError, match="is refused") as caught:
            opens(path)
        assert complaint in str(caught.value)


def test_sample_scores_stay_bytes_until_they_are_used(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    record_sample(path)
    samples = Samples.of(np.random.default_rng(0).integers(0, 2, 80_000).astype(float))
    with History.resume(path) as history:
        for number in range(10, 30):
            history.append(a_trial(number, samples={"score": samples}))
    tracemalloc.start()
    try:
        read = read_snapshot(path)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(read.trials[-1].samples["score"]) == 80_000 and most < 5 * 20 * 10_000
