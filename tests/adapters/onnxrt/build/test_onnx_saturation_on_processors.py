"""What ONNX Runtime computes without VNNI, on an emulated processor: which sums saturate, and that `portable` helps."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import onnx
import pytest
from emulator import needs_emulator, on_haswell
from onnx_models import Array, Net, opened, space, weight

from quaver.adapters.onnxrt.adapter import OnnxAdapter
from quaver.adapters.onnxrt.build.saturation import has_overflow, reduction_of
from quaver.adapters.onnxrt.ops.blocks import INT4_PER_BLOCK
from quaver.ops import FLOAT, INT8, OpConfig, QuantConfig
from quaver.processors import this_processor

pytestmark = [
    needs_emulator,
    pytest.mark.skipif(not this_processor().has_vnni, reason="this processor saturates like the emulated one"),
]
f32 = np.float32


def pairs(*shape: int) -> Array:
    """A weight with an output channel, the first axis, for every two of its other places, which hold ones."""
    places = list(itertools.combinations(range(int(np.prod(shape))), 2))
    values = np.zeros((len(places), int(np.prod(shape))), f32)
    for row, place in zip(values, places, strict=True):
        row[list(place)] = 1
    return values.reshape(len(places), *shape)


def every_pair() -> onnx.ModelProto:
    """Kernels that read ones, with an output channel for every pair of weights."""
    net = Net()
    image, odd, line, row = (
        net.input(1, 4, 3, 3, name="image"),
        net.input(1, 3, 2, 2, name="odd"),
        net.input(1, 3, 5, name="line"),
        net.input(2, 9, name="row"),
    )
    grouped = np.concatenate([pairs(2, 3, 3)] * 2)
    outputs = [
        net.Conv(image, pairs(4, 3, 3), name="even channels"),
        net.Conv(image, grouped, group=2, name="groups"),
        net.Conv(odd, pairs(3, 2, 2), name="odd channels"),
        net.Conv(net.input(1, 7, 2, 2, name="point"), pairs(7, 1, 1), name="one by one"),
        net.Conv(line, pairs(3, 5), name="one dimension"),
        net.Conv(net.input(1, 2, 2, 2, 2, name="cube"), pairs(2, 2, 2, 2), name="three dimensions"),
        net.MatMul(row, np.ascontiguousarray(pairs(9).T), name="product"),
        net.Gemm(row, pairs(9), transB=1, name="turned product"),
        net.Gemm(net.input(1, 9, name="single"), pairs(9), transB=1, name="one row"),
    ]
    return net.model(*outputs)


def ones(adapter: OnnxAdapter) -> dict[str, Array]:
    """Inputs that are quantized to 255."""
    return {spec.name: np.ones([dim or 1 for dim in spec.shape or ()], f32) for spec in adapter.inputs}


def test_exactly_the_predicted_pairs_overflow(tmp_path: Path) -> None:
    model = every_pair()
    with opened(model, calibrate=False, optimise_float=False) as adapter:
        feed = ones(adapter)
        adapter.calibrate([feed])
        path = adapter.assemble(space(adapter).default_config()).save(tmp_path / "pairs.onnx")
        here, there = on_haswell(path, feed)
        for unit, native, emulated in zip(adapter._units, here, there, strict=True):
            reduction = reduction_of(adapter._builder.graph, unit)
            assert reduction is not None and unit.weight is not None
            values = adapter._builder.store.array(unit.weight)
            by_channel = np.moveaxis(values, unit.axis or 0, 0)
            steps = (127 * by_channel).astype(np.int8)
            # A channel has the axes of the weight but its own.
            axes = tuple(dim - (dim > (unit.axis or 0)) for dim in reduction)
            expected = [has_overflow(channel, axes) for channel in steps]
            output_axis = 1
            off = np.abs(native - emulated).max(axis=tuple(d for d in range(native.ndim) if d != output_axis))
            assert (off > 0.1).tolist() == expected, unit.op.name
            assert 0 < sum(expected) < len(expected)


def test_kernels_predicted_not_to_saturate_do_not(tmp_path: Path) -> None:
    net = Net()
    image, line = net.input(1, 8, 6, 6, name="image"), net.input(1, 8, 9, name="line")
    one, other = net.input(4, 16, name="one"), net.input(16, 5, name="other")
    alone = net.input(4, 64, name="alone")
    outputs = [
        net.Conv(image, np.ones((8, 1, 3, 3), f32), group=8),
        net.Conv(image, np.ones((8, 1, 5, 5), f32), group=8, dilations=[1, 1]),
        net.Conv(image, np.ones((8, 1, 3, 3), f32), group=8, dilations=[2, 2], strides=[2, 2]),
        net.Conv(line, np.ones((8, 1, 3), f32), group=8),
        net.MatMul(one, other),
        net.MatMul(alone, np.ones((64, 64), f32), name="eight bits"),
        net.MatMul(alone, np.ones((64, 64), f32), name="four bits"),
    ]
    with opened(net.model(*outputs), calibrate=False, optimise_float=False) as adapter:
        feed = ones(adapter)
        adapter.calibrate([feed])
        alone_in = {"eight bits": OpConfig(INT8, mode="weight_only"), "four bits": INT4_PER_BLOCK}
        config = QuantConfig({**space(adapter).default_config(), **alone_in})
        path = adapter.assemble(config).save(tmp_path / "safe.onnx")
    for native, emulated in zip(*on_haswell(path, feed), strict=True):
        assert native == pytest.approx(emulated, rel=1e-6)


def lstm_model() -> onnx.ModelProto:
    """A convolution, an LSTM, and products; all weights and activations above zero."""
    net = Net()
    x = net.Relu(net.Conv(net.input(1, 4, 6, 6, name="x"), np.abs(weight(8, 4, 3, 3)), np.abs(weight(8))))
    x = net.Reshape(x, np.array([4, 1, 32]))
    w, r = np.abs(weight(1, 64, 32)) / f32(9), np.abs(weight(1, 64, 16)) / f32(9)
    x = net.LSTM(x, w, r, hidden_size=16)
    x = net.Gemm(net.Reshape(x, np.array([4, 16])), np.abs(weight(12, 16)), transB=1, name="dynamic")
    return net.model(net.MatMul(x, np.abs(weight(12, 5)), name="static"))


@pytest.mark.parametrize(("portable", "quant_format"), [(False, "qdq"), (True, "qdq"), (True, "qoperator")])
def test_a_portable_model_gives_the_same_answers_and_another_does_not(
    tmp_path: Path, portable: bool, quant_format: str
) -> None:
    feed = {"x": np.abs(weight(1, 4, 6, 6, seed=5)) + f32(1)}
    with opened(lstm_model(), calibrate=False, portable=portable, quant_format=quant_format) as adapter:
        adapter.calibrate([feed, {"x": np.zeros((1, 4, 6, 6), f32)}])
        picks = {op.name: next(c for c in op.choices if c != FLOAT) for op in adapter.ops()}
        config = QuantConfig({**picks, "dynamic": OpConfig(INT8, mode="dynamic")})
        assert config["LSTM_3"].mode == "dynamic" and config["static"].mode == "static"
        (native,), (emulated,) = on_haswell(adapter.assemble(config).save(tmp_path / "model.onnx"), feed)
    if portable:
        assert emulated == pytest.approx(native, rel=1e-5)
    else:
        assert np.abs(emulated - native).max() > 0.05 * np.abs(native).max()
