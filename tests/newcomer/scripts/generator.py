"""Calibration data from a generator, and an evaluation that yields the score of each sample."""

import numpy as np

import quaver

images, labels = np.load("images.npy"), np.load("labels.npy")


def batches():
    yield from np.split(np.load("calib.npy"), 4)


def accuracy(model):
    for start in range(0, len(images), 64):
        rows = slice(start, start + 64)
        yield model(images[rows]).argmax(axis=1) == labels[rows]


result = quaver.fit("model.onnx", calib_dataloader=batches(), eval_func=accuracy, relative=0.05, strategy="basic")
print(result)
assert result.confidence is not None
