"""Small Keras networks that have one fault each, and the same ones without it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers
from numpy.typing import NDArray

Array = NDArray[Any]

CHANNELS, SIZE = 16, 6


def noise(*shape: int, seed: int = 0) -> Array:
    """Random float32, of a size that keeps activations near one; the last axis holds outputs."""
    fan_in = max(1, int(np.prod(shape[:-1])))
    return (np.random.default_rng([seed, *shape]).standard_normal(shape) / np.sqrt(fan_in)).astype(np.float32)


def images(count: int = 64, seed: int = 1) -> Array:
    """Samples for the networks here."""
    return np.random.default_rng(seed).standard_normal((count, SIZE, SIZE, CHANNELS)).astype(np.float32)


def kernel(seed: int) -> Array:
    """The weights of a convolution."""
    return noise(3, 3, CHANNELS, CHANNELS, seed=seed)


def conv(name: str, weight: Array, bias: Array | None = None, **settings: Any) -> Any:
    """A convolution with these weights."""
    return layers.Conv2D(
        weight.shape[3],
        weight.shape[:2],
        padding="same",
        kernel_initializer=lambda *_, **__: keras.ops.convert_to_tensor(weight),
        bias_initializer=lambda *_, **__: keras.ops.convert_to_tensor(
            noise(weight.shape[3], seed=7) if bias is None else bias
        ),
        name=name,
        **settings,
    )


def network(body: Callable[[Any], Any]) -> Any:
    """A model of an image."""
    image = keras.Input((SIZE, SIZE, CHANNELS), name="x")
    return keras.Model(image, body(image), name="net")


def chain(first: Array | None = None, second: Array | None = None) -> Any:
    """Three convolutions, the first one with a Relu."""
    weights = [kernel(1) if first is None else first, kernel(2) if second is None else second, kernel(3)]
    parts = [conv("first", weights[0], activation="relu"), conv("second", weights[1]), conv("third", weights[2])]
    return network(lambda x: parts[2](parts[1](parts[0](x))))


def outlying_output_channel(factor: float = 300.0) -> Any:
    """`second` has one output channel, number 5, of much larger weights; a Relu6 cuts what comes of it."""
    weight = kernel(2)
    weight[..., 5] *= factor
    second = conv("second", weight, activation="relu6")
    return network(lambda x: second(conv("first", kernel(1), activation="relu")(x)))


def outlying_input_channel(factor: float = 300.0) -> Any:
    """`first` makes one channel, number 3, small, and `second` makes up for it with large weights everywhere."""
    first, second, bias = kernel(1), kernel(2), noise(CHANNELS, seed=7)
    first[..., 3] /= factor
    bias[3] /= factor
    second[:, :, 3] *= factor
    return network(lambda x: conv("second", second)(conv("first", first, bias, activation="relu")(x)))


def outlying_activation(factor: float = 300.0) -> Any:
    """`first` makes one channel, number 3, large, and `second` makes up for it with small weights."""
    return outlying_input_channel(1 / factor)


def joined(small: float) -> Any:
    """A Concatenate of what two convolutions write, one of them `small` times as large as the other."""

    def body(x: Any) -> Any:
        a = conv("large", kernel(1))(x)
        b = conv("small", kernel(2) * np.float32(small), noise(CHANNELS, seed=7) * np.float32(small))(x)
        return conv("after", noise(1, 1, 2 * CHANNELS, CHANNELS, seed=3))(layers.Concatenate(name="join")([a, b]))

    return network(body)


def cut_apart(small: float) -> Any:
    """What one convolution writes, cut into halves, the second one `small` times as large as the first."""
    weight = kernel(1)
    weight[..., CHANNELS // 2 :] *= small
    whole = conv("whole", weight, np.zeros(CHANNELS, np.float32))
    none = np.zeros(CHANNELS, np.float32)
    halved = (3, 3, CHANNELS // 2, CHANNELS)
    ends = [conv(name, noise(*halved, seed=seed), none) for name, seed in (("one", 4), ("other", 5))]

    def body(x: Any) -> Any:
        halves = layers.Lambda(lambda y: tf.split(y, 2, axis=3), name="cut")(whole(x))
        return [end(half) for end, half in zip(ends, halves, strict=True)]

    return network(body)


def logarithm(loud: float) -> Any:
    """The logarithm of a sigmoid. When what goes in is `loud`, the sigmoid gets so small that int8 makes it zero."""
    scores = conv("scores", kernel(1) * np.float32(loud), np.zeros(CHANNELS, np.float32))

    def body(x: Any) -> Any:
        gate = layers.Activation("sigmoid", name="gate")(scores(x))
        return conv("after", noise(1, 1, CHANNELS, CHANNELS, seed=3))(keras.ops.log(gate))

    return network(body)


def broken() -> Any:
    """The logarithm of what may be negative: NaN in the float model already."""
    after = conv("after", noise(1, 1, CHANNELS, CHANNELS, seed=3))
    return network(lambda x: after(keras.ops.log(conv("scores", kernel(1))(x))))


def never_reached() -> Any:
    """A product, `rare`, of the samples whose mean is above 1000: there are none."""
    weight = tf.constant(noise(CHANNELS, CHANNELS, seed=2))
    main = tf.constant(kernel(1))

    @tf.function(input_signature=[tf.TensorSpec([None, SIZE, SIZE, CHANNELS], name="x")])
    def run(x: Any) -> dict[str, Any]:
        flat = tf.reduce_mean(tf.nn.conv2d(x, main, 1, "SAME", name="main"), [1, 2])
        chosen = tf.boolean_mask(flat, tf.reduce_max(flat, axis=1) > 1000.0)
        return {"flat": flat, "rare": tf.matmul(chosen, weight, name="rare")}

    return run


def flat_weight() -> Any:
    """Three convolutions, the second one with one and the same value everywhere."""
    return chain(second=np.full((3, 3, CHANNELS, CHANNELS), 0.25, np.float32))


def batched_product(factor: float) -> Any:
    """A product with a constant for each of four groups, in which output channel 5 has much larger weights."""
    weight = noise(4, CHANNELS, CHANNELS, seed=2) * 2
    weight[..., 5] *= factor
    constant = tf.constant(weight)

    @tf.function(input_signature=[tf.TensorSpec([None, 4, 8, CHANNELS], name="x")])
    def run(x: Any) -> Any:
        return tf.nn.relu6(tf.matmul(x, constant, name="product"))

    return run
