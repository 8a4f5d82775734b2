"""What a probe measures is noted as it is measured, each figure once."""

from __future__ import annotations

import contextlib
import math
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from fake import MINMAX, FakeAdapter, FakeFloat, FakeModel, drive, history_of

sys.path.insert(0, str(Path(__file__).parents[3]))

from benchmarks import planted
from quaver.adapters import AdapterOptions, load_model
from quaver.budget import Budget
from quaver.demo.data import digits
from quaver.engine import error_probe
from quaver.engine.event_base import Event
from quaver.engine.events import MeasurementDied
from quaver.engine.measurement_runner import MeasurementRunner
from quaver.engine.measurements import OUTPUT_ERROR, Bench, Measurement
from quaver.engine.observers import silent
from quaver.engine.probe import AdapterProbe
from quaver.engine.run.crashes import step
from quaver.history import History, read_snapshot
from quaver.history.frames import FrameReader, unpack
from quaver.ops import QuantConfig
from quaver.space import TuningSpace
from quaver.strategies import Basic

MODEL = FakeFloat({f"op{index}": index / 100 for index in range(12)})
SPACE = TuningSpace(MODEL.ops)


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    with history_of(MODEL, tmp_path / "history.snapshot") as history:
        yield history


def probe_of(history: History, samples: bool = True) -> AdapterProbe:
    adapter = FakeAdapter(MODEL)
    if samples:
        adapter.keep_probe_samples(np.zeros((4, 2), np.float32))
    return AdapterProbe(adapter, SPACE, history, silent)


def items(history: History) -> list[dict[str, float]]:
    """What each record added to a note."""
    with history.path.open("rb") as stream:
        records = [unpack(payload) for payload in FrameReader(stream)]
    return [record["items"] for record in records if record["kind"] == "items"]


def test_each_configuration_is_noted_when_it_is_measured(history: History) -> None:
    configs = [SPACE.default_config().fallback(name) for name in MODEL.damage]
    probe = probe_of(history)
    errors = [probe.output_error(config) for config in (*configs, *configs)]
    assert errors[:12] == errors[12:]
    assert items(history) == [{config.fingerprint: error} for config, error in zip(configs, errors, strict=False)]


@pytest.mark.parametrize(("seconds", "records"), [(-1.0, 12), (1e9, 1)])
def test_measurements_of_ops_are_noted_now_and_then(
    history: History, monkeypatch: pytest.MonkeyPatch, seconds: float, records: int
) -> None:
    monkeypatch.setattr(error_probe, "NOTE_SECONDS", seconds)
    found = probe_of(history).sensitivity()
    written = items(history)
    assert len(written) == records
    assert list(found.values()) == [value for record in written for value in record.values()]
    assert probe_of(history, samples=False).sensitivity() == found
    assert len(items(history)) == records


