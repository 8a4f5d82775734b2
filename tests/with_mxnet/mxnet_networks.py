"""Small networks of MXNet, each with something that the adapter has to get right."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from quaver.adapters import AdapterOptions
from quaver.adapters.mxnet import mxnet as mx
from quaver.adapters.mxnet.adapter import MXNetAdapter
from quaver.space import TuningSpace

nn = mx.gluon.nn
SHAPE = (3, 12, 12)


def images(count: int = 48, seed: int = 1) -> NDArray[np.float32]:
    """Samples for all of them but `two_inputs`."""
    return np.random.default_rng(seed).standard_normal((count, *SHAPE)).astype(np.float32)


def _started(net: Any, *data: NDArray[np.float32]) -> Any:
    mx.random.seed(0)
    net.initialize(mx.init.Xavier())
    net(*(mx.nd.array(part) for part in data or (images(2),)))  # shapes of parameters are known after the first run
    return net


def plain() -> Any:
    """Convolutions, pooling, and a fully connected layer."""
    net = nn.HybridSequential(prefix="plain_")
    with net.name_scope():
        net.add(nn.Conv2D(8, 3, padding=1), nn.BatchNorm(), nn.Activation("relu"), nn.MaxPool2D())
        net.add(nn.Conv2D(16, 3, padding=1), nn.Activation("relu"), nn.GlobalAvgPool2D(), nn.Flatten(), nn.Dense(10))
    return _started(net)


class _Joined(nn.HybridBlock):
    """Two branches that are joined, a sum that cannot be fused, a sigmoid that has no int8 kernel, two outputs."""

    def __init__(self) -> None:
        super().__init__(prefix="joined_")
        with self.name_scope():
            self.left = nn.Conv2D(8, 3, padding=1)
            self.right = nn.Conv2D(8, 1)
            self.both = nn.Conv2D(8, 3, padding=1, groups=2)
            self.dense = nn.Dense(5)

    def hybrid_forward(self, F: Any, x: Any) -> Any:  # noqa: N803 - MXNet calls it so
        left, right = F.relu(self.left(x)), self.right(x)
        joined = F.concat(left, right, dim=1)
        mixed = self.both(joined) + F.sigmoid(left)
        return self.dense(F.Pooling(mixed, kernel=(2, 2), stride=(2, 2), pool_type="avg")), F.sigmoid(right).mean(
            axis=1
        )


def joined() -> Any:
    """See `_Joined`."""
    return _started(_Joined())


class _TwoInputs(nn.HybridBlock):
    def __init__(self) -> None:
        super().__init__(prefix="two_")
        with self.name_scope():
            self.one, self.other, self.last = nn.Dense(12), nn.Dense(12), nn.Dense(4)

    def hybrid_forward(self, F: Any, x: Any, y: Any) -> Any:  # noqa: N803
        return self.last(F.relu(self.one(x)) + self.other(y))


def two_inputs() -> Any:
    """Takes two arrays."""
    return _started(_TwoInputs(), *rows(2))


def rows(count: int = 48) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Samples for `two_inputs`."""
    chance = np.random.default_rng(3)
    return chance.standard_normal((count, 6)).astype(np.float32), chance.standard_normal((count, 7)).astype(np.float32)


def residual() -> Any:
    """The blocks of a ResNet v2: BatchNorm before convolutions, sums that are fused into them."""
    from mxnet.gluon.model_zoo.vision.resnet import BottleneckV2, ResNetV2

    net = ResNetV2(BottleneckV2, [1, 2], [8, 16, 24], classes=6, prefix="residual_")
    return _started(net)


NETWORKS = {"plain": plain, "joined": joined, "two inputs": two_inputs, "residual": residual}


def data_for(name: str) -> Any:
    """Calibration data of a network."""
    return [tuple(part[at : at + 16] for part in rows()) for at in (0, 16, 32)] if name == "two inputs" else images()


def opened(net: Any, data: Any) -> tuple[MXNetAdapter, TuningSpace]:
    """An adapter that is calibrated, and its ops."""
    adapter = MXNetAdapter.load(net, AdapterOptions(threads=1))
    adapter.calibrate(data)
    return adapter, TuningSpace(adapter.ops())
