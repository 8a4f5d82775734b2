"""Where the time of a .tflite goes: op by op, end to end, and int8 beside fp32."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import keras
import litert_models as models
import numpy as np
import pytest
from keras import layers

import quaver
from quaver.adapters.litert.adapter import LiteRTAdapter
from quaver.adapters.litert.inspect.matching import weight_of
from quaver.adapters.litert.load.graph import Graph, Operator
from quaver.adapters.litert.profile import benchmark as timing
from quaver.adapters.litert.profile.benchmark import TimingEffort, measure
from quaver.adapters.litert.run.session import Session
from quaver.adapters.options import AdapterOptions
from quaver.space import TuningSpace

NAMES = [f"conv{at}" for at in range(6)]


def heavy() -> Any:
    """Some milliseconds of work."""
    keras.utils.set_random_seed(0)
    x = image = keras.Input((48, 48, 32), name="x")
    for name in NAMES:
        x = layers.Conv2D(32, 3, padding="same", activation="relu", name=name)(x)
    return keras.Model(image, x, name="net")


def samples(count: int = 4) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((count, 48, 48, 32)).astype(np.float32)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The float and the int8 model."""
    folder = tmp_path_factory.mktemp("models")
    adapter = LiteRTAdapter.load(heavy(), AdapterOptions(threads=1))
    adapter.calibrate(samples())
    int8 = adapter.assemble(TuningSpace(adapter.ops()).default_config()).save(folder / "int8.tflite")
    return adapter.assemble(None).save(folder / "float.tflite"), int8


# What calling a model takes, one multiplication, and a loop.
CALL, PRODUCT, LOOP = 1e-5, 1e-9, 1e-3


class Work(Session):
    """A real session whose graph is known."""

    def __init__(self, content: bytes, *rest: Any, **options: Any) -> None:
        super().__init__(content, *rest, **options)
        self.graph = Graph(content)

    def seconds(self, _: Any) -> float:
        """Run it, and tell what it would take if time were work; no machine is as quiet as that."""
        self.interpreter.invoke()
        shapes = {entry["index"]: entry["shape"] for entry in self.interpreter.get_tensor_details()}
        return CALL + sum(self._of(op, shapes) for op in self.graph.operators)

    def _of(self, op: Operator, shapes: dict[int, Any]) -> float:
        if op.kind == "WHILE":
            return LOOP
        weight = weight_of(self.graph, op)
        each = 1 if weight is None else np.prod(shapes[weight]) / shapes[op.outputs[0]][-1]
        return float(PRODUCT * each * np.prod(shapes[op.outputs[0]]))


@pytest.fixture
def time_is_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "Session", Work)
    monkeypatch.setattr(timing, "_seconds", Work.seconds)


@pytest.mark.usefixtures("time_is_work")
def test_op_times_add_up_to_the_latency_in_int8_and_fp32(files: tuple[Path, Path]) -> None:
    found = quaver.profile(files[0], files[1], samples(), batch=2, threads=1, runs=20, warmup=3)
    rows = {row.name: row for row in found.rows}
    assert set(rows) == set(NAMES) and found.precisions == dict.fromkeys(NAMES, "int8")
    for row in found.rows:
        assert row.kernel == "CONV_2D" and row.count == 1 and row.ratio > 0
        assert row.against is not None and row.against[0].startswith("CONV_2D int8")
    assert rows["conv0"].against is not None and rows["conv0"].against[1] == 2  # with the QUANTIZE before it
    assert [row.seconds for row in found.rows] == sorted((row.seconds for row in found.rows), reverse=True)
    assert sum(row.share for row in found.rows) == pytest.approx(1.0)
    assert found.against is not None
    for latency in (found.latency, found.against):
        assert latency.ops == pytest.approx(latency.p50 - CALL, rel=1e-6)
        assert latency.p50 <= latency.p90 <= latency.p99 and latency.samples == 2 and latency.runs == 20
        assert latency.throughput == pytest.approx(2 / latency.mean) and latency.threads == 1


@pytest.mark.usefixtures("time_is_work")
def test_ops_of_equal_work_take_equal_time(files: tuple[Path, Path]) -> None:
    """Six convolutions of the same size: each must get a sixth, wherever it stands."""
    found = quaver.profile(files[0], calib_dataloader=samples(), batch=2, threads=1, runs=10)
    assert [row.share for row in found.rows] == pytest.approx([1 / 6] * 6, rel=1e-6)


@pytest.mark.usefixtures("time_is_work")
def test_an_op_with_four_times_the_work_takes_four_times_as_long() -> None:
    x = image = keras.Input((32, 32, 32), name="x")
    x = layers.Conv2D(32, 3, padding="same", name="narrow")(x)
    x = layers.Conv2D(128, 3, padding="same", name="wide")(x)
    rows = {row.name: row.seconds for row in quaver.profile(keras.Model(image, x, name="net"), threads=1, runs=10).rows}
    assert rows["wide"] / rows["narrow"] == pytest.approx(4, rel=1e-6)
    assert rows["narrow"] == pytest.approx(PRODUCT * 9 * 32 * 32 * 32 * 32, rel=1e-6)


