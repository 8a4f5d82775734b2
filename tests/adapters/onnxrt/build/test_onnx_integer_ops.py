"""HardSigmoid in int8: its integers are clipped where that is exact enough, else a lookup table is used."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx_models import Array, Net, kernels, opened, random_config, space, weight

import quaver
from quaver.adapters.onnxrt.build.integer_ops import STEPS, clipped_integers
from quaver.affine import QuantizationParameters

SAME = {"pads": [1, 1, 1, 1]}
# With the first, x stays within the ends of a hard-sigmoid; with the second it goes beyond them.
NARROW, USUAL = 0.1, 1.5


def swish(factor: float, **gate: float) -> onnx.ModelProto:
    """x HardSigmoid(x) between two convolutions; x is as large as the factor makes it."""
    net = Net()
    x = net.Conv(net.input(2, 4, 8, 8), factor * weight(4, 4, 3, 3), name="before", **SAME)
    y = net.Mul(x, net.HardSigmoid(x, name="gate", **(gate or {"alpha": 1 / 6})), name="product")
    return net.model(net.Conv(y, weight(4, 4, 1, 1), name="behind"))


def hard_sigmoid(x: Array, slope: float, shift: float) -> Array:
    return np.clip(slope * x + shift, 0, 1)


def parameters(step: float, zero: int) -> QuantizationParameters:
    return QuantizationParameters(np.asarray(step, np.float32), np.asarray(zero, np.uint8))


@pytest.mark.parametrize(("slope", "shift"), [(1 / 6, 0.5), (0.2, 0.5), (1, 0.1)])
@pytest.mark.parametrize("step", [0.011, 0.04, 0.09])
def test_clipped_integers_are_the_result_of_the_hard_sigmoid(slope: float, shift: float, step: float) -> None:
    found = clipped_integers(parameters(step, 150), slope, shift)
    high = 150 + (1 - shift) / (slope * step)
    if found is None:
        low = 150 - shift / (slope * step)
        assert low < 0 or high - low < STEPS + 1
        return
    integers = np.arange(256)
    made = (np.clip(integers, found.low, found.high) - float(found.parameters.zero_point)) * found.parameters.scale
    expected = hard_sigmoid((integers - 150) * step, slope, shift)
    assert np.abs(made - expected).max() <= 0.51 * slope * step  # half a step of x
    assert made.min() == 0 and (made[-1] == pytest.approx(1) or high > 255)


def test_integers_are_clipped_where_x_reaches_both_ends() -> None:
    with opened(swish(USUAL)) as adapter:
        config = space(adapter).default_config()
        assert kernels(adapter, config)["gate"] == "Clip" and kernels(adapter, config)["product"] == "QLinearMul"
        feed = {name: np.asarray(values) for name, values in adapter.probe_samples[0].items()}
        seen = adapter.record_outputs(config, ["before", "gate", "product"])(feed)
        step = float(np.ptp(seen["before"])) / 255
        assert np.abs(seen["gate"] - hard_sigmoid(seen["before"], 1 / 6, 0.5)).max() < 0.6 * step / 6
        assert np.abs(seen["product"] - seen["before"] * seen["gate"]).max() < np.abs(seen["product"]).max() / 200


def test_a_lookup_table_is_used_where_x_does_not_reach_the_lower_end() -> None:
    with opened(swish(NARROW)) as adapter:
        config = space(adapter).default_config()
        assert kernels(adapter, config)["gate"] == "QLinearLeakyRelu"
        seen = adapter.record_outputs(config, ["before", "gate"])(
            {name: np.asarray(x) for name, x in adapter.probe_samples[0].items()}
        )
        assert np.abs(seen["gate"] - hard_sigmoid(seen["before"], 1 / 6, 0.5)).max() < 1 / 255


def test_x_from_a_float_op_is_quantized_for_the_hard_sigmoid() -> None:
    with opened(swish(USUAL)) as adapter:
        config = space(adapter).default_config().fallback("before")
        assert kernels(adapter, config)["gate"] == "QLinearLeakyRelu"


@pytest.mark.parametrize("factor", [NARROW, USUAL])
def test_kernels_match_any_mixed_precision_config(factor: float) -> None:
    with opened(swish(factor)) as adapter:
        ops, rng = space(adapter), np.random.default_rng(3)
        for _ in range(8):
            config = random_config(ops, rng)
            assert set(kernels(adapter, config)) == set(config.quantized_ops)


@pytest.mark.parametrize("factor", [NARROW, USUAL])
def test_a_file_is_read_as_it_was_written(factor: float) -> None:
    model = swish(factor)
    with opened(model) as adapter:
        feeds, built = list(adapter.probe_samples), adapter.build(space(adapter).default_config()).model
    told = quaver.diagnose(model, built.SerializeToString(), feeds, timing=False)
    rows = {row.op: row for row in told.layers}
    assert told.precisions["product"] == "int8" and 0 < rows["gate"].error < 1e-4
    assert 0 < rows["product"].error < 1e-3
