"""What is left of a model after its float graph was rewritten, and whether it still computes the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx_models import Net, deviation, kernels, opened, random_config, space, weight

Part = Callable[[Net, str], str]
SAME: dict[str, Any] = {"pads": [1, 1, 1, 1]}
f32 = np.float32


def numbers(*values: float) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.array(values, np.float32)


def norm_constants(channels: int, seed: int = 0, negative: bool = False) -> list[Any]:
    """Scale, shift, mean and variance of a BatchNormalization."""
    rng = np.random.default_rng([seed, channels])
    signs = rng.choice([-1, 1], channels) if negative else np.ones(channels)
    values = [rng.uniform(0.5, 2, channels) * signs, rng.normal(size=channels), rng.normal(size=channels)]
    return [np.asarray(value, np.float32) for value in [*values, rng.uniform(0.5, 2, channels)]]


def between_convs(part: Part, opset: int = 17, **second: Any) -> onnx.ModelProto:
    """Conv, the part in question on four channels, Conv."""
    net = Net()
    x = net.Conv(net.input(2, 4, 8, 8), weight(4, 4, 3, 3), weight(4), **SAME)
    x = part(net, x)
    kernel = (3, 3) if second else (1, 1)
    return net.model(net.Conv(x, weight(5, 4 // second.get("group", 1), *kernel, seed=1)[:, :], **second), opset=opset)


def between_products(part: Part, opset: int = 17) -> onnx.ModelProto:
    """MatMul, the part in question on rows of eight, MatMul."""
    net = Net()
    x = net.Add(net.MatMul(net.input(None, 3, 8), weight(8, 8)), weight(8))
    x = part(net, x)
    return net.model(net.Add(net.MatMul(x, weight(8, 8, seed=1)), weight(8, seed=1)), opset=opset)


def kinds(model: onnx.ModelProto, **options: Any) -> str:
    """The nodes of the float graph, in order; it must compute what the model does."""
    with opened(model, calibrate=False, **options) as adapter:
        adapter.compare()
        assert deviation(model, adapter) < 1e-5
        onnx.checker.check_model(adapter.assemble(None).SerializeToString(), full_check=True)
        return " ".join(node.op_type for node in adapter._builder.graph.nodes)


def applied(model: onnx.ModelProto) -> dict[str, int]:
    with opened(model, calibrate=False) as adapter:
        return dict(adapter.rewrites)


def kernels_are_right(model: onnx.ModelProto, count: int = 4) -> None:
    """In any configuration of the rewritten graph, what is called int8 runs as int8, and nothing else."""
    rng = np.random.default_rng(0)
    with opened(model) as adapter:
        ops = space(adapter)
        for config in [ops.default_config(), ops.all_fp32(), *(random_config(ops, rng) for _ in range(count))]:
            assert set(kernels(adapter, config)) == set(config.int8_ops)
        assert deviation(model, adapter, ops.all_fp32()) < 1e-5
        assert deviation(model, adapter, ops.default_config()) < 0.1
