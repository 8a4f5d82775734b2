"""Convolutions with weights of four bits: unpacked by standard operators, rounded by second moments of patches."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx_models import Net, opened, tensor, weight

from quaver.adapters.onnxrt.adapter import OnnxAdapter
from quaver.adapters.onnxrt.build.rounding import Source
from quaver.adapters.options import AdapterOptions
from quaver.ops import FLOAT, QuantConfig

CHANNELS, OUT = 8, 64


def network(**attributes: object) -> onnx.ModelProto:
    net = Net()
    x = net.input("batch", CHANNELS, 12, 12)
    y = net.Conv(x, weight(OUT, CHANNELS, 3, 3, seed=1), np.arange(OUT, dtype=np.float32), name="conv", **attributes)
    return net.model(tensor(y, "batch", OUT, None, None))


def images(count: int = 6) -> list[np.ndarray]:
    rng = np.random.default_rng(4)
    smooth = rng.standard_normal((count, 1, CHANNELS, 4, 4)).repeat(3, 3).repeat(3, 4)
    return list(np.float32(smooth + 0.1 * rng.standard_normal((count, 1, CHANNELS, 12, 12))))


@pytest.mark.parametrize(
    "attributes", [{"pads": [1, 1, 1, 1]}, {"strides": [2, 1], "pads": [0, 1, 2, 0]}, {"dilations": [2, 3]}]
)
def test_patches_times_the_kernel_are_the_convolution(attributes: dict[str, object]) -> None:
    model = network(**attributes)
    (node,) = [node for node in model.graph.node if node.op_type == "Conv"]
    source = Source.of_convolution(node, (OUT, CHANNELS, 3, 3))
    assert source is not None
    (image,) = images(1)
    rows = source.rows(image, 10**6)
    with opened(model, calibrate=False) as adapter:
        expected = adapter.assemble(None)(image)
    kernel = weight(OUT, CHANNELS, 3, 3, seed=1).reshape(OUT, -1)
    actual = (rows @ kernel.T + np.arange(OUT)).T.reshape(expected.shape)
    np.testing.assert_allclose(actual, expected, rtol=1e-3, atol=1e-3)
    assert len(source.rows(image, 7)) == 7


def test_groups_and_computed_padding_have_no_patches() -> None:
    for attributes in ({"group": 2}, {"auto_pad": "SAME_UPPER"}):
        node = onnx.helper.make_node("Conv", ["x", "w"], ["y"], **attributes)
        assert Source.of_convolution(node, (8, 4, 3, 3)) is None


def test_a_convolution_in_four_bits_is_small_and_rounding_lowers_its_error() -> None:
    adapter = OnnxAdapter.load(network(pads=[1, 1, 1, 1]), AdapterOptions(threads=1, small_files=True))
    adapter.calibrate(images())
    (op,) = adapter.ops()
    plain, rounded = op.smaller
    assert plain == replace(rounded, repairs=()) and rounded.repairs == ("rounding",)
    assert plain.block_size == 32  # a row has 72 numbers: larger blocks would be padded with more
    image = images(8)[-1]
    expected = adapter.assemble(None)(image)
    errors = {}
    for choice in (plain, rounded):
        model = adapter.assemble(QuantConfig([(op.name, choice)]))
        errors[choice] = float(np.linalg.norm(model(image) - expected))
        assert model.size < 0.5 * adapter.assemble(None).size
        onnx.checker.check_model(model.model)
    assert errors[rounded] < 0.8 * errors[plain]
    adapter.close()


def test_without_a_goal_of_size_no_samples_are_recorded_and_nothing_is_rounded() -> None:
    with opened(network(), calibrate=False) as adapter:
        calibration = adapter.calibrate(images())
        (op,) = adapter.ops()
    assert "rounding_samples" not in calibration
    assert not any(choice.repairs for choice in op.smaller)
    assert FLOAT in op.choices
