"""The plan of label-free measurements follows from the model and the effort, and is replayed."""

from __future__ import annotations

import contextlib
import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from fake import FakeAdapter, FakeFloat, history_of

sys.path.insert(0, str(Path(__file__).parents[3]))

from benchmarks import planted
from quaver.adapters import AdapterOptions, load_model
from quaver.demo.data import digits
from quaver.engine import error_probe
from quaver.engine.event_base import Event, Stage
from quaver.engine.events import StageStarted
from quaver.engine.observers import silent
from quaver.engine.probe import AdapterProbe, ProbeOptions
from quaver.engine.probe_plan import EFFORTS, MIN_LEADING_OPS, ProbePlan, make_plan
from quaver.history import History
from quaver.space import TuningSpace

OPS = 40
MODEL = FakeFloat({f"op{index:02}": (index * 7 % OPS) / 100 for index in range(OPS)})
SPACE = TuningSpace(MODEL.ops)
# The op with the largest damage, and so on.
WORST = sorted(MODEL.damage, key=lambda name: -MODEL.damage[name])
SMALL = ProbePlan("normal", first=1, leading=3, configs=2)


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    with history_of(MODEL, tmp_path / "history.snapshot") as history:
        yield history


def probe_of(history: History, events: list[Event] | None = None, effort: str = "normal") -> AdapterProbe:
    adapter = FakeAdapter(MODEL)
    adapter.keep_probe_samples(np.zeros((4, 2), np.float32))
    observer = silent if events is None else events.append
    return AdapterProbe(adapter, SPACE, history, observer, ProbeOptions(effort=effort))


def test_small_models_are_measured_on_all_samples() -> None:
    assert make_plan("normal", ops=30, seconds=1e-3) == ProbePlan("normal")


@pytest.mark.parametrize("ops", [10, 100, 1000])
def test_more_effort_never_means_fewer_samples(ops: int) -> None:
    for seconds in np.geomspace(1e-4, 10, 30):
        plans = [make_plan(effort, ops, seconds) for effort in EFFORTS]
        for less, more in itertools.pairwise(plans):
            assert (less.first, less.leading, less.configs) <= (more.first, more.leading, more.configs)
            assert less.first <= less.leading
        assert plans[-1] == ProbePlan("high")


def test_a_large_model_takes_about_as_long_as_is_planned_until_the_fewest_samples_are_reached() -> None:
    for seconds in np.geomspace(1e-3, 0.02, 10):
        plan = make_plan("normal", 100, seconds)
        runs = 100 * plan.first + (plan.first < plan.leading) * plan.leading_ops(100) * plan.leading
        assert 0.6 * seconds * runs <= 10.0 or plan.first == 2
    assert make_plan("normal", 500, 1.0) == ProbePlan("normal", 2, 6, 4)


@pytest.mark.parametrize(
    "noted", [None, 3, {}, {"effort": 1}, {**SMALL.to_dict(), "first": "x"}, {**SMALL.to_dict(), "first": 0}]
)
def test_a_damaged_plan_counts_as_none(noted: Any) -> None:
    assert ProbePlan.from_dict(noted) is None
    assert ProbePlan.from_dict(SMALL.to_dict()) == SMALL


def test_a_resumed_run_keeps_its_plan(history: History) -> None:
    probe_of(history, effort="low").output_error(SPACE.default_config())
    noted = history.notes[error_probe.PLAN]
    assert noted["effort"] == "low"
    assert probe_of(history, effort="high")._errors.plan.to_dict() == noted


def counted(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Note each op that is measured by itself, and on how many samples."""
    measured: list[tuple[str, int]] = []
    error = error_probe.ErrorProbe._error

    def count(probe: Any, config: Any, samples: Any) -> float:
        measured.append((config.quantized_ops[0], samples()))
        return error(probe, config, samples)

    monkeypatch.setattr(error_probe.ErrorProbe, "_error", count)
    return measured


def test_only_the_leading_ops_get_more_samples(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    measured, events = counted(monkeypatch), list[Event]()
    history.note(error_probe.PLAN, SMALL.to_dict())
    errors = probe_of(history, events).sensitivity()
    assert measured[:OPS] == [(name, 1) for name in MODEL.damage]
    assert sorted(measured[OPS:]) == sorted((name, 3) for name in WORST[:MIN_LEADING_OPS])
    assert sorted(errors, key=lambda name: -errors[name]) == WORST
    (stage,) = [event for event in events if isinstance(event, StageStarted)]
    assert stage.stage is Stage.SENSITIVITY
    assert stage.work == "40 ops on 1 samples, the 16 leading ones on 3 (effort: normal)"


def test_a_run_that_ended_between_both_rounds_measures_the_same_leaders(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = counted(monkeypatch)
    history.note(error_probe.PLAN, SMALL.to_dict())
    record = error_probe.ErrorProbe._error

    def ends(probe: Any, config: Any, samples: Any) -> float:
        if len(measured) == OPS + 5:
            raise KeyboardInterrupt
        return record(probe, config, samples)

    monkeypatch.setattr(error_probe.ErrorProbe, "_error", ends)
    with pytest.raises(KeyboardInterrupt):
        probe_of(history).sensitivity()
    monkeypatch.setattr(error_probe.ErrorProbe, "_error", record)
    errors = probe_of(history).sensitivity()
    assert sorted(measured[OPS:]) == sorted((name, 3) for name in WORST[:MIN_LEADING_OPS])
    assert sorted(errors, key=lambda name: -errors[name]) == WORST


@pytest.mark.parametrize("case", ["W1", "A1"])
def test_planted_culprits_lead_with_the_least_effort(case: str, history: History) -> None:
    model = planted.plant(onnx.load(planted.MODEL), planted.CASES[case])
    history.note(error_probe.PLAN, make_plan("low", 1000, 1.0).to_dict())
    with contextlib.closing(load_model(model, AdapterOptions(threads=1))) as adapter:
        adapter.calibrate(digits()[0][:64])
        space = TuningSpace(adapter.ops())
        ranking = AdapterProbe(adapter, space, history, silent).ranking()
    convolutions = [node.name for node in model.graph.node if node.op_type == "Conv"]
    assert convolutions[2] in ranking[:2]


def test_the_arithmetic_of_a_model_is_counted() -> None:
    """The eight convolutions and the product of the digits net, by hand from their shapes."""
    with contextlib.closing(load_model(onnx.load(planted.MODEL), AdapterOptions(threads=1))) as adapter:
        feed = {adapter.inputs[0].name: digits()[0][:2]}
        counted, nodes = adapter.workload(feed)  # type: ignore[attr-defined]
        one, _ = adapter.workload({name: array[:1] for name, array in feed.items()})  # type: ignore[attr-defined]
    assert counted == 2 * one > 0 and nodes > 8
