"""Where the time goes: op by op, end to end, and int8 beside fp32."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import diagnosis_models as models
import numpy as np
import onnx
import pytest

import quaver
from quaver.adapters import AdapterOptions, open_model
from quaver.diagnosis import make_profile
from quaver.introspection import KernelTime, Timing
from quaver.space import TuningSpace


def heavy() -> onnx.ModelProto:
    """A few milliseconds of work, so that the runtime's own part in it is small."""
    net = models.Net(64)
    last = "x"
    for at in range(8):
        last = net.add("Relu", f"relu{at}", net.conv(f"conv{at}", last, models.noise(64, 64, 3, 3, seed=at)))
    return net.model(last)


def samples(count: int = 16) -> np.ndarray:
    return models.images(count, channels=64)


@pytest.fixture(scope="module")
def int8(tmp_path_factory: pytest.TempPathFactory) -> Path:
    adapter = open_model(heavy(), AdapterOptions(threads=1))
    adapter.calibrate(samples())
    path = tmp_path_factory.mktemp("models") / "int8.onnx"
    adapter.rebuild(TuningSpace(adapter.inspect()).all_int8()).save(path)
    adapter.close()
    return path


def test_ops_take_together_what_an_inference_takes() -> None:
    for _ in range(4):  # on a busy machine a measurement may fail
        found = quaver.profile(heavy(), data=samples(), batch=16, threads=1, runs=40)
        ratio = found.latency.ops / found.latency.p50
        if 0.9 <= ratio <= 1.1:
            break
    assert 0.9 <= ratio <= 1.1
    assert [row.seconds for row in found.rows] == sorted((row.seconds for row in found.rows), reverse=True)
    assert sum(row.share for row in found.rows) == pytest.approx(1.0)
    assert sum(row.seconds for row in found.rows) == pytest.approx(found.latency.ops)
    assert {row.name for row in found.rows} >= {f"conv{at}" for at in range(8)}
    latency = found.latency
    assert latency.p50 <= latency.p90 <= latency.p99 and latency.samples == 16 and latency.runs == 40
    assert latency.throughput == pytest.approx(16 / latency.mean)


def test_int8_stands_beside_fp32_op_by_op(int8: Path) -> None:
    found = quaver.profile(heavy(), int8, samples(), batch=4, threads=1, runs=5, warmup=1)
    rows = {row.name: row for row in found.rows}
    for at in range(8):
        row = rows[f"conv{at}"]
        assert row.against is not None and "QLinearConv" in row.against[0] and row.against[1] >= 1
        assert "Conv" in row.kernel and row.ratio > 0
    assert found.against is not None and found.against.samples == 4
    assert found.precisions == {f"conv{at}": "int8" for at in range(8)}


def test_a_quantized_model_can_be_profiled_by_itself(int8: Path) -> None:
    found = quaver.profile(int8, threads=1, runs=3, warmup=1)
    assert any(row.kernel == "QLinearConv" for row in found.rows) and found.against is None


def test_a_trial_can_be_set_beside_its_model(tmp_path: Path) -> None:
    result = quaver.fit(
        heavy(), calib_dataloader=samples(), eval_func=lambda model: 1.0, workspace=tmp_path / "run", max_trials=1,
        threads=1,
    )  # fmt: skip
    for against, history in ((result, None), (1, result.workspace), (result.best, result.history_path)):
        found = quaver.profile(heavy(), against, history=history, runs=2, warmup=0, threads=1)
        assert found.precisions["conv3"] == "int8"
    with pytest.raises(quaver.SettingsError, match="history"):
        quaver.profile(heavy(), 1)


def test_settings_that_cannot_be_are_named() -> None:
    with pytest.raises(quaver.SettingsError, match=r"`batch` must be a whole number of at least 1, not 0"):
        quaver.profile(heavy(), batch=0)
    with pytest.raises(quaver.ModelError, match="no model"):
        quaver.profile("nowhere.onnx")
    net = models.Net()
    net.input.type.tensor_type.shape.dim[2].dim_param = "height"
    with pytest.raises(quaver.SettingsError, match="leaves more than the batch open"):
        quaver.profile(net.model(net.conv("conv", "x", models.noise(16, 16, 3, 3))))


def test_too_few_samples_are_repeated_and_generators_serve_both_models(int8: Path) -> None:
    found = quaver.profile(heavy(), int8, iter([samples(3)]), batch=8, runs=2, warmup=0, threads=1)
    assert found.latency.samples == 8 and found.against is not None and found.against.samples == 8


