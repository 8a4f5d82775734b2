"""Trials that are about as fast as each other are measured again side by side, before the winner is named."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fake import FakeAdapter, FakeFloat, FakeModel, drive

from quaver import Budget, Criterion, Probe, QuantConfig, Stage, StopReason, Strategy, TuningSpace, read_snapshot
from quaver.engine.event_base import Event
from quaver.engine.events import StageStarted
from quaver.engine.run import run
from quaver.engine.run import scheduling as clock
from quaver.engine.scoring.judge import judge_snapshot
from quaver.engine.timing import finalists, latency, objective_measurer
from quaver.engine.timing.latency import Latency as Taken
from quaver.engine.timing.objective import Latency

MODEL = FakeFloat(dict.fromkeys("abcdefgh", 0.0))
EVERYTHING = Criterion(None, 1.0)


class Scripted(Strategy):
    """Sends back one more op each time."""

    name = "scripted"

    def __init__(self, trials: int) -> None:
        self.trials = trials

    def propose(self, space: TuningSpace, probe: Probe) -> Iterator[Any]:
        for count in range(self.trials):
            yield space.default_config().fallback(*"abcdefgh"[:count])


class Machine:
    """Takes for each model what it should, by the number of its fp32 ops; what it took alone may have been wrong."""

    def __init__(self, truth: Sequence[float], at_first: Sequence[float], spread: float = 0.0) -> None:
        self.truth, self.at_first, self.spread = truth, at_first, spread
        self.together: list[list[int]] = []

    def __call__(
        self, models: Sequence[FakeModel], feed: Any, seconds: float | None = None, left: float = math.inf
    ) -> list[Taken]:
        counts = [None if model.config is None else len(model.config.fp32_ops) for model in models]
        quantized = [count for count in counts if count is not None]
        if len(quantized) > 1:
            self.together.append(quantized)
        told = self.truth if len(quantized) > 1 else self.at_first
        return [Taken(1.0 if count is None else told[count], self.spread, 6) for count in counts]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Any:
    def use(*args: Any) -> Machine:
        made = Machine(*args)
        for module in (latency, objective_measurer):
            monkeypatch.setattr(module, "measure", made)
        return made

    return use


def tuned(path: Path, trials: int, **more: Any) -> tuple[Any, list[Event]]:
    adapter, seen = FakeAdapter(MODEL), []
    adapter.keep_probe_samples(np.zeros((4, 2), np.float32))
    budget = more.pop("budget", Budget(timeout=1e6))
    outcome = drive(
        MODEL, Scripted(trials), path, criterion=EVERYTHING, budget=budget, objective=Latency(), adapter=adapter,
        observer=seen.append, **more,
    )  # fmt: skip
    return outcome, seen


def stages(seen: list[Event]) -> int:
    return sum(isinstance(event, StageStarted) and event.stage is Stage.FINALISTS for event in seen)


def test_what_a_busy_machine_said_at_first_does_not_decide(machine: Any, tmp_path: Path) -> None:
    busy = machine([0.5, 0.4, 0.6], [0.5, 0.52, 0.9])
    outcome, seen = tuned(tmp_path / "h", 3)
    assert outcome.best.number == 2 and stages(seen) == 1
    assert busy.together == [[0, 1]]  # the third is more than a tenth slower
    recorded = read_snapshot(tmp_path / "h")
    assert [trial.measured["latency"] for trial in recorded.trials] == [0.5, 0.4, 0.9]
    assert recorded.trials[1].measured["latency_ms"] == 400.0
    assert recorded.notes[finalists.NOTE]["trials"] == [1, 2, 3]


def test_five_are_measured_again_at_most_the_best_so_far_among_them(machine: Any, tmp_path: Path) -> None:
    # All are tied, so the one with most int8 ops leads, though it was the slowest by a hair.
    busy = machine([0.5] * 7, [0.507, 0.506, 0.505, 0.504, 0.503, 0.502, 0.501])
    outcome, _ = tuned(tmp_path / "h", 7)
    assert outcome.best.number == 1
    assert busy.together == [[0, 6, 5, 4, 3]]


def test_one_that_is_brought_forward_by_the_new_figures_is_measured_again_too(machine: Any, tmp_path: Path) -> None:
    busy = machine([0.60, 0.61, 0.45], [0.40, 0.41, 0.46])
    outcome, _ = tuned(tmp_path / "h", 3)
    assert busy.together == [[0, 1]]  # the third is alone then, with nobody near
    assert outcome.best.number == 3
    busy = machine([0.60, 0.61, 0.70], [0.40, 0.41, 0.58])
    outcome, _ = tuned(tmp_path / "i", 3)
    assert busy.together == [[0, 1], [2, 0, 1]]
    assert outcome.best.number == 1


def test_a_difference_that_is_not_certain_goes_to_more_int8_and_then_to_the_earlier(
    machine: Any, tmp_path: Path
) -> None:
    machine([0.505, 0.5], [0.505, 0.5])
    assert tuned(tmp_path / "less than two percent", 2)[0].best.number == 1
    machine([0.52, 0.5], [0.52, 0.5])
    assert tuned(tmp_path / "more", 2)[0].best.number == 2
    machine([0.52, 0.5], [0.52, 0.5], 0.03)
    assert tuned(tmp_path / "more but the runs differ as much", 2)[0].best.number == 1
    machine([0.7, 0.5], [0.7, 0.5], 0.9)
    assert tuned(tmp_path / "nothing excuses a slow model", 2)[0].best.number == 2


def test_a_resumed_run_that_brings_nothing_new_measures_nothing_and_names_the_same_winner(
    machine: Any, tmp_path: Path
) -> None:
    machine([0.5, 0.4], [0.5, 0.52])
    first, _ = tuned(tmp_path / "h", 2)
    again = machine([0.1, 0.9], [0.1, 0.9])  # another day
    resumed, seen = tuned(tmp_path / "h", 2)
    assert resumed.best == first.best and resumed.evaluated == [] and stages(seen) == 0
    assert again.together == []
    more, seen = tuned(tmp_path / "h", 3, budget=Budget(timeout=1e6))
    assert stages(seen) == 0 and more.best.number == first.best.number  # the new one is far slower


def test_a_new_trial_that_is_as_fast_is_compared_with_the_old_ones(machine: Any, tmp_path: Path) -> None:
    machine([0.5, 0.4, 0.3], [0.5, 0.52, 0.4])
    tuned(tmp_path / "h", 2)
    busy = machine([0.5, 0.4, 0.3], [0.5, 0.52, 0.4])
    resumed, seen = tuned(tmp_path / "h", 3)
    assert stages(seen) == 1 and busy.together == [[1, 2]] and resumed.best.number == 3
    assert judge_by_latency(tmp_path / "h") == 3


def judge_by_latency(path: Path) -> int | None:
    """Whom the recorded history names, whose runs say nothing of a criterion here."""
    snapshot = read_snapshot(path)
    judged = judge_snapshot(snapshot)
    judged.criterion = EVERYTHING
    judged.begin(snapshot.baseline)
    return None if judged.best is None else judged.best.number


def takes(seconds: float, monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], float]:
    """An evaluation that takes so long, on a clock that nothing else moves."""
    now = [0.0]
    for module in (run, clock):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))

    def evaluate(model: Any) -> float:
        now[0] += seconds
        return 1.0

    return evaluate


@pytest.mark.parametrize("timeout", [10.0, 1000.0])
def test_the_timeout_is_kept(timeout: float, machine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a clock that evaluations alone move, 4.9 s each; a model takes a tenth of a second."""
    slow = takes(4.9, monkeypatch)
    busy = machine([0.1] * 8, [0.1] * 8)
    outcome, seen = tuned(tmp_path / "h", 8, eval_func=slow, budget=Budget(timeout=timeout))
    if timeout == 10.0:
        # Two trials took 9.8 s: too little is left to measure both again, and no time was reserved for it.
        assert outcome.reason is StopReason.TIMEOUT and stages(seen) == 0 and not busy.together
    else:
        assert outcome.reason is StopReason.EXHAUSTED and stages(seen) == 1


