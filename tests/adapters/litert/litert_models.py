"""Networks for the tests of the TensorFlow side, and data that fits them.

`python tests/litert/litert_models.py` retrains the one with weights in tests/data/digits_keras.npz (10 s).
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers
from numpy.typing import NDArray

from quaver.adapters.litert.adapter import LiteRTAdapter
from quaver.adapters.options import AdapterOptions
from quaver.demo import run as data
from quaver.ops import INT8, Op, OpConfig
from quaver.space import TuningSpace

WEIGHTS = Path(__file__).parents[2] / "data" / "digits_keras.npz"
BLOCKS = [(16, 1), (32, 2), (32, 1), (48, 2), (48, 1)]
LAYERS = [
    "stem",
    *(
        f"block{at}_{part}"
        for at in range(5)
        for part in ("depthwise", "pointwise", "add")
        if part != "add" or not at % 2
    ),
    "pool",
    "classes",
]

keras.config.disable_traceback_filtering()


@functools.cache
def digits() -> tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.float32], NDArray[np.int64]]:
    """Training and test images with the channel last, and their labels."""
    train, train_labels, images, labels = data.digits()
    return train.reshape(-1, 8, 8, 1), train_labels, images.reshape(-1, 8, 8, 1), labels


def accuracy(model: Any) -> float:
    """The share of test images a model gets right."""
    _, _, images, labels = digits()
    return float((model(images).argmax(axis=1) == labels).mean())


def network() -> Any:
    """A depthwise-separable network for digits."""
    x = image = keras.Input((8, 8, 1), name="image")
    x = layers.Conv2D(16, 3, padding="same", use_bias=False, name="stem")(x)
    x = layers.ReLU()(layers.BatchNormalization(momentum=0.9)(x))
    for number, (channels, stride) in enumerate(BLOCKS):
        before = x
        x = layers.DepthwiseConv2D(3, stride, "same", use_bias=False, name=f"block{number}_depthwise")(x)
        x = layers.BatchNormalization(momentum=0.9, name=f"block{number}_norm")(x)
        x = layers.Conv2D(channels, 1, use_bias=False, name=f"block{number}_pointwise")(layers.ReLU()(x))
        x = layers.BatchNormalization(momentum=0.9)(x)
        if before.shape == x.shape:
            x = layers.Add(name=f"block{number}_add")([before, x])
    x = layers.GlobalAveragePooling2D(name="pool")(x)
    return keras.Model(image, layers.Dense(10, activation="softmax", name="classes")(x), name="digits")


def trained(*planted: int) -> Any:
    """The trained network. In the blocks named, the channels between depthwise and pointwise differ by up to 30,000
    times: the same in fp32, and ruinous in int8, which has one scale for all of them.
    """
    model = network()
    with np.load(WEIGHTS) as weights:
        model.set_weights([weights[f"arr_{at}"] for at in range(len(model.get_weights()))])
    for block in planted:
        norm, pointwise = model.get_layer(f"block{block}_norm"), model.get_layer(f"block{block}_pointwise")
        scale, shift, mean, variance = norm.get_weights()
        factors = np.geomspace(1, 3e4, len(scale)).astype(np.float32)
        norm.set_weights([scale * factors, shift * factors, mean, variance])
        pointwise.set_weights([pointwise.get_weights()[0] / factors[:, None]])
    return model


def mixed() -> Any:
    """Two outputs, and most of the operators that networks for images have."""
    keras.utils.set_random_seed(0)
    image = keras.Input((16, 16, 3), name="a picture")
    x = layers.Conv2D(8, 3, activation="relu", name="conv")(image)
    x = layers.MaxPool2D(name="half")(x)
    side = layers.Conv2D(4, 1, activation="sigmoid", name="gate")(x)
    x = layers.Concatenate(name="join")([x, layers.Conv2D(8, 1, name="point")(x), side])
    large = [
        layers.Conv2DTranspose(6, 3, 2, "same", activation="tanh", name="grow")(x),
        layers.UpSampling2D(name="nearest")(x),
        layers.UpSampling2D(interpolation="bilinear", name="smooth")(x),
    ]
    y = layers.AveragePooling2D(2, name="average")(layers.Concatenate(name="join_large")(large))
    y = layers.SeparableConv2D(8, 3, name="separable")(layers.ZeroPadding2D()(layers.LeakyReLU()(y)))
    y = layers.Dense(5, name="dense")(layers.Flatten()(layers.Activation("hard_silu", name="swish")(y)))
    return keras.Model(image, [y, layers.GlobalMaxPooling2D(name="peak")(x)])


def transformer() -> Any:
    """Two blocks of attention over tokens; batch and length are open."""
    keras.utils.set_random_seed(0)
    tokens = keras.Input((None,), dtype="int32", name="tokens")
    x = layers.Embedding(50, 16, name="embed")(tokens)
    for at in range(2):
        x = layers.LayerNormalization(name=f"norm{at}a")(x + layers.MultiHeadAttention(2, 8, name=f"attend{at}")(x, x))
        wide = layers.Dense(32, activation="gelu", name=f"up{at}")(x)
        x = layers.LayerNormalization(name=f"norm{at}b")(x + layers.Dense(16, name=f"down{at}")(wide))
    return keras.Model(tokens, layers.Dense(5, name="head")(layers.GlobalAveragePooling1D(name="mean")(x)))


def twins() -> Any:
    """Two inputs that share a layer, and outputs by name."""
    keras.utils.set_random_seed(0)
    left, right = keras.Input((8,), name="left"), keras.Input((8,), name="right")
    shared = layers.Dense(8, activation="relu", name="shared")
    both = layers.Concatenate(name="both")([shared(left), shared(right)])
    return keras.Model([left, right], {"one": layers.Dense(3, name="one")(both), "other": shared(left + right)})


def recurrent() -> Any:
    """An LSTM, which converts for a batch of one only."""
    keras.utils.set_random_seed(0)
    steps = keras.Input((12, 4), name="steps")
    hidden = layers.LSTM(8, name="memory")(layers.Dense(6, name="before")(steps))
    return keras.Model(steps, layers.Dense(2, name="after")(hidden))


def frozen(model: Any, path: Path) -> Path:
    """A Keras model as a frozen graph."""
    from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

    specs = [tf.TensorSpec(tensor.shape, tensor.dtype, name=tensor.name) for tensor in model.inputs]
    function = tf.function(lambda *args: model(args[0], training=False)).get_concrete_function(*specs)
    graph = convert_variables_to_constants_v2(function).graph.as_graph_def()
    path.write_bytes(graph.SerializeToString())
    return path


def lite(model: Any, **settings: Any) -> bytes:
    """A .tflite by TensorFlow's own way."""
    converter = tf.lite.TFLiteConverter.from_keras_model(model)
    for name, value in settings.items():
        setattr(converter, name, value)
    return bytes(converter.convert())


