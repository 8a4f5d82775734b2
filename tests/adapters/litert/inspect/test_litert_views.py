"""Every column of every table equals an independent computation: the .tflite file, read and run by numpy alone."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import yaml
from ai_edge_litert import schema_py_generated as schema
from keras import layers
from truth import METRICS, figures

import quaver
from quaver.adapters.litert.adapter import LiteRTAdapter
from quaver.adapters.options import AdapterOptions
from quaver.ops import QuantConfig
from quaver.rules import apply_rules
from quaver.space import TuningSpace

WIDTH, DEPTH, COUNT = 12, 3, 96
NAMES = [f"dense{at}" for at in range(DEPTH)]


def model() -> Any:
    """Dense layers with a bias and a Relu: what numpy can do as well."""
    random = np.random.default_rng(3)
    x = image = keras.Input((WIDTH,), name="x")
    for name in NAMES:
        layer = layers.Dense(WIDTH, activation="relu", name=name)
        x = layer(x)
        weight = random.standard_normal((WIDTH, WIDTH)).astype(np.float32) / np.float32(np.sqrt(WIDTH))
        weight[:, 2] *= 4
        layer.set_weights([weight, random.standard_normal(WIDTH).astype(np.float32)])
    return keras.Model(image, x, name="net")


def data() -> np.ndarray:
    return np.random.default_rng(4).standard_normal((COUNT, WIDTH)).astype(np.float32)


class File:
    """The tensors of a .tflite, by name, as they are written there."""

    def __init__(self, content: bytes) -> None:
        self.model = schema.ModelT.InitFromPackedBuf(content, 0)
        self.graph = self.model.subgraphs[0]

    def operator(self, name: str) -> Any:
        """The one that writes this tensor, and does not only quantize or dequantize it."""
        casts = (schema.BuiltinOperator.QUANTIZE, schema.BuiltinOperator.DEQUANTIZE)
        for operator in self.graph.operators:
            written = self.graph.tensors[operator.outputs[0]].name.decode()
            if written == name and self.model.operatorCodes[operator.opcodeIndex].builtinCode not in casts:
                return operator
        raise KeyError(name)

    def scale(self, tensor: int) -> tuple[Any, Any]:
        """Scales and zero points; of a float tensor none."""
        known = self.graph.tensors[tensor].quantization
        if known is None or known.scale is None:
            return None, None
        return np.asarray(known.scale, np.float32), np.asarray(known.zeroPoint, np.int64)

    def values(self, tensor: int) -> np.ndarray:
        """A constant."""
        entry = self.graph.tensors[tensor]
        buffer = self.model.buffers[entry.buffer]
        kinds = {0: np.float32, 2: np.int32, 9: np.int8}
        assert buffer.data is not None
        return np.frombuffer(np.asarray(buffer.data, np.uint8).tobytes(), kinds[entry.type]).reshape(entry.shape)


class Truth:
    """The float and the quantized model by numpy, from the bytes of the files."""

    def __init__(self, config: QuantConfig) -> None:
        source = LiteRTAdapter.load(model(), AdapterOptions(threads=1))
        source.calibrate(data())
        self.float = File(source.assemble(None).SerializeToString())
        self.int8 = File(source.assemble(config).SerializeToString())
        self.config = config

    def weight(self, op: str, quantized: bool) -> np.ndarray:
        file = self.int8 if quantized else self.float
        tensor = file.operator(op).inputs[1]
        scales, _ = file.scale(tensor)
        values = file.values(tensor)
        return values if scales is None else values.astype(np.float32) * scales.reshape(-1, 1)

    def scales(self, op: str) -> tuple[Any, Any]:
        """Of what an op reads, and of what it writes."""
        operator = self.int8.operator(op)
        return self.int8.scale(operator.inputs[0]), self.int8.scale(operator.outputs[0])

    def step(self, op: str, x: np.ndarray, quantized: bool) -> np.ndarray:
        """What an op makes of real numbers; in int8 it computes with integers, as the kernel does."""
        file = self.int8 if quantized else self.float
        operator = file.operator(op)
        weight, bias = (file.values(tensor) for tensor in operator.inputs[1:3])
        (read, read_zero), (write, write_zero) = self.scales(op)
        if not quantized or read is None:
            return np.maximum(x @ weight.T + bias, 0)
        steps = np.clip(np.rint(x / read) + read_zero, -128, 127).astype(np.int64) - read_zero
        sums = steps @ weight.astype(np.int64).T + bias
        scales = file.scale(operator.inputs[1])[0].astype(np.float64) * float(read[0]) / float(write[0])
        whole = np.clip(np.rint(sums * scales) + write_zero, write_zero, 127)
        return np.asarray((whole - write_zero) * write, np.float32)

    def run(self, quantized: bool) -> dict[str, np.ndarray]:
        """The output of each op, in the float or in the quantized model."""
        values, seen = data(), {}
        for op in NAMES:
            values = seen[op] = self.step(op, values, quantized)
        return seen

    def local(self) -> dict[str, np.ndarray]:
        """The output of each op in int8, from the inputs that it has in the float model."""
        before = [data(), *self.run(False).values()]
        return {op: self.step(op, values, True) for op, values in zip(NAMES, before, strict=False)}


CONFIGS: dict[str, dict[str, Any]] = {
    "all int8": {},
    "one scale": {"op_type_dict": {"FULLY_CONNECTED": {"weight": {"granularity": ["per_tensor"]}}}},
    "percentile": {"op_type_dict": {"FULLY_CONNECTED": {"activation": {"algorithm": ["percentile"]}}}},
    "one op in fp32": {"op_name_dict": {"dense1": "fp32"}},
}


@pytest.fixture(scope="module", params=CONFIGS)
def case(request: pytest.FixtureRequest) -> tuple[quaver.Diagnosis, Truth]:
    source = LiteRTAdapter.load(model(), AdapterOptions(threads=1))
    config = TuningSpace(apply_rules(source.ops(), **CONFIGS[request.param])).default_config()
    found = quaver.diagnose(
        model(), config, [data()[:50], data()[50:]], layer_metrics=METRICS, threads=1, timing=False,
        model_metrics={"argmax_accuracy": lambda f, q: np.argmax(f[0]) == np.argmax(q[0])},
    )  # fmt: skip
    return found, Truth(config)


def table(found: quaver.Diagnosis, folder: Path, name: str) -> dict[str, dict[str, str]]:
    """A table as it is written, by op."""
    with open(found.save(folder)[name], newline="") as file:
        rows = list(csv.DictReader(file))
    return {row.get("OP name") or row["op_name"]: row for row in rows}


def number(cell: str) -> float:
    return float(cell) if cell else float("nan")


def test_the_activations_summary(case: tuple[quaver.Diagnosis, Truth], tmp_path: Path) -> None:
    found, truth = case
    before, after = truth.run(False), truth.run(True)
    rows = table(found, tmp_path, "activations_table.csv")
    assert set(rows) == set(NAMES)
    assert [number(row["MSE"]) for row in rows.values()] == sorted((r.mse for r in found.activations), reverse=True)
    for op, row in rows.items():
        exact = before[op].astype(np.float64)
        assert number(row["MSE"]) == pytest.approx(np.mean((after[op] - exact) ** 2), rel=1e-3)
        assert number(row["Activation min"]) == pytest.approx(exact.min(), rel=1e-5)
        assert number(row["Activation max"]) == pytest.approx(exact.max(), rel=1e-5)


def test_the_weights_summary(case: tuple[quaver.Diagnosis, Truth], tmp_path: Path) -> None:
    found, truth = case
    rows = table(found, tmp_path, "weights_table.csv")
    assert set(rows) == set(NAMES)
    for op, row in rows.items():
        before, after = (truth.weight(op, quantized).astype(np.float64) for quantized in (False, True))
        assert number(row["MSE"]) == pytest.approx(np.mean((after - before) ** 2), rel=1e-5, abs=1e-15)
        assert (number(row["MSE"]) == 0) is (op not in truth.config.int8_ops)
        for side, values in (("Input", before), ("Optimized", after)):
            expected = [values.min(), values.max(), values.mean(), values.std(), values.var()]
            parts = ("min", "max", "mean", "standard deviation", "variance")
            assert [number(row[f"{side} model {part}"]) for part in parts] == pytest.approx(expected, rel=1e-5)


def test_the_layer_statistics(case: tuple[quaver.Diagnosis, Truth], tmp_path: Path) -> None:
    found, truth = case
    before, whole, local = truth.run(False), truth.run(True), truth.local()
    for op, row in table(found, tmp_path, "layer_statistics.csv").items():
        assert row["kind"] == "FULLY_CONNECTED" and row["tensor_name"] == op and row["not_finite"] == "0"
        for name, value in figures(before[op], whole[op]).items():
            assert number(row[f"cumulative_{name}"]) == pytest.approx(value, rel=2e-3, abs=2e-5), (op, name)
        int8 = op in truth.config.int8_ops
        assert row["precision"] == ("int8" if int8 else "fp32")
        if not int8:
            assert (
                number(row["num_elements"]) == 0 and row["scales"] == row["input_scales"] == "[]" and not row["error"]
            )
            continue
        for name, value in figures(before[op], local[op]).items():
            assert number(row[name]) == pytest.approx(value, rel=2e-3, abs=2e-5), (op, name)
        (read, read_zero), (write, write_zero) = truth.scales(op)
        assert yaml.safe_load(row["input_scales"]) == pytest.approx(list(map(float, read)))
        assert yaml.safe_load(row["scales"]) == pytest.approx(list(map(float, write)))
        assert yaml.safe_load(row["input_zero_points"]) == list(read_zero)
        assert yaml.safe_load(row["zero_points"]) == list(write_zero)
        assert number(row["error"]) >= 0.998 * 10 ** (-figures(before[op], local[op])["sqnr"] / 10)


def test_the_model_statistics_and_the_error_at_the_output(case: tuple[quaver.Diagnosis, Truth]) -> None:
    found, truth = case
    before, after = (truth.run(quantized)[NAMES[-1]] for quantized in (False, True))
    same = np.mean(before.argmax(axis=1) == after.argmax(axis=1))
    assert found.model_statistics == {"argmax_accuracy": pytest.approx(same, abs=0.011)}
    assert found.output_error == pytest.approx(np.sum((after - before) ** 2) / np.sum(before**2), rel=2e-3)
    assert found.samples == COUNT


def test_a_local_op_runs_the_kernel_of_the_whole_model() -> None:
    """The first op reads the same in both; what it writes must be the same, value by value."""
    source = LiteRTAdapter.load(model(), AdapterOptions(threads=1))
    source.calibrate(data())
    view = source.inspect_quantized(TuningSpace(source.ops()).default_config())
    local, whole = view.local(NAMES, ["x"])({"x": data()}), view.quantized(NAMES)({"x": data()})
    np.testing.assert_array_equal(local.ops[NAMES[0]][1].values, whole.ops[NAMES[0]].values)  # type: ignore[union-attr]
    np.testing.assert_array_equal(local.tensors["x"], data())
