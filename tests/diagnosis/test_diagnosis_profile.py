"""Where the time goes: per op, in total, and int8 compared with fp32."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import diagnosis_models as models
import numpy as np
import onnx
import pytest

import quaver
from quaver.adapters import AdapterOptions, load_model
from quaver.adapters.onnxrt.adapter import OnnxAdapter
from quaver.diagnosis import make_profile
from quaver.formatting import milliseconds
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
    adapter = load_model(heavy(), AdapterOptions(threads=1))
    adapter.calibrate(samples())
    path = tmp_path_factory.mktemp("models") / "int8.onnx"
    adapter.assemble(TuningSpace(adapter.ops()).default_config()).save(path)
    adapter.close()
    return path


def test_the_times_of_ops_add_up_to_an_inference() -> None:
    """What calling the model takes is taken off, at most a half."""
    found = quaver.profile(heavy(), calib_dataloader=samples(), batch=16, threads=1, runs=40)
    assert found.latency.p50 / 2 <= found.latency.ops * (1 + 1e-9) and found.latency.ops <= found.latency.p50
    assert [row.seconds for row in found.rows] == sorted((row.seconds for row in found.rows), reverse=True)
    assert sum(row.share for row in found.rows) == pytest.approx(1.0)
    assert sum(row.seconds for row in found.rows) == pytest.approx(found.latency.ops)
    assert {row.name for row in found.rows} >= {f"conv{at}" for at in range(8)}
    latency = found.latency
    assert latency.p50 <= latency.p90 <= latency.p99 and latency.samples == 16 and latency.runs == 40
    assert latency.throughput == pytest.approx(16 / latency.mean)


def test_int8_is_compared_with_fp32_op_by_op(int8: Path) -> None:
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


def test_a_trial_can_be_compared_with_its_model(tmp_path: Path) -> None:
    result = quaver.fit(
        heavy(), calib_dataloader=samples(), eval_func=lambda model: 1.0, workspace=tmp_path / "run", max_trials=1,
        threads=1,
    )  # fmt: skip
    for against, history in ((result, None), (1, result.workspace), (result.best, result.history_path)):
        found = quaver.profile(heavy(), against, history=history, runs=2, warmup=0, threads=1)
        assert found.precisions["conv3"] == "int8"
    with pytest.raises(quaver.SettingsError, match="history"):
        quaver.profile(heavy(), 1)


def test_invalid_profile_settings_are_refused() -> None:
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


def test_the_profiler_overhead_is_subtracted_from_each_kernel() -> None:
    """Measured are 100, 10 and 0 us, each with 3 us for noting it, in calls of which 20 us are not execution."""
    from quaver.adapters.onnxrt.profile.benchmark import _kernels, _profiled

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
def test_a_slower_op_is_a_cause_only_if_every_repetition_agrees(slow: bool) -> None:
    from quaver.diagnosis.causes.advice import AllowedChoices
    from quaver.diagnosis.causes.op_evidence import ModelEvidence, OpEvidence
    from quaver.diagnosis.causes.registry import find_causes
    from quaver.diagnosis.recorder import OpRecord
    from quaver.introspection import OpContext
    from quaver.ops import FLOAT, INT8, Op, OpConfig

    op, context = Op("a", "Conv", ("a",), (OpConfig(INT8), FLOAT)), OpContext("a", "a")
    allowed = AllowedChoices([op], TuningSpace([op]))
    evidence = OpEvidence(op, None, INT8, context, OpRecord(context, None, {}), None, {}, {}, 0, allowed)
    causes = find_causes(
        ModelEvidence([evidence], [{"a": 2e-4}, {"a": 2.1e-4}], [{"a": 5e-4}, {"a": 4e-4 if slow else 2.2e-4}])
    )
    assert [(cause.kind, cause.rules) for cause in causes] == ([("slower", {"a": "fp32"})] if slow else [])
    if slow:
        assert causes[0].sentence == "it takes 0.4 ms in int8 and 0.21 ms in fp32 (1.9x slower)."
        (cause,) = find_causes(
            ModelEvidence([evidence], [{"a": 0.0}], [{"a": 5e-4}])
        )  # too short for the clock in fp32
        assert cause.sentence == "it takes 0.5 ms in int8 and 0 ms in fp32 (slower)."


@pytest.mark.parametrize("factor", [1e6, 1e-6])
def test_measured_times_of_a_real_op_reach_the_cause(factor: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both models are timed for real, twice; then int8 is made a million times slower or faster than it is.

    Whatever else the machine does at the time, there is only one right verdict.
    """
    measured: dict[bool, list[dict[str, float]]] = {True: [], False: []}
    measure = OnnxAdapter.op_seconds

    def stretched(self: OnnxAdapter, config: quaver.QuantConfig | None) -> dict[str, float]:
        seconds = measure(self, config)
        measured[config is None].append(seconds)
        slow = {"b": seconds["b"] * factor} if config is not None else {}
        return {name: taken * 1e-6 for name, taken in seconds.items()} | {"b": seconds["b"]} | slow

    monkeypatch.setattr(OnnxAdapter, "op_seconds", stretched)
    net = models.Net(16, 64)
    last = "x"
    for name in "abc":
        last = net.conv(name, last, models.noise(16, 16, 3, 3, seed=ord(name)))
    found = quaver.diagnose(net.model(last), None, models.images(4, 16, size=64), threads=1)
    for rounds in measured.values():
        assert len(rounds) == 2 and all(seconds[name] > 0 for seconds in rounds for name in "abc")
    before, after = max(taken["b"] for taken in measured[True]), min(taken["b"] for taken in measured[False]) * 1e6
    assert [cause.op for cause in found.causes] == (["b"] if factor > 1 else [])
    if found.causes:
        cause = found.causes[0]
        assert cause.kind == "slower" and cause.rules == {"b": "fp32"}
        assert f"in int8 and {milliseconds(before * 1e3)} in fp32 ({after / before:.1f}x slower)" in cause.sentence


