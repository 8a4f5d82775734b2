"""A ResNet50 v2 with all its channels or few, trained on digits, whose first convolution is made hard for int8.

As in the network that MXNet's documentation tunes, one channel of `sg_mkldnn_conv_bn_act_0` is far larger than the
others: its scale and shift are multiplied, and the BatchNorm behind the pooling divides by the same, so that what the
float model computes stays as it was.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from quaver.adapters.mxnet import mxnet as mx

LAYERS = (3, 4, 6, 3)
CHANNELS = (64, 256, 512, 1024, 2048)
FEW_CHANNELS = (16, 32, 48, 64, 96)
SIDE = 32
# How much larger the planted channel is.
OUTLIER = 2000.0
# Learning rates to begin with; they fall to nothing.
FASTEST, FASTEST_WITH_FEW = 0.03, 0.1
GUILTY = "sg_mkldnn_conv_bn_act_0"
Images = NDArray[np.float32]


def digits() -> tuple[Images, NDArray[np.int64], Images, NDArray[np.int64]]:
    """Handwritten digits of 32 x 32 in three channels: 1,300 to train and calibrate with, 497 to evaluate on."""
    found = load_digits()
    # The network begins with a BatchNorm that learns nothing: data must come with mean 0 and variance 1.
    plain = ((found.images - found.images.mean()) / found.images.std()).astype(np.float32)
    images = np.kron(plain, np.ones((SIDE // 8, SIDE // 8), np.float32))
    images = np.ascontiguousarray(np.broadcast_to(images[:, None], (len(images), 3, SIDE, SIDE)))
    mixed = np.random.default_rng(0).permutation(len(images))
    images, labels = images[mixed], found.target[mixed]
    return images[:1300], labels[:1300], images[1300:], labels[1300:]


def trained(layers: tuple[int, ...] = LAYERS, epochs: int = 6, *, few: bool = False, seed: int = 0) -> Any:
    """The network after a short training; with few channels it is there sooner."""
    from mxnet.gluon.model_zoo.vision.resnet import BottleneckV2, ResNetV2

    mx.random.seed(seed)
    np.random.seed(seed)
    channels, fastest = (FEW_CHANNELS, FASTEST_WITH_FEW) if few else (CHANNELS, FASTEST)
    net = ResNetV2(BottleneckV2, list(layers), list(channels[: len(layers) + 1]), classes=10, prefix="resnetv2_")
    net.initialize(mx.init.Xavier(magnitude=2))
    net.hybridize()
    images, labels, _, _ = digits()
    loss = mx.gluon.loss.SoftmaxCrossEntropyLoss()
    trainer = mx.gluon.Trainer(net.collect_params(), "sgd", {"momentum": 0.9, "wd": 1e-4})
    order = np.random.default_rng(seed)
    for epoch in range(epochs):
        trainer.set_learning_rate(fastest * (1 - epoch / epochs))
        places = order.permutation(len(images))
        for start in range(0, len(images) - 49, 50):
            at = places[start : start + 50]
            with mx.autograd.record():
                error = loss(net(mx.nd.array(images[at])), mx.nd.array(labels[at]))
            error.backward()
            trainer.step(50)
    return net


def plant(net: Any, factor: float = OUTLIER) -> None:
    """Make one channel behind the first convolution larger, and the BatchNorm behind the pooling divide by the same."""
    values = net.collect_params()
    channel = int(np.argmax(values["resnetv2_batchnorm1_gamma"].data().asnumpy()))
    for name, times in (
        ("batchnorm1_gamma", factor),
        ("batchnorm1_beta", factor),
        ("stage1_batchnorm0_running_mean", factor),
        ("stage1_batchnorm0_running_var", factor**2),
    ):
        parameter = values[f"resnetv2_{name}"]
        changed = parameter.data().asnumpy().copy()
        changed[channel] *= times
        parameter.set_data(mx.nd.array(changed))


class Accuracy:
    """An eval_func as the seed writes it: top-1 accuracy by MXNet's own metric."""

    def __init__(self, images: Images, labels: NDArray[np.int64], batch: int = 100) -> None:
        self._data = mx.io.NDArrayIter(images, labels.astype(np.float32), batch, last_batch_handle="discard")
        self.calls = 0

    def __call__(self, model: Any) -> float:
        self.calls += 1
        self._data.reset()
        metric = mx.metric.Accuracy()
        for batch in self._data:
            metric.update(batch.label, [model.forward(batch.data[0])])
        return float(metric.get()[1])
