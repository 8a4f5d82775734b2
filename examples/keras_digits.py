"""Train a small Keras network for handwritten digits, tune it to int8, and save it as .tflite."""

import keras
import numpy as np
from keras import layers

import quaver
from quaver.demo.data import digits


def enlarged(images):
    """Return the 8 x 8 pixels as images of 32 x 32, with the channel last."""
    return np.kron(images[:, 0], np.ones((1, 4, 4), np.float32))[..., None]


def network():
    """Return a network with a stem and three depthwise-separable blocks."""
    x = image = keras.Input((32, 32, 1), name="image")
    x = layers.Conv2D(32, 3, strides=2, padding="same", use_bias=False, name="stem")(x)
    x = layers.ReLU()(layers.BatchNormalization(momentum=0.9)(x))
    for number, (channels, stride) in enumerate([(48, 2), (64, 1), (64, 1)]):
        before = x
        x = layers.DepthwiseConv2D(3, stride, "same", use_bias=False, name=f"block{number}_depthwise")(x)
        x = layers.ReLU()(layers.BatchNormalization(momentum=0.9)(x))
        x = layers.Conv2D(channels, 1, use_bias=False, name=f"block{number}_pointwise")(x)
        x = layers.BatchNormalization(momentum=0.9)(x)
        if before.shape == x.shape:
            x = layers.Add(name=f"block{number}_add")([before, x])
    x = layers.GlobalAveragePooling2D(name="pool")(x)
    return keras.Model(image, layers.Dense(10, activation="softmax", name="classes")(x))


train, train_labels, images, labels = digits()
train, images = enlarged(train), enlarged(images)

keras.utils.set_random_seed(0)
model = network()
model.compile(keras.optimizers.Adam(0.003), "sparse_categorical_crossentropy")
model.fit(train, train_labels, batch_size=64, epochs=8, verbose=0)


def accuracy(model):
    """Return the share of test images that the model classifies correctly."""
    return float((model(images).argmax(axis=1) == labels).mean())


result = quaver.fit(model, calib_dataloader=train[:256], eval_func=accuracy, strategy="auto", relative=0.01)
print(result)
print(f"{result.best.measured['latency']:.2f}x fp32 latency; ops in fp32: {', '.join(result.best.config.fp32_ops)}")
if result.met:
    result.save("digits-int8.tflite")

again = quaver.recover(model, result.history_path, 1)
print(f"trial 1, rebuilt: accuracy {accuracy(again):.4f}, {again.size:,} bytes")
