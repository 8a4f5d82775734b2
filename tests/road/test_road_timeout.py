"""A timeout ends measurements, too, and leaves time for a trial."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from networks import Closeness, chain, inputs

import quaver
from quaver import StopReason
from quaver.engine import latency, loop, run

MODEL = chain(6)


@pytest.mark.parametrize(("slow", "trials"), [(600.0, 1), (60.0, 2)])
def test_measurements_end_with_their_share_of_the_timeout_and_a_trial_follows(
    slow: float, trials: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a clock that only evaluations (100 s each) and measurements of latency (`slow`) move."""
    now, measure, score = [0.0], latency.measure, Closeness(MODEL)
    for module in (run, loop):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))

    def slowly(*arguments: Any) -> Any:
        now[0] += slow
        return measure(*arguments)

    def accuracy(model: quaver.Model) -> float:
        now[0] += 100.0
        return score(model) if now[0] == 100.0 else 0.5

    monkeypatch.setattr(latency, "measure", slowly)
    result = quaver.fit(
        MODEL,
        calib_dataloader=inputs(),
        eval_func=accuracy,
        timeout=1000,
        max_trials=2,
        threads=1,
        workspace=tmp_path / "w",
    )
    assert len(result.trials) == trials
    assert result.reason is (StopReason.TIMEOUT if trials == 1 else StopReason.MAX_TRIALS)
    if trials == 1:
        assert not result.trials[0].config.fp32_ops
