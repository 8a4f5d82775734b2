"""A timeout ends measurements, too, and leaves time for a trial."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from networks import Closeness, chain, inputs

import quaver
from quaver import StopReason
from quaver.engine.probe import AdapterProbe
from quaver.engine.run import loop, run
from quaver.engine.run import scheduling as clock
from quaver.engine.timing import latency

MODEL = chain(6)


@pytest.mark.parametrize(("slow", "ended"), [(600.0, True), (60.0, False)])
def test_measurements_end_with_their_share_of_the_timeout_and_a_trial_follows(
    slow: float, ended: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a clock that only evaluations (100 s each) and measurements of latency (`slow`) move."""
    now, measure, score = [0.0], latency.measure, Closeness(MODEL)
    for module in (run, loop, clock):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))

    def slowly(*arguments: Any, **keywords: Any) -> Any:
        now[0] += slow
        return measure(*arguments, **keywords)

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
    assert (result.reason is StopReason.TIMEOUT) == ended
    assert result.trials
    if ended:
        assert len(result.trials) == 1 and not result.trials[0].config.fp32_ops


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that stands still unless it is moved."""
    now = [1000.0]
    for module in (run, loop, clock):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


def tuned(eval_func: Any, place: Path, **settings: Any) -> quaver.TuneResult:
    where = {"resume": place} if place.exists() else {"workspace": place}
    chosen = {"calib_dataloader": inputs(), "strategy": "basic", "objective": "size", "threads": 1, **settings}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return quaver.fit(MODEL, eval_func=eval_func, **where, **chosen)


def slowly(now: list[float], seconds: float, score: float | None = None) -> Any:
    """An eval_func that takes so long by that clock; what is quantized scores `score`."""
    closeness = Closeness(MODEL)

    def accuracy(model: quaver.Model) -> float:
        now[0] += seconds
        return closeness(model) if score is None or model.size > 13_000 else score

    return accuracy


def test_the_clock_starts_with_fit_so_that_calibration_counts(now: list[float], tmp_path: Path) -> None:
    def loader() -> Iterator[Any]:
        for sample in inputs(8):
            now[0] += 10.0
            yield sample[None]

    result = tuned(slowly(now, 30.0, 0.0), tmp_path / "w", calib_dataloader=loader(), timeout=200, max_trials=50)
    assert result.reason is StopReason.TIMEOUT
    assert len(result.trials) == 3  # 80 s of calibration, 30 s of baseline, 3 times 30 s


def test_calibration_ends_at_half_of_the_timeout_with_what_it_has_seen(now: list[float], tmp_path: Path) -> None:
    given: list[int] = []

    def endless() -> Iterator[Any]:
        while True:
            given.append(1)
            now[0] += 10.0
            yield inputs(1)

    with pytest.warns(UserWarning, match=r"calibrated on the first 5 samples: 50% of the timeout is used up"):
        result = quaver.fit(
            MODEL, calib_dataloader=endless(), eval_func=slowly(now, 20.0), strategy="basic", timeout=100,
            threads=1, objective="size", workspace=tmp_path / "w", verbose=0,
        )  # fmt: skip
    assert len(given) == 5 and result.trials
    assert "calibrated on the first 5 samples" in (tmp_path / "w" / "quaver.log").read_text()


def test_one_sample_is_taken_however_short_the_timeout(now: list[float], tmp_path: Path) -> None:
    def endless() -> Iterator[Any]:
        while True:
            now[0] += 60.0
            yield inputs(1)

    result = tuned(slowly(now, 1.0), tmp_path / "w", calib_dataloader=endless(), timeout=100)
    assert result.reason is StopReason.TIMEOUT or result.trials
    assert len(result.trials) >= 1  # 60 s, and 1 s for the baseline, left time for it


def test_a_trial_follows_measurements_that_took_longer_than_all_of_the_timeout(
    now: list[float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = AdapterProbe._mse

    def forever(probe: AdapterProbe) -> dict[str, float]:
        now[0] += 1000.0
        return measured(probe)

    monkeypatch.setattr(AdapterProbe, "_mse", forever)

    @dataclass
    class Asks(quaver.Strategy):
        name = "asks"

        def propose(self, space: Any, probe: Any) -> Any:
            probe.mse()
            yield space.default_config()
            yield space.all_fp32()

    result = tuned(slowly(now, 1.0, 0.0), tmp_path / "w", strategy=Asks, timeout=100)
    assert result.reason is StopReason.TIMEOUT and len(result.trials) == 1


def test_there_is_no_trial_if_the_baseline_left_no_time(now: list[float], tmp_path: Path) -> None:
    result = tuned(slowly(now, 200.0), tmp_path / "w", timeout=100)
    assert result.reason is StopReason.TIMEOUT and not result.trials


def test_a_resumed_run_goes_on_with_the_time_that_is_left(now: list[float], tmp_path: Path) -> None:
    place = tmp_path / "w"

    def loader() -> Iterator[Any]:
        now[0] += 40.0
        yield inputs()

    def interrupted(model: quaver.Model) -> float:
        if now[0] > 1050.0:
            now[0] += 10.0
            raise KeyboardInterrupt
        return score(model)

    score = slowly(now, 20.0, 0.0)
    first = tuned(interrupted, place, calib_dataloader=loader(), timeout=130)
    assert first.reason is StopReason.INTERRUPTED and not first.trials  # 40 + 20 + 10 s
    now[0] += 5000.0
    second = tuned(score, place, timeout=130)
    assert second.reason is StopReason.TIMEOUT and len(second.trials) == 3