def test_a_part_of_the_timeout_is_kept_for_the_finalists(
    machine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = takes(16.2, monkeypatch)
    busy = machine([0.01] * 8, [0.01] * 8)
    outcome, seen = tuned(tmp_path / "h", 8, eval_func=slow, budget=Budget(timeout=50.0))
    # The fp32 model and two trials took 48.6 s; what is left is about what it takes to compare the two.
    assert len(outcome.trials) == 2 and outcome.reason is StopReason.TIMEOUT
    assert stages(seen) == 1 and busy.together == [[0, 1]]


def test_nobody_is_measured_again_where_nothing_is_to_be_decided(machine: Any, tmp_path: Path) -> None:
    busy = machine([0.5, 0.9], [0.5, 0.9])
    outcome, seen = tuned(tmp_path / "far apart", 2)
    assert outcome.best.number == 1 and stages(seen) == 0
    outcome, seen = tuned(tmp_path / "alone", 1)
    assert outcome.best.number == 1 and stages(seen) == 0 and not busy.together


def test_a_model_that_cannot_be_measured_again_leaves_the_figures_that_there_are(
    machine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine([0.5, 0.4], [0.5, 0.52])

    def refuse(self: FakeAdapter, config: QuantConfig | None) -> FakeModel:
        if config is not None:
            raise RuntimeError("no more memory")
        return FakeModel(MODEL, None)

    build = FakeAdapter.assemble
    monkeypatch.setattr(FakeAdapter, "build", lambda self, config: build(self, config))
    monkeypatch.setattr(FakeAdapter, "assemble", refuse)
    outcome, _ = tuned(tmp_path / "h", 2)
    assert outcome.best.number == 1
    assert finalists.NOTE not in read_snapshot(tmp_path / "h").notes
