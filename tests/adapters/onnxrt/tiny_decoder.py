"""A decoder of two layers, written node by node: causal attention, RMSNorm, a gated unit and a head."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto
from onnx_models import Net, tensor, weight

VOCABULARY, WIDTH, INNER = 300, 64, 128
Array = NDArray[Any]


def decoder(layers: int = 2, tied: bool = True, past: bool = False, causal: bool = True, scale: float = 6.0) -> Any:
    """Return the model. `scale` decides how far apart the scores of tokens lie."""
    net = Net()
    ids = net.input("batch", "length", name="input_ids", dtype=TensorProto.INT64)
    table = net.constant(weight(VOCABULARY, WIDTH, seed=99) * np.float32(scale), "embed")
    x, outputs = net.Gather(table, ids, name="embedding"), []
    mask = _mask(net, x) if causal else None
    for layer in range(layers):
        normal = _norm(net, x)
        query, key, value = (
            net.MatMul(normal, weight(WIDTH, WIDTH, seed=10 * layer + at), name=f"{part}{layer}")
            for at, part in enumerate("qkv")
        )
        if past:
            key, value = (
                net.Concat(
                    net.input("batch", "past", WIDTH, name=f"past_key_values.{layer}.{part}"),
                    now,
                    axis=1,
                    outputs=[f"present.{layer}.{part}"],
                )
                for part, now in (("key", key), ("value", value))
            )
            outputs += [tensor(name, "batch", "total", WIDTH) for name in (key, value)]
        scores = net.Mul(net.MatMul(query, net.Transpose(key, perm=[0, 2, 1])), np.float32(1 / 8))
        scores = scores if mask is None or past else net.Where(mask, scores, np.float32(-1e9))
        mixed = net.MatMul(net.Softmax(scores, axis=-1), value)
        x = net.Add(x, net.MatMul(mixed, weight(WIDTH, WIDTH, seed=10 * layer + 4), name=f"o{layer}"))
        normal = _norm(net, x)
        gate = net.MatMul(normal, weight(WIDTH, INNER, seed=10 * layer + 5), name=f"gate{layer}")
        up = net.MatMul(normal, weight(WIDTH, INNER, seed=10 * layer + 6), name=f"up{layer}")
        gated = net.Mul(net.Mul(gate, net.Sigmoid(gate)), up)
        x = net.Add(x, net.MatMul(gated, weight(INNER, WIDTH, seed=10 * layer + 7), name=f"down{layer}"))
    head = net.Transpose(table, perm=[1, 0]) if tied else weight(WIDTH, VOCABULARY, seed=98)
    logits = net.MatMul(_norm(net, x), head, name="head", outputs=["logits"])
    return net.model(tensor(logits, "batch", "length", VOCABULARY), *outputs)


def tokens(count: int = 4, length: int = 16, batch: int = 2, seed: int = 0) -> list[Array]:
    """Return batches of token numbers."""
    rng = np.random.default_rng(seed)
    return [rng.integers(0, VOCABULARY, (batch, length)) for _ in range(count)]


def save(model: onnx.ModelProto, path: Any) -> Any:
    onnx.save_model(model, path)
    return path


def _norm(net: Net, x: str) -> str:
    mean = net.ReduceMean(net.Mul(x, x), axes=[-1])
    scale = net.Reciprocal(net.Sqrt(net.Add(mean, np.float32(1e-5))))
    return str(net.Mul(net.Mul(x, scale), np.linspace(0.5, 1.5, WIDTH, dtype=np.float32)))


def _mask(net: Net, x: str) -> str:
    length = net.Squeeze(net.Slice(net.Shape(x), np.array([1]), np.array([2])), np.array([0]))
    steps = net.Range(np.array(0), length, np.array(1))
    return str(net.LessOrEqual(net.Unsqueeze(steps, np.array([0])), net.Unsqueeze(steps, np.array([1]))))
