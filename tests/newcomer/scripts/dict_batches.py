"""Calibration data as dicts by input name, with a label that the model does not take."""

import numpy as np

import quaver

calib = np.load("calib.npy")
batches = [{"image": calib[start : start + 16], "label": np.zeros(16)} for start in range(0, 64, 16)]
result = quaver.fit("model.onnx", calib_dataloader=batches, strategy="basic")
print(result)
assert result.best.config.int8_ops
