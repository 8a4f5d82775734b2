"""A run that ended after one trial continues with a larger budget."""

import numpy as np

import quaver

images, labels = np.load("images.npy"), np.load("labels.npy")


def accuracy(model):
    return float((model(images).argmax(axis=1) == labels).mean())


data = {"calib_dataloader": np.load("calib.npy"), "eval_func": accuracy}
first = quaver.fit("model.onnx", **data, workspace="resumed", strategy="basic", max_trials=1, timeout=600)
second = quaver.fit("model.onnx", **data, resume="resumed", max_trials=3)
assert len(first.trials) == 1 and len(second.trials) == 3
assert second.trials[0].model_hash == first.trials[0].model_hash
