"""Every column of every table equals an independent computation: the saved model, read and run by numpy alone."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from truth import METRICS, figures

import quaver
from quaver.adapters import AdapterOptions, load_model
from quaver.ops import QuantConfig
from quaver.space import TuningSpace

WIDTH, DEPTH, COUNT = 12, 3, 96


def model() -> onnx.ModelProto:
    """Products with a bias, alternating with Relu, which numpy computes as well."""
    random = np.random.default_rng(3)
    nodes, constants, last = [], [], "x"
    for at in range(DEPTH):
        weight = random.standard_normal((WIDTH, WIDTH)).astype(np.float32) / np.float32(np.sqrt(WIDTH))
        weight[at] *= 4
        constants += [numpy_helper.from_array(weight, f"w{at}")]
        nodes.append(helper.make_node("MatMul", [last, f"w{at}"], [f"product{at}"], f"product{at}"))
        nodes.append(helper.make_node("Relu", [f"product{at}"], [f"relu{at}"], f"relu{at}"))
        last = f"relu{at}"
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", WIDTH]) for name in ("x", last)]
    graph = helper.make_graph(nodes, "net", ends[:1], ends[1:], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def data() -> np.ndarray:
    return np.random.default_rng(4).standard_normal((COUNT, WIDTH)).astype(np.float32)


class Truth:
    """The float and the quantized model by numpy, from the bytes of the quantized one."""

    def __init__(self, config: QuantConfig | None) -> None:
        source = load_model(model(), AdapterOptions(threads=1, portable=True))
        source.calibrate(data())
        config = config or TuningSpace(source.ops()).default_config()
        self.built = onnx.load_model_from_string(source.assemble(config).SerializeToString())
        self.constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in self.built.graph.initializer}
        self.makers = {name: node for node in self.built.graph.node for name in node.output}
        self.weights = {f"product{at}": numpy_helper.to_array(model().graph.initializer[at]) for at in range(DEPTH)}
        source.close()

    def node(self, name: str) -> onnx.NodeProto:
        return next(node for node in self.built.graph.node if node.name == name)

    def scaled(self, tensor: str) -> tuple[float, int] | None:
        """Scale and zero point of what a node reads, if it is dequantized."""
        maker = self.makers.get(tensor)
        if maker is None or maker.op_type != "DequantizeLinear":
            return None
        scale, zero = (self.constants[name] for name in maker.input[1:3])
        return float(scale), int(zero)

    def weight(self, op: str) -> np.ndarray:
        """The weight that the quantized model computes with."""
        node = self.node(op)
        maker = self.makers.get(node.input[1])
        if maker is None:
            return np.asarray(self.constants[node.input[1]])
        values, scale, zero = (self.constants[name] for name in maker.input)
        return np.asarray((values.astype(np.float32) - zero) * scale)

    def rounded(self, values: np.ndarray, op: str) -> np.ndarray:
        known = self.scaled(self.node(op).input[0])
        if known is None:
            return values
        scale, zero = known
        steps = np.clip(np.rint(values / np.float32(scale)) + zero, 0, 255)
        return np.asarray((steps - zero) * np.float32(scale), np.float32)

    def run(self, quantized: bool) -> dict[str, np.ndarray]:
        """The output of each product, in the float or in the quantized model."""
        values, seen = data(), {}
        for op, weight in self.weights.items():
            values = self.rounded(values, op) @ self.weight(op) if quantized else values @ weight
            seen[op] = values
            values = np.maximum(values, 0)
        return seen

    def local(self) -> dict[str, np.ndarray]:
        """The output of each product in int8, from the inputs that it has in the float model."""
        before = [data(), *(np.maximum(values, 0) for values in self.run(False).values())]
        return {
            op: self.rounded(values, op) @ self.weight(op) for op, values in zip(self.weights, before, strict=False)
        }


CONFIGS = {
    "all int8": {},
    "one scale": {"op_type_dict": {"MatMul": {"weight": {"granularity": ["per_tensor"]}}}},
    "percentile, symmetric": {
        "op_type_dict": {"MatMul": {"activation": {"algorithm": ["percentile"], "scheme": ["sym"]}}}
    },
    "one op in fp32": {"op_name_dict": {"product1": "fp32"}},
}


@pytest.fixture(scope="module", params=CONFIGS)
def case(request: pytest.FixtureRequest) -> tuple[quaver.Diagnosis, Truth]:
    rules = CONFIGS[request.param]
    source = load_model(model(), AdapterOptions(threads=1, portable=True))
    from quaver.rules import apply_rules

    config = TuningSpace(apply_rules(source.ops(), **rules)).default_config()
    source.close()
    found = quaver.diagnose(
        model(), config, [data()[:50], data()[50:]], layer_metrics=METRICS, threads=1, timing=False,
        model_metrics={"argmax_accuracy": lambda f, q: np.argmax(f[0]) == np.argmax(q[0])},
    )  # fmt: skip
    return found, Truth(config)


def test_the_activations_summary(case: tuple[quaver.Diagnosis, Truth]) -> None:
    found, truth = case
    before, after = truth.run(False), truth.run(True)
    assert [row.mse for row in found.activations] == sorted((row.mse for row in found.activations), reverse=True)
    for row in found.activations:
        exact = before[row.op].astype(np.float64)
        assert row.mse == pytest.approx(np.mean((after[row.op] - exact) ** 2), rel=1e-3)
        assert (row.low, row.high) == (pytest.approx(exact.min(), rel=1e-5), pytest.approx(exact.max(), rel=1e-5))


def test_the_weights_summary(case: tuple[quaver.Diagnosis, Truth]) -> None:
    found, truth = case
    assert [row.mse for row in found.weights] == sorted((row.mse for row in found.weights), reverse=True)
    assert {row.op for row in found.weights} == set(truth.weights)
    for row in found.weights:
        before, after = truth.weights[row.op].astype(np.float64), truth.weight(row.op).astype(np.float64)
        assert row.mse == pytest.approx(np.mean((after - before) ** 2), rel=1e-5, abs=1e-15)
        for summary, values in ((row.before, before), (row.after, after)):
            assert summary.low == pytest.approx(values.min(), rel=1e-6)
            assert summary.high == pytest.approx(values.max(), rel=1e-6)
            assert summary.mean == pytest.approx(values.mean(), rel=1e-5)
            assert summary.deviation == pytest.approx(values.std(), rel=1e-5)
            assert summary.variance == pytest.approx(values.var(), rel=1e-5)


def test_the_layer_statistics(case: tuple[quaver.Diagnosis, Truth]) -> None:
    found, truth = case
    before, whole, local = truth.run(False), truth.run(True), truth.local()
    for row in (row for row in found.layers if row.tunable):
        for name, value in figures(before[row.op], whole[row.op]).items():
            assert row.cumulative[name] == pytest.approx(value, rel=2e-3, abs=2e-5), (row.op, name)
        known = truth.scaled(truth.node(row.op).input[0])
        if row.precision == "fp32":
            assert row.local["num_elements"] == 0 and not row.input_scales
            continue
        for name, value in figures(before[row.op], local[row.op]).items():
            assert row.local[name] == pytest.approx(value, rel=2e-3, abs=2e-5), (row.op, name)
        assert known is not None
        assert (row.input_scales[0], row.input_zero_points[0]) == (pytest.approx(known[0], rel=1e-6), known[1])
        assert row.scales == row.zero_points == ()  # a product writes float


def test_the_model_statistics_and_the_error_at_the_output(case: tuple[quaver.Diagnosis, Truth]) -> None:
    found, truth = case
    last = f"product{DEPTH - 1}"
    before, after = (np.maximum(truth.run(quantized)[last], 0) for quantized in (False, True))
    same = np.mean(before.argmax(axis=1) == after.argmax(axis=1))
    assert found.model_statistics == {"argmax_accuracy": pytest.approx(same, abs=0.011)}
    assert found.output_error == pytest.approx(np.sum((after - before) ** 2) / np.sum(before**2), rel=2e-3)
    assert found.samples == COUNT


def test_the_scale_of_an_int8_output_is_the_one_in_the_model() -> None:
    from diagnosis_models import chain, images

    found = quaver.diagnose(chain(), None, images(), threads=1, timing=False)
    with_ranges = load_model(chain(), AdapterOptions(threads=1, portable=True))
    with_ranges.calibrate(images())
    built = onnx.load_model_from_string(
        with_ranges.assemble(TuningSpace(with_ranges.ops()).default_config()).SerializeToString()
    )
    with_ranges.close()
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in built.graph.initializer}
    quantizers = {node.input[0]: node for node in built.graph.node if node.op_type == "QuantizeLinear"}
    for row in found.layers:
        node = quantizers.get(row.tensor) or quantizers[f"{row.tensor}|float"]
        assert row.scales == (pytest.approx(float(constants[node.input[1]])),)
        assert row.zero_points == (int(constants[node.input[2]]),)
