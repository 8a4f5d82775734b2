"""With `portable` no two neighbouring weights of an int8 kernel can overflow 16 bits, and no more is coarser for it."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import numpy_helper
from onnx_models import Array, Net, opened, space, weight

from quaver.adapters.onnxrt.build.affine import quantize_weight, weight_scale
from quaver.adapters.onnxrt.build.lstm import quantized
from quaver.adapters.onnxrt.build.saturation import bound_pairs, has_overflow, pair_peak, reduction_of
from quaver.ops import FLOAT, INT8, Op, OpConfig, QuantConfig

f32 = np.float32
# The shape of a weight, the axis of its output channels, and what its kernel sums over.
LAYOUTS = {
    "convolution": ((6, 5, 3, 3), 0, (2, 3, 1)),
    "convolution in one dimension": ((6, 4, 5), 0, (2, 1)),
    "convolution in three dimensions": ((4, 3, 2, 2, 2), 0, (2, 3, 4, 1)),
    "product": ((9, 7), 1, (0,)),
    "turned product": ((7, 10), 0, (1,)),
    "stack of products": ((2, 9, 5), None, (1,)),
}


def largest_sum(values: Array, reduction: tuple[int, ...]) -> int:
    """The largest sum of two neighbours of one sign, pair by pair and by definition."""
    outer = [dim for dim in range(values.ndim) if dim not in reduction]
    rows = values.transpose([*outer, *reduction]).reshape(-1, int(np.prod([values.shape[dim] for dim in reduction])))
    sums = [0]
    for row in rows.astype(int).tolist():
        sums += [abs(a + b) for a, b in zip(row[::2], row[1::2], strict=False) if a * b > 0]
    return max(sums)


@pytest.mark.parametrize("per_channel", [True, False])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_no_two_neighbours_add_up_to_more_than_128_steps(layout: str, per_channel: bool) -> None:
    shape, channels, reduction = LAYOUTS[layout]
    axis = channels if per_channel else None
    values = np.abs(weight(*shape)) * f32(-1 if per_channel else 1)
    plain = quantize_weight(values, axis, weight_scale(values, axis)).values
    bounded = quantize_weight(values, axis, weight_scale(values, axis, reduction), reduction).values
    assert largest_sum(plain, reduction) > 128 and has_overflow(plain, reduction)
    assert 120 < largest_sum(bounded, reduction) <= 128 and not has_overflow(bounded, reduction)
    assert np.abs(bounded.astype(int)).max() <= 127


@given(st.lists(st.floats(-1, 1, width=32), min_size=2, max_size=24), st.integers(0, 60))
def test_rounding_never_takes_a_pair_over_the_limit(numbers: list[float], exponent: int) -> None:
    values = np.array([numbers], f32) * f32(2.0**-exponent)
    scale = weight_scale(values, 0, (1,))
    bounded = quantize_weight(values, 0, scale, (1,)).values
    assert largest_sum(bounded, (1,)) <= 128
    # A step at most: half of one for rounding, and half of one if both of a pair were rounded up.
    assert np.abs(bounded * scale.astype(np.float64)[:, None] - values).max() <= 1.01 * scale.max()


@given(st.lists(st.integers(-127, 127), min_size=1, max_size=9))
def test_the_excess_of_a_pair_is_taken_from_both_weights(numbers: list[int]) -> None:
    values = np.array([numbers], np.int8)
    bounded = bound_pairs(values, (1,))
    assert bounded.dtype == np.int8 and bounded.shape == values.shape and largest_sum(bounded, (1,)) <= 128
    change = np.abs(values.astype(int) - bounded)
    assert change.max() <= 63
    if largest_sum(values, (1,)) <= 128:
        assert not change.any()


def test_a_channel_that_cannot_overflow_keeps_its_scale() -> None:
    values = np.array([[100, -20, -90, 100], [100, 90, 1, 1], [-100, -90, 5, 5]], f32)
    plain, bounded = weight_scale(values, 0), weight_scale(values, 0, (1,))
    assert bounded[0] == plain[0]
    assert bounded[1:] == pytest.approx(190 / 128)
    assert weight_scale(values, None, (1,)) == pytest.approx(190 / 128)
    # The order counts: here 100 and 100 are neighbours.
    assert pair_peak(values[:1, [0, 3, 1, 2]], 0, (1,)) == pytest.approx(200 * 127 / 128)


@pytest.mark.parametrize("per_channel", [True, False])
def test_an_lstm_is_bounded_in_each_direction(per_channel: bool) -> None:
    values = np.abs(weight(2, 8, 7))
    plain, _ = quantized(values, per_channel)
    bounded, scale = quantized(values, per_channel, portable=True)
    assert has_overflow(plain[0], (0,)) and has_overflow(plain[1], (0,))
    assert not has_overflow(bounded[0], (0,)) and not has_overflow(bounded[1], (0,))
    wide = scale[:, None, :] if per_channel else scale[:, None, None]
    assert np.abs(bounded * wide - np.swapaxes(values, 1, 2)).max() <= 1.01 * scale.max()


def network() -> onnx.ModelProto:
    """Convolutions (one depthwise, one in groups) and products; all weights have one sign, so that pairs overflow."""
    net = Net()
    x = net.input(None, 4, 8, 8)
    x = net.Relu(net.Conv(x, np.abs(weight(8, 4, 3, 3)), np.abs(weight(8)), pads=[1] * 4))
    x = net.Conv(x, np.abs(weight(8, 1, 3, 3)), group=8)
    x = net.Conv(x, np.abs(weight(8, 4, 3, 3, seed=1)), group=2)
    x = net.Flatten(net.GlobalAveragePool(x))
    x = net.Gemm(x, np.abs(weight(12, 8)), np.abs(weight(12)), transB=1)
    return net.model(net.MatMul(x, np.abs(weight(12, 5))))


def integer_weights(model: bytes) -> dict[str, Array]:
    """The int8 weights by the kernel that reads them, behind what dequantizes them."""
    graph = onnx.load_model_from_string(model).graph
    arrays = {entry.name: numpy_helper.to_array(entry) for entry in graph.initializer}
    makers = {name: node for node in graph.node for name in node.output}
    weights = {}
    for node in graph.node:
        for name in node.input:
            producer = makers.get(name)
            integers = producer.input[0] if producer is not None and producer.op_type == "DequantizeLinear" else name
            array = arrays.get(integers)
            is_weight = array is not None and array.dtype == np.int8 and array.ndim > 1
            if array is not None and is_weight and node.op_type != "DequantizeLinear":
                weights[node.name] = array
    return weights


def overflowing(model: Any, config: QuantConfig, portable: bool, **options: Any) -> dict[str, bool]:
    """Whether the weights of each kernel can overflow."""
    with opened(model, portable=portable, **options) as adapter:
        units = {unit.op.name: unit for unit in adapter._units}
        weights = integer_weights(adapter.assemble(config).SerializeToString())
        graph, found = adapter._builder.graph, {}
        for name, values in weights.items():
            kind = units[name].op.kind
            # A dynamic product reads its matrix the right way round.
            reduction = (0,) if kind == "Gemm" and config[name].mode == "dynamic" else reduction_of(graph, units[name])
            found[name] = has_overflow(values, reduction) if reduction is not None else False
        return found


def static(op: Op, granularity: str, repairs: tuple[str, ...] = ()) -> OpConfig:
    """How an op runs with calibrated ranges, and with this granularity if it is on offer."""
    offered = {choice.granularity for choice in op.choices if choice.calibrated}
    return OpConfig(INT8, granularity=granularity if granularity in offered else "per_tensor", repairs=repairs)


@pytest.mark.parametrize("granularity", ["per_channel", "per_tensor"])
def test_all_static_kernels_are_bounded(granularity: str) -> None:
    model = network()
    with opened(model) as adapter:
        config = QuantConfig({op.name: static(op, granularity) for op in adapter.ops()})
    assert sum(overflowing(model, config, portable=False).values()) == 4  # all but the depthwise one
    assert not any(overflowing(model, config, portable=True).values())


@pytest.mark.parametrize("quant_format", ["qdq", "qoperator"])
def test_a_portable_model_has_other_bytes_and_the_same_ones_every_time(quant_format: str) -> None:
    model, hashes = network(), []
    for portable in (True, True, False):
        with opened(model, portable=portable, quant_format=quant_format) as adapter:
            hashes.append(adapter.assemble(space(adapter).default_config()).sha256)
    assert hashes[0] == hashes[1] != hashes[2]


def test_dynamic_kernels_are_bounded_and_weights_alone_are_not_coarser() -> None:
    model = network()
    with opened(model) as adapter:
        products = [op.name for op in adapter.ops() if op.kind in ("Gemm", "MatMul")]
        floats = {op.name: FLOAT for op in adapter.ops()}
    for granularity in ("per_channel", "per_tensor"):
        config = QuantConfig(floats | dict.fromkeys(products, OpConfig(INT8, mode="dynamic", granularity=granularity)))
        assert all(overflowing(model, config, portable=False).values())
        assert not any(overflowing(model, config, portable=True).values())
    alone = QuantConfig(floats | dict.fromkeys(products, OpConfig(INT8, mode="weight_only")))
    with opened(model, portable=True) as bounded, opened(model) as plain:
        assert bounded.assemble(alone).sha256 == plain.assemble(alone).sha256


def test_a_depthwise_convolution_is_not_coarser() -> None:
    net = Net()
    model = net.model(net.Conv(net.input(None, 8, 6, 6), np.abs(weight(8, 1, 3, 3)), group=8))
    with opened(model, portable=True) as bounded, opened(model) as plain:
        config = space(plain).default_config()
        assert bounded.assemble(config).sha256 == plain.assemble(config).sha256


@pytest.mark.parametrize("repair", ["bias_correction", "smoothing:0.5", "equalisation"])
def test_repaired_weights_are_bounded(repair: str) -> None:
    model, name = network(), repair.partition(":")[0]
    with opened(model) as adapter:
        ops = {op.name: op for op in adapter.ops()}
    repaired = [op.name for op in ops.values() if name in {offered.partition(":")[0] for offered in op.repairs}]
    picks = {op.name: static(op, "per_channel", (repair,) if op.name in repaired else ()) for op in ops.values()}
    config = QuantConfig(picks)
    assert any(overflowing(model, config, portable=False)[op] for op in repaired)
    assert not any(overflowing(model, config, portable=True).values())