def test_what_was_measured_before_an_error_is_kept(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[float] = []

    def stops(*args: Any) -> float:
        if len(measured) == 5:
            raise KeyboardInterrupt
        measured.append(len(measured) / 8)
        return measured[-1]

    monkeypatch.setattr(error_probe.ErrorProbe, "_error", stops)
    with pytest.raises(KeyboardInterrupt):
        probe_of(history).sensitivity()
    assert list(read_snapshot(history.path).notes["probe.sensitivity.parts"].values()) == measured
    monkeypatch.undo()
    assert len(probe_of(history).sensitivity()) == 12
    assert [len(record) for record in items(history)] == [5, 7]


def test_what_ops_before_it_did_is_not_counted_against_an_op(history: History) -> None:
    """A convolution with one far channel spoils all that comes behind it, and still leads."""
    model = planted.plant(onnx.load(planted.MODEL), planted.CASES["A1"])
    with contextlib.closing(load_model(model, AdapterOptions(threads=1))) as adapter:
        adapter.calibrate(digits()[0][:64])
        space = TuningSpace(adapter.ops())
        added = AdapterProbe(adapter, space, history, silent).mse()
        names = list(space.quantizable)
        fp32, int8 = adapter.record_outputs(None, names), adapter.record_outputs(space.default_config(), names)
        feed = adapter.probe_samples[0]
        inherited = {name: float(np.square(fp32(feed)[name] - int8(feed)[name]).mean()) for name in names}
    convolutions = [node.name for node in model.graph.node if node.op_type == "Conv"]
    culprits = convolutions[1:3]
    assert sorted(added, key=lambda name: -added[name])[:2] == sorted(culprits, key=lambda name: -added[name])
    assert sorted(inherited, key=lambda name: -inherited[name])[0] not in culprits


class Ending(FakeAdapter):
    """Ends the process when one op is quantized, in any choice."""

    def assemble(self, config: QuantConfig | None) -> FakeModel:
        if config is not None and config["op3"].quantized:
            os._exit(9)
        return super().assemble(config)


def measured_apart(path: Path, told: list[Event] | None = None, here: bool = False) -> dict[str, float] | int:
    """Measure sensitivities in a child that may end, or `here`: return its exit code, or the errors."""
    child = 0 if here else os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with history_of(MODEL, path) as history:
        adapter = Ending(MODEL)
        adapter.keep_probe_samples(np.zeros((4, 2), np.float32))
        errors = AdapterProbe(adapter, SPACE, history, silent if told is None else told.append).sensitivity()
    if not here:
        os._exit(0)
    return dict(errors)


def test_without_a_worker_a_measurement_that_ends_the_process_twice_counts_as_infinitely_wrong(tmp_path: Path) -> None:
    path, told = tmp_path / "h", list[Event]()
    assert [measured_apart(path), measured_apart(path)] == [9, 9]
    errors = measured_apart(path, told, here=True)
    assert isinstance(errors, dict)
    assert [name for name, error in errors.items() if error == math.inf] == ["op3"] and len(errors) == 12
    [died] = [event for event in told if isinstance(event, MeasurementDied)]
    assert died.what == "the output error of a configuration (op3: int8 minmax per_channel asym)"
    again: list[Event] = []
    assert measured_apart(path, again, here=True) == errors
    assert not any(isinstance(event, MeasurementDied) for event in again)


def test_a_measurement_that_raises_is_no_death(history: History) -> None:
    probe = probe_of(history)
    config = SPACE.default_config()
    with pytest.raises(ZeroDivisionError), step(history, "something"):
        _ = 1 / 0
    probe.output_error(config)
    history.close()
    with history_of(MODEL, history.path) as resumed:
        assert not resumed.crashed_steps
        with resumed.path.open("rb") as stream:
            records = [unpack(payload)["kind"] for payload in FrameReader(stream)]
    assert "begun" not in records and "dropped" not in records


def test_a_configuration_that_died_in_a_measurement_is_a_failed_trial_without_a_call_of_eval_func(
    tmp_path: Path,
) -> None:
    path = tmp_path / "h"
    with history_of(MODEL, path) as history:
        adapter = FakeAdapter(MODEL)
        runner = MeasurementRunner(lambda: Bench(adapter, "op11", []), SPACE, history, silent)
        runner.give_up(Measurement(OUTPUT_ERROR, (SPACE.float_config().replace({"op3": MINMAX}),)))
        assert runner.fatal_ops(SPACE.default_config()) == ["op3"]
    done = drive(MODEL, Basic(), path, budget=Budget(timeout=1000))
    fatal = [trial for trial in done.trials if trial.config["op3"].quantized]
    assert fatal and all("ended 2 times while this configuration was run on samples" in str(t.error) for t in fatal)
    assert not any(config is not None and config["op3"].quantized for config in done.evaluated)


def test_errors_of_another_definition_are_not_mixed_with_new_ones(history: History) -> None:
    """Versions up to 0.2 noted squared error over squared signal of whole outputs, under names without an end."""
    config = SPACE.default_config()
    history.extend_note("probe.output_error", {config.fingerprint: 123.0})
    history.extend_note("probe.sensitivity", {f"{name} {config[name]}": 123.0 for name in MODEL.damage})
    probe = probe_of(history)
    assert probe.output_error(config) < 100 and max(probe.sensitivity().values()) < 100
    assert history.notes["probe.output_error"] == {config.fingerprint: 123.0}


def test_a_speed_is_told_on_the_scale_of_what_it_is_compared_with(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The float model was 4 % slower in the second measurement, so that all relative times came out smaller."""
    first, second, third = SPACE.default_config(), SPACE.default_config().fallback("op1"), SPACE.all_fp32()
    probe = probe_of(history)
    answers = iter([[0.5], [0.48, 0.6], [None, 0.7]])
    groups: list[list[QuantConfig]] = []

    def run_group(kind: str, configs: list[QuantConfig]) -> list[float | None]:
        groups.append(list(configs))
        return list(next(answers))

    monkeypatch.setattr(probe._runner, "run_group", run_group)
    assert probe.speeds([first]) == [0.5]
    assert probe.speeds([first, second]) == [0.5, pytest.approx(0.625)]
    assert probe.speeds([first, third]) == [0.5, 0.7]  # what was known does not run any more
    assert groups == [[first], [first, second], [first, third]]
    assert probe.speeds([first, second, third]) == [0.5, pytest.approx(0.625), 0.7]