def test_the_clock_is_read_for_every_op(files: tuple[Path, Path]) -> None:
    found = quaver.profile(files[0], threads=1, runs=3)
    assert {row.name for row in found.rows} == set(NAMES) and 0 < found.latency.p50 <= found.latency.p99
    assert found.latency.ops == pytest.approx(sum(row.seconds for row in found.rows)) and found.latency.ops > 0


def test_a_quantized_file_can_be_profiled_by_itself(files: tuple[Path, Path]) -> None:
    found = quaver.profile(files[1], threads=1, runs=3, warmup=1)
    kernels = {row.kernel for row in found.rows}
    assert kernels == {"CONV_2D int8", "QUANTIZE", "DEQUANTIZE"} and found.against is None
    assert {name for name, how in found.precisions.items() if how == "int8"} == set(NAMES)


def test_every_form_of_a_model_can_be_profiled(forms: dict[str, Any]) -> None:
    for name in ("object", "saved_model", "bytes"):
        found = quaver.profile(forms[name], forms["tflite"], batch=3, threads=1, runs=2, warmup=0)
        assert found.latency.samples == 3 and found.latency.ops > 0, name
        assert set(models.LAYERS) <= {row.name for row in found.rows}, name


def test_a_trial_can_be_compared_with_its_model(digits_model: Any, tmp_path: Path) -> None:
    result = quaver.fit(
        digits_model, calib_dataloader=models.digits()[0][:32], eval_func=lambda model: 1.0, workspace=tmp_path,
        strategy="basic", max_trials=1, threads=1,
    )  # fmt: skip
    found = quaver.profile(digits_model, result, runs=2, warmup=0, threads=1)
    assert found.precisions["block1_depthwise"] == "int8" and found.against is not None


def test_models_with_state_and_open_shapes_can_be_timed() -> None:
    recurrent = quaver.profile(models.recurrent(), runs=2, warmup=0, threads=1)
    assert {"before", "after"} <= {row.name for row in recurrent.rows} and recurrent.latency.ops > 0
    tokens = np.zeros((2, 7), np.int32)
    assert quaver.profile(models.transformer(), None, tokens, batch=2, runs=2, threads=1).latency.samples == 2
    with pytest.raises(quaver.SettingsError, match="leaves more than the batch open"):
        quaver.profile(models.transformer(), runs=1)


@pytest.mark.usefixtures("time_is_work")
def test_control_flow_gets_the_remaining_time() -> None:
    """A loop does not run as a model of its own; its time is the rest, and not spread over the other ops."""
    import tensorflow as tf

    weight = tf.constant(np.eye(64, dtype=np.float32) * 0.9)

    @tf.function(input_signature=[tf.TensorSpec([8, 64], name="x")])
    def run(x: Any) -> Any:
        turns = tf.cast(tf.reduce_max(tf.abs(x)) * 0 + 30, tf.int32)
        y = tf.while_loop(lambda i, _: i < turns, lambda i, y: (i + 1, tf.tanh(tf.matmul(y, weight))), [0, x])[1]
        return tf.matmul(y, weight, name="last")

    graph = Graph(LiteRTAdapter.load(run, AdapterOptions(threads=1)).assemble(None).SerializeToString())
    feed = {"x": np.random.default_rng(0).standard_normal((8, 64)).astype(np.float32)}
    latencies, seconds = measure(graph, feed, 1, TimingEffort(2, 20, 1.0))
    loop = next(op.index for op in graph.operators if op.kind == "WHILE")
    assert seconds[loop] == pytest.approx(LOOP, rel=0.02) and seconds[loop] == max(seconds)
    assert sum(seconds) == pytest.approx(np.median(latencies) - CALL, rel=1e-3)


def test_the_command_prints_the_table_and_writes_it(files: tuple[Path, Path], tmp_path: Path) -> None:
    script = Path(sys.executable).with_name("quaver")
    place = tmp_path / "profile.csv"
    done = subprocess.run(
        [script, "profile", files[0], "--against", files[1], "--runs", "3", "--threads", "1", "-o", place],
        capture_output=True, text=True, check=True, env={**os.environ, "NO_COLOR": "1"},
    )  # fmt: skip
    assert "CONV_2D int8" in done.stdout and "against / first:" in done.stdout and "p99" in done.stdout
    with open(place, newline="") as file:
        assert {row["op"] for row in csv.DictReader(file)} == set(NAMES)
    json_form = subprocess.run(
        [script, "profile", files[1], "--runs", "2", "--threads", "1", "--json"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert json.loads(json_form.stdout)["latency"]["p50"] > 0
