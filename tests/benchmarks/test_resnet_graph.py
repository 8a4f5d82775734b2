"""The hand-written graph of ResNet-8 computes what the network's definition says."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
from numpy.lib.stride_tricks import sliding_window_view

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.models.heads import run
from benchmarks.models.resnet_graph import EPSILON, STAGES, resnet8


def random_weights():
    chance = np.random.default_rng(0)
    weights = {}

    def conv(name, outputs, inputs, side):
        weights[f"{name}.weight"] = chance.normal(0, 0.2, (outputs, inputs, side, side)).astype(np.float32)

    def norm(name, channels):
        for part in ("weight", "bias", "running_mean", "running_var"):
            weights[f"{name}.{part}"] = chance.uniform(0.2, 1, channels).astype(np.float32)

    conv("stem_conv", 16, 3, 3)
    norm("stem_norm", 16)
    before = 16
    for number, (channels, stride) in enumerate(STAGES, 1):
        conv(f"stage{number}_conv1", channels, before, 3)
        conv(f"stage{number}_conv2", channels, channels, 3)
        norm(f"stage{number}_norm1", channels)
        norm(f"stage{number}_norm2", channels)
        if stride > 1:
            conv(f"stage{number}_shortcut", channels, before, 1)
        before = channels
    weights["classes.weight"] = chance.normal(0, 0.2, (10, 64)).astype(np.float32)
    weights["classes.bias"] = chance.normal(0, 0.2, 10).astype(np.float32)
    return weights


def conv(x, weight, stride):
    """A convolution with TensorFlow's "same" padding: what is odd goes to the end."""
    side, kernel = x.shape[-1], weight.shape[-1]
    padding = max(0, (-(-side // stride) - 1) * stride + kernel - side)
    edges = (padding // 2, padding - padding // 2)
    windows = sliding_window_view(np.pad(x, ((0, 0), (0, 0), edges, edges)), (kernel, kernel), (2, 3))
    return np.einsum("nchwij,ocij->nohw", windows[:, :, ::stride, ::stride], weight, optimize=True)


def expected(x, weights):
    """ResNet-8 in numpy."""

    def norm(x, name):
        scale, bias, mean, variance = (
            weights[f"{name}.{part}"][:, None, None] for part in ("weight", "bias", "running_mean", "running_var")
        )
        return (x - mean) / np.sqrt(variance + EPSILON) * scale + bias

    x = np.maximum(norm(conv(x, weights["stem_conv.weight"], 1), "stem_norm"), 0)
    for number, (_, stride) in enumerate(STAGES, 1):
        scope = f"stage{number}"
        y = np.maximum(norm(conv(x, weights[f"{scope}_conv1.weight"], stride), f"{scope}_norm1"), 0)
        y = norm(conv(y, weights[f"{scope}_conv2.weight"], 1), f"{scope}_norm2")
        shortcut = conv(x, weights[f"{scope}_shortcut.weight"], stride) if stride > 1 else x
        x = np.maximum(shortcut + y, 0)
    return x.mean(axis=(2, 3)) @ weights["classes.weight"].T + weights["classes.bias"]


def test_the_graph_computes_resnet8():
    weights = random_weights()
    model = resnet8(weights)
    onnx.checker.check_model(model, full_check=True)
    images = np.random.default_rng(1).uniform(-1, 1, (3, 3, 32, 32)).astype(np.float32)
    np.testing.assert_allclose(run(model, {"image": images}), expected(images, weights), rtol=1e-4, atol=1e-4)


def test_the_graph_takes_any_number_of_pictures_and_has_every_weight():
    weights = random_weights()
    model = resnet8(weights)
    assert model.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch"
    assert {tensor.name for tensor in model.graph.initializer} == set(weights)
    assert [node.op_type for node in model.graph.node].count("Conv") == 9
