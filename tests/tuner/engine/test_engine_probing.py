"""What a probe measures is noted as it is measured, each figure once."""

from __future__ import annotations

import contextlib
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
from quaver.adapters import AdapterOptions, open_model
from quaver.demo.data import digits
from quaver.engine import probing
from quaver.engine.events import silent
from quaver.engine.probing import AdapterProbe
from quaver.history import History, read_snapshot
from quaver.history.frames import FrameReader, unpack
from quaver.space import TuningSpace

MODEL = FakeFloat({f"op{index}": index / 100 for index in range(12)})
SPACE = TuningSpace(MODEL.ops)


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    with history_of(MODEL, tmp_path / "history.snapshot") as history:
        yield history


def probe_of(history: History, samples: bool = True) -> AdapterProbe:
    adapter = FakeAdapter(MODEL)
    if samples:
        adapter.keep(np.zeros((4, 2), np.float32))
    return AdapterProbe(adapter, SPACE, history, silent)


def items(history: History) -> list[dict[str, float]]:
    """What each record added to a note."""
    with history.path.open("rb") as stream:
        records = [unpack(payload) for payload in FrameReader(stream)]
    return [record["items"] for record in records if record["kind"] == "items"]


def test_each_configuration_is_noted_when_it_is_measured(history: History) -> None:
    configs = [SPACE.all_int8().fallback(name) for name in MODEL.damage]
    probe = probe_of(history)
    errors = [probe.output_error(config) for config in (*configs, *configs)]
    assert errors[:12] == errors[12:]
    assert items(history) == [{config.fingerprint: error} for config, error in zip(configs, errors, strict=False)]


@pytest.mark.parametrize(("seconds", "records"), [(-1.0, 12), (1e9, 1)])
def test_measurements_of_ops_are_noted_now_and_then(
    history: History, monkeypatch: pytest.MonkeyPatch, seconds: float, records: int
) -> None:
    monkeypatch.setattr(probing, "NOTE_SECONDS", seconds)
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

    monkeypatch.setattr(AdapterProbe, "_error", stops)
    with pytest.raises(KeyboardInterrupt):
        probe_of(history).sensitivity()
    assert list(read_snapshot(history.path).notes["probe.sensitivity"].values()) == measured
    monkeypatch.undo()
    assert len(probe_of(history).sensitivity()) == 12
    assert [len(record) for record in items(history)] == [5, 7]


def test_what_ops_before_it_did_is_not_counted_against_an_op(history: History) -> None:
    """A convolution with one far channel spoils all that comes behind it, and still leads."""
    model = planted.plant(onnx.load(planted.MODEL), planted.CASES["A1"])
    with contextlib.closing(open_model(model, AdapterOptions(threads=1))) as adapter:
        adapter.calibrate(digits()[0][:64])
        space = TuningSpace(adapter.inspect())
        added = AdapterProbe(adapter, space, history, silent).mse()
        names = list(space.quantizable)
        fp32, int8 = adapter.watch(None, names), adapter.watch(space.all_int8(), names)
        feed = adapter.kept[0]
        inherited = {name: float(np.square(fp32(feed)[name] - int8(feed)[name]).mean()) for name in names}
    convolutions = [node.name for node in model.graph.node if node.op_type == "Conv"]
    culprits = convolutions[1:3]
    assert sorted(added, key=lambda name: -added[name])[:2] == sorted(culprits, key=lambda name: -added[name])
    assert sorted(inherited, key=lambda name: -inherited[name])[0] not in culprits