def test_what_calling_and_noting_cost_is_taken_off_each_kernel() -> None:
    """Measured are 100, 10 and 0 us, each with 3 us for noting it, in calls of which 20 us are not execution."""
    from quaver.adapters.onnxrt.time.timing import _kernels, _profiled

    def event(name: str, dur: float, cat: str = "Node") -> dict[str, Any]:
        return {"cat": cat, "name": name, "dur": dur, "args": {"op_name": name.partition("_")[0]}}

    inference = [event(f"{name}_kernel_time", dur) for name, dur in (("conv", 103), ("add", 13), ("shape", 3))]
    inference += [event("SequentialExecutor::Execute", 180, "Session"), event("model_run", 190, "Session")]
    warm = [event("conv_kernel_time", 9000), event("model_run", 9000, "Session")]
    kernels = _kernels(*_profiled([*warm, *inference, *inference], [200e-6, 200e-6]), {"conv": "op"}, 130e-6)
    assert [(kernel.op, kernel.kernel) for kernel in kernels] == [("op", "conv"), ("", "add"), ("", "shape")]
    assert [kernel.seconds for kernel in kernels] == pytest.approx([100e-6, 10e-6, 0.0])


def timing(seconds: dict[str, float]) -> Timing:
    kernels = tuple(KernelTime(name, name.partition(".")[0], "Kernel", value) for name, value in seconds.items())
    return Timing(kernels, (1.0, 2.0, 3.0), 2, 1)


def test_the_table_holds_kernels_counts_shares_and_the_other_model(tmp_path: Path) -> None:
    found = make_profile(timing({"a.1": 0.1, "b.1": 0.5, "a.2": 0.2}), timing({"a.1": 0.3, "c.1": 0.1}))
    assert [(row.name, row.count, row.seconds, row.share) for row in found.rows] == [
        ("b", 1, 0.5, pytest.approx(0.625)),
        ("a", 2, pytest.approx(0.3), pytest.approx(0.375)),
        ("c", 0, 0.0, 0.0),
    ]
    assert found.rows[1].ratio == pytest.approx(1.0) and np.isnan(found.rows[0].ratio)
    assert found.latency.p50 == 2.0 and found.latency.throughput == pytest.approx(1.0)
    table = list(csv.DictReader(io.StringIO(found.to_csv())))
    assert [row["op"] for row in table] == ["b", "a", "c"] and table[1]["against seconds"] == "0.3"
    assert json.loads(found.to_json())["latency"]["p99"] == pytest.approx(2.98)
    assert found.save(tmp_path / "profile.csv").read_text() == found.to_csv()
    assert found.save(tmp_path / "profile.json").read_text() == found.to_json()


@pytest.mark.parametrize("slow", [True, False])
def test_an_op_that_int8_makes_slower_is_a_cause_only_if_it_is_every_time(slow: bool) -> None:
    from quaver.diagnosis.causes import find_causes
    from quaver.diagnosis.recorder import OpRecord
    from quaver.diagnosis.suspects import Suspect
    from quaver.introspection import OpInside
    from quaver.ops import Op

    op, inside = Op("a", "Conv", ("a",), ()), OpInside("a", "a")
    suspect = Suspect(op, None, "int8", inside, OpRecord(inside, None, {}), None, {}, {}, 0)
    causes = find_causes([suspect], [{"a": 2e-4}, {"a": 2.1e-4}], [{"a": 5e-4}, {"a": 4e-4 if slow else 2.2e-4}])
    assert [(cause.kind, cause.rules) for cause in causes] == ([("slower", {"a": "fp32"})] if slow else [])
    if slow:
        assert causes[0].sentence == "it takes 400 us in int8 and 210 us in fp32 (1.9x slower)."


def test_a_real_op_that_int8_makes_slower_is_found() -> None:
    """Without an int8 kernel, a ConvTranspose only has its input quantized and dequantized besides."""
    net = models.Net(16, 64)
    up = net.add("ConvTranspose", "up", "x", models.noise(16, 2, 1, 1))
    conv = net.conv("conv", net.conv("before", "x", models.noise(16, 16, 3, 3)), models.noise(16, 16, 3, 3, seed=1))
    data = models.images(4, 16, size=64)
    for _ in range(4):
        found = quaver.diagnose(net.model(up, conv), None, data, threads=1, op_type_dict={"ConvTranspose": "int8"})
        slower = [cause.op for cause in found.causes if cause.kind == "slower"]
        if slower:
            break
    assert slower == ["up"]