def samples(adapter: LiteRTAdapter, batches: int = 3, size: int = 4) -> list[dict[str, NDArray[Any]]]:
    """Random feeds that fit a model."""
    rng = np.random.default_rng(0)
    result = []
    for _ in range(batches):
        feed = {}
        for spec in adapter.inputs:
            assert spec.shape is not None
            shape = [dim if dim is not None else (7 if at else size) for at, dim in enumerate(spec.shape)]
            kind = spec.dtype.kind
            feed[spec.name] = (rng.integers(0, 50, shape) if kind == "i" else rng.normal(size=shape)).astype(spec.dtype)
        result.append(feed)
    return result


def opened(model: Any, data: Any = None) -> tuple[LiteRTAdapter, TuningSpace]:
    """An adapter, calibrated, and its space."""
    adapter = LiteRTAdapter.load(model, AdapterOptions(threads=1))
    adapter.calibrate(samples(adapter) if data is None else data)
    return adapter, TuningSpace(adapter.ops())


def every_int8(op: Op) -> OpConfig:
    """int8, also where fp32 is the default."""
    return next(choice for choice in op.choices if choice.precision is INT8)


def outputs(model: Any, feed: Any) -> list[NDArray[Any]]:
    """All outputs as a list."""
    result = model.run(feed)
    return result if isinstance(result, list) else [result]


def relative_error(expected: NDArray[Any], given: NDArray[Any]) -> float:
    """Squared error over squared signal."""
    return float(np.sum(np.square(expected - given)) / np.sum(np.square(expected)))


def _train() -> None:
    keras.utils.set_random_seed(1)
    model, (train, labels, _, _) = network(), digits()
    model.compile(keras.optimizers.Adam(0.01), "sparse_categorical_crossentropy")
    model.fit(train, labels, 64, epochs=12, verbose=0)
    np.savez(WEIGHTS, *model.get_weights())


if __name__ == "__main__":
    _train()