def test_a_trial_is_timed_in_the_format_that_its_run_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Quantize and dequantize nodes would be timed for a run that writes integer operators."""
    result = quaver.fit(
        heavy(), calib_dataloader=samples(), eval_func=lambda model: 1.0, workspace=tmp_path / "run", max_trials=1,
        threads=1, quant_format="qoperator",
    )  # fmt: skip
    timed: list[bytes] = []
    time = OnnxAdapter.profile.__func__  # type: ignore[attr-defined]

    def noted(cls: type[OnnxAdapter], model: Any, *rest: Any) -> Timing:
        timed.append(model)
        return time(cls, model, *rest)

    monkeypatch.setattr(OnnxAdapter, "profile", classmethod(noted))
    model = quaver.recover(heavy(), result.workspace, 1)
    recovered = b"".join(map(bytes, model.chunks()))  # without its provenance
    assert {"QLinearConv"} <= {node.op_type for node in onnx.load_model_from_string(recovered).graph.node}
    for against, history in ((result, None), (1, result.workspace), (result.best, result.history_path)):
        found = quaver.profile(heavy(), against, history=history, runs=2, warmup=0, threads=1)
        assert timed[0] == recovered and found.precisions["conv3"] == "int8"
        timed.clear()


def test_models_that_cannot_be_compared_are_refused(tmp_path: Path) -> None:
    result = quaver.fit(
        heavy(), calib_dataloader=samples(), eval_func=lambda model: 1.0, workspace=tmp_path / "run", max_trials=1,
        threads=1,
    )  # fmt: skip
    with pytest.raises(quaver.SettingsError, match="the result has no best trial to profile"):
        quaver.profile(heavy(), replace(result, best=None))
    with pytest.raises(quaver.SettingsError, match="history holds many trials: name one"):
        quaver.profile(heavy(), history=result.workspace)
    with pytest.raises(quaver.SettingsError, match="a quantized model, or a history"):
        quaver.profile(heavy(), result.model_path, history=result.workspace)
    with pytest.raises(quaver.SettingsError, match="needs its calibration"):
        quaver.profile(heavy(), result.best)
    with pytest.raises(quaver.SettingsError, match=r"profile has no keyword 'data'; it has: model, against, ca"):
        quaver.profile(heavy(), data=samples())


def test_a_path_may_begin_with_the_home_folder(int8: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    onnx.save(heavy(), tmp_path / "float.onnx")
    (tmp_path / "int8.onnx").write_bytes(int8.read_bytes())
    found = quaver.profile("~/float.onnx", "~/int8.onnx", runs=1, warmup=0, threads=1)
    assert found.against is not None and found.save("~/profile.csv") == tmp_path / "profile.csv"
