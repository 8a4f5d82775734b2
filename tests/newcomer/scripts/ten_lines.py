"""The first example of the README."""

import numpy as np

import quaver

images, labels = np.load("images.npy"), np.load("labels.npy")


def accuracy(model):
    return float((model(images).argmax(axis=1) == labels).mean())


result = quaver.fit("model.onnx", calib_dataloader=np.load("calib.npy"), eval_func=accuracy, relative=0.05)
print(result)
assert result.met
result.save("model-int8.onnx")
