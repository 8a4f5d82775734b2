"""What OpenVINO's execution graph says of random configurations, and how near its outputs are to ONNX Runtime's."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx_models import Net, data, space, weight
from openvino_graphs import (
    attention,
    decoder,
    needs_bf16,
    opened,
    random_config,
    recurrent,
    relative_error,
    residual_cnn,
)

from quaver.adapters.openvino.execution_graph import FLOAT_KINDS, INTEGER_KINDS
from quaver.ops import BFLOAT, FLOAT

MODELS = [residual_cnn, attention, decoder]
COMPARED = INTEGER_KINDS | FLOAT_KINDS


@pytest.mark.parametrize("build", MODELS)
def test_ops_run_in_the_precision_of_the_configuration(build: Callable[[], onnx.ModelProto]) -> None:
    with opened(build()) as adapter:
        ops, rng = space(adapter), np.random.default_rng(0)
        configs = [
            ops.default_config(),
            ops.all_fp32(),
            *(random_config(ops, rng, {"int8", "fp32"}) for _ in range(20)),
        ]
        compared = 0
        for config in configs:
            executed = adapter.executed_precisions(config)
            for name, choice in config.items():
                if ops[name].kind in COMPARED and choice.mode != "weight_only":
                    assert executed[name] == choice.precision, (name, str(choice))
                    compared += 1
        assert compared > 20 * 3


@needs_bf16
@pytest.mark.parametrize("build", [*MODELS, recurrent])
def test_ops_run_in_bf16_fp32_and_int8_as_the_configuration_says(build: Callable[[], onnx.ModelProto]) -> None:
    with opened(build()) as adapter:
        ops, rng = space(adapter), np.random.default_rng(0)
        compared = dict.fromkeys(("int8", "bf16", "fp32"), 0)
        in_bf16 = ops.configure(lambda op: BFLOAT if BFLOAT in op.choices else FLOAT)
        for config in [in_bf16, *(random_config(ops, rng, {"int8", "bf16", "fp32"}) for _ in range(20))]:
            executed = adapter.executed_precisions(config)
            for name, choice in config.items():
                if ops[name].kind in COMPARED and choice.mode != "weight_only":
                    assert executed[name] == choice.precision, (name, str(choice), config.fingerprint)
                    compared[choice.precision] += 1
        assert min(compared.values()) > 20, compared


@pytest.mark.parametrize("build", MODELS)
def test_outputs_are_those_of_the_file_in_onnx_runtime(build: Callable[[], onnx.ModelProto]) -> None:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    with opened(build()) as adapter:
        ops, rng, feed = space(adapter), np.random.default_rng(1), data(adapter)[0]
        for config in [None, ops.default_config(), *(random_config(ops, rng, {"int8", "fp32"}) for _ in range(6))]:
            model = adapter.build(config)
            reference = ort.InferenceSession(model.SerializeToString(), options).run(None, feed)[0]
            assert relative_error(reference, model(feed)) < 0.02


def test_an_int8_convolution_that_is_read_twice_is_computed_right() -> None:
    net = Net()
    x = net.input("n", 8, 8, 8)
    a = net.Conv(x, weight(8, 8, 3, 3), pads=[1, 1, 1, 1])
    b = net.Conv(net.Relu(net.Conv(a, weight(8, 8, 3, 3), pads=[1, 1, 1, 1])), weight(8, 8, 1, 1))
    with opened(net.model(net.Add(a, b))) as adapter:
        ops, feed = space(adapter), data(adapter)[0]
        reference = adapter.build(None)(feed)
        for name in ops.tunable:
            alone = ops.all_fp32().replace({name: ops.default_config()[name]})
            assert relative_error(reference, adapter.build(alone)(feed)) < 0.1, name


def test_choices_that_openvino_does_not_run_are_not_offered() -> None:
    with opened(attention()) as adapter:
        choices = [choice for op in adapter.ops() for choice in (*op.choices, *op.smaller)]
        assert {choice.mode for choice in choices if choice.quantized} == {"static", "weight_only"}
        assert {choice.precision for choice in choices} <= {"int8", "bf16", "fp32"}
        products = [op for op in adapter.ops() if op.kind == "MatMul" and op.quantizable]
        assert len(products) == 4  # not the two of two activations
