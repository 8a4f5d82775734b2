"""What every adapter has from the base: samples that are kept, calibration, building, and the error of single ops."""

from __future__ import annotations

from typing import Any

import networks
import numpy as np
import pytest
from fake import FakeAdapter, FakeFloat, FakeModel

import quaver
from quaver.adapters import Adapter, AdapterOptions
from quaver.adapters.abilities import local_errors_one_by_one
from quaver.adapters.onnxrt.adapter import OnnxAdapter
from quaver.adapters.samples import MAX_PROBE_SAMPLES
from quaver.space import TuningSpace

DATA = np.random.default_rng(0).normal(size=(100, 2)).astype(np.float32)


def fake() -> FakeAdapter:
    return FakeAdapter(FakeFloat({"a": 0.1, "b": 0.0}))


def kept(adapter: Adapter) -> Any:
    return np.concatenate([feed["x"] for feed in adapter.probe_samples])


@pytest.mark.parametrize("data", [DATA, [DATA[:10], DATA[10:]], list(DATA)], ids=["whole", "batches", "one by one"])
def test_the_first_samples_are_kept_with_and_without_calibration(data: Any) -> None:
    one, other = fake(), fake()
    one.calibrate(data)
    other.keep_probe_samples(data)
    for adapter in (one, other):
        assert np.array_equal(kept(adapter), DATA[:MAX_PROBE_SAMPLES])


def test_calibration_uses_and_returns_its_result() -> None:
    class Restoring(FakeAdapter):
        restored = None

        def restore(self, calibration: dict[str, Any]) -> None:
            self.restored = calibration

    adapter, told = Restoring(FakeFloat({"a": 0.1})), []
    found = adapter.calibrate(DATA, 40, lambda done, total: told.append((done, total)))
    assert found is adapter.restored and found["ranges"]["x"]["minmax"] == (DATA[:40].min(), DATA[:40].max())
    assert told[-1] == (40, 40)


def test_on_probe_samples_is_called_once_there_are_samples() -> None:
    class Told(FakeAdapter):
        samples = 0

        def _on_probe_samples(self) -> None:
            self.samples = len(kept(self))

    for way in ("calibrate", "keep_probe_samples"):
        adapter = Told(FakeFloat({"a": 0.1}))
        getattr(adapter, way)(DATA[:7])
        assert adapter.samples == 7


def test_build_creates_a_session_and_assemble_does_not() -> None:
    opened: list[FakeModel] = []

    class Counted(FakeModel):
        def _open(self) -> Any:
            opened.append(self)
            return "session"

    class Counting(FakeAdapter):
        def assemble(self, config: Any) -> FakeModel:
            return Counted(self._model, config)

    adapter = Counting(FakeFloat({"a": 0.1}))
    adapter.assemble(None)
    assert not opened
    model = adapter.build(None)
    assert opened == [model] and model.session == "session"


def test_local_errors_one_by_one_need_only_recorded_outputs() -> None:
    """The base builds each op alone; ONNX hangs all of them off one float model. Both find the same."""
    adapter = OnnxAdapter.load(networks.chain(5), AdapterOptions(threads=1))
    adapter.calibrate(networks.inputs(1))  # of several samples ONNX looks at half
    config = TuningSpace(adapter.ops()).default_config().fallback("layer.2/Gemm")
    plain, clever = local_errors_one_by_one(adapter, config), adapter.local_errors(config)
    adapter.close()
    assert list(plain) == list(clever) == list(config.int8_ops)
    for name in plain:
        assert plain[name] == pytest.approx(clever[name], rel=0.02)


def test_a_user_can_annotate_with_the_model() -> None:
    def accuracy(model: quaver.Model) -> float:
        return float(model(DATA)[0])

    assert accuracy(fake().build(None)) == 0.9
    with pytest.raises(TypeError, match="abstract"):
        quaver.Model((), 1)  # type: ignore[abstract]
